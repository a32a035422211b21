"""Writing log lines without ever making the caller wait.

A node logs from its event loop, and the error stream may be a pipe that nobody reads: a plain write to it would stop
the node. So lines go into a queue of bounded size, and a thread writes them. When the queue is full, lines are dropped,
and their number is written as soon as there is room again. Lines that repeat are limited, too, by logger and message:
a client that sends a million bad requests does not fill the disk with them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from typing import Final, TextIO

QUEUE_BYTES_MAX: Final = 1024 * 1024
LINES_PER_WINDOW_MAX: Final = 20
"""Lines with one message, whatever its arguments, in a window of time; the others are counted."""
WINDOW_S: Final = 10.0
_MESSAGES_MAX: Final = 1_000
_FLUSH_S_MAX: Final = 2.0
"""An end of the process waits this long for the last lines."""
_LOOK_AGAIN_S: Final = 1.0

Key = tuple[str, int, str]


class _Window:
    __slots__ = ("began_s", "passed", "suppressed")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.passed = 0
        self.suppressed = 0


class RepeatLimit:
    """Decides which lines are written. Lines of the level critical always are."""

    def __init__(self) -> None:
        self._windows: dict[Key, _Window] = {}

    def admits(self, record: logging.LogRecord, now_s: float) -> bool:
        """Whether this line is written; else it is counted."""
        if record.levelno >= logging.CRITICAL:
            return True
        key = (record.name, record.levelno, str(record.msg))
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= _MESSAGES_MAX:
                key = ("penstock", logging.WARNING, "(messages of many kinds)")
            window = self._windows.setdefault(key, _Window(now_s))
        if window.passed >= LINES_PER_WINDOW_MAX:
            window.suppressed += 1
            return False
        window.passed += 1
        return True

    def ended(self, now_s: float) -> list[logging.LogRecord]:
        """Forget the windows that are over; a line for each in which lines were not written."""
        lines = []
        for key, window in list(self._windows.items()):
            if now_s - window.began_s >= WINDOW_S:
                del self._windows[key]
                if window.suppressed:
                    name, level, message = key
                    text = "%d more lines like this were not written: %s"
                    lines.append(logging.LogRecord(name, level, "", 0, text, (window.suppressed, message), None))
        return lines


class LogWriter(logging.StreamHandler[TextIO]):
    """A handler whose callers never wait for the stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._limit = RepeatLimit()
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._is_writing = False
        self._look_at_s = 0.0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        with self._changed:
            if self._limit.admits(record, time.monotonic()):
                self._queue(record)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
            self._thread.start()

    def _queue(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._queued_bytes + len(line) > QUEUE_BYTES_MAX:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._queued_bytes += len(line)
            self._changed.notify_all()

    def setStream(self, stream: TextIO) -> TextIO | None:
        """Write to another stream from the next line on; returns the one before."""
        before, self.stream = self.stream, stream
        return before

    def flush(self) -> None:
        """Wait until everything is written, but not for ever."""
        if self._thread is None or threading.current_thread() is self._thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._is_writing, _FLUSH_S_MAX)

    # The thread.

    def _run(self) -> None:
        while True:
            text = self._next_text()
            # Nobody may be there to read it, or the stream is closed; there is no other place to report that.
            with contextlib.suppress(OSError, ValueError):
                _write(self.stream, text)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next_text(self) -> str:
        """Wait for lines, and take all of them."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                if now_s >= self._look_at_s:
                    self._look_at_s = now_s + _LOOK_AGAIN_S
                    for record in self._limit.ended(now_s):
                        self._queue(record)
                if self._changed.wait_for(lambda: self._lines, _LOOK_AGAIN_S):
                    text = "".join(self._lines)
                    self._lines.clear()
                    self._queued_bytes = 0
                    dropped, self._dropped = self._dropped, 0
                    self._is_writing = True
                    return text + self._about_dropped(dropped)

    def _about_dropped(self, count: int) -> str:
        if not count:
            return ""
        text = "%d log lines were dropped: they came faster than they were read"
        return self.format(logging.LogRecord("penstock", logging.WARNING, "", 0, text, (count,), None)) + "\n"


def _write(stream: TextIO, text: str) -> None:
    """Write text, by the descriptor if there is one.

    The buffer of the stream has a lock: a thread that waits in it would keep the interpreter from ending.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        stream.write(text)
        stream.flush()
        return
    data = text.encode(stream.encoding or "utf-8", "backslashreplace")
    while data:
        data = data[os.write(descriptor, data) :]


def can_write(stream: TextIO) -> bool:
    """Whether a line can be written to a stream without waiting for its reader, now or soon."""
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return True
    return bool(select.select([], [descriptor], [], _FLUSH_S_MAX)[1])
