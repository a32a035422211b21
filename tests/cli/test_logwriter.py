"""Log lines never make a node wait, and lines that repeat are limited."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.cli import logwriter
from penstock.cli.logs import JsonFormatter, TextFormatter
from penstock.cli.logwriter import LINES_PER_WINDOW_MAX, QUEUE_BYTES_MAX, WINDOW_S, LogWriter, RepeatLimit
from tests.cli.support import started

WITHIN_S = 30.0


def record(message: str = "bad request %d", *args: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("penstock.test", level, "", 0, message, args, None)


class HeldStream(io.StringIO):
    """A stream whose writes wait for the test, as a full pipe does."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.waits = threading.Event()

    def write(self, text: str) -> int:
        self.waits.set()
        assert self.go.wait(WITHIN_S)
        return super().write(text)

    def fileno(self) -> int:
        raise OSError("not a file")


def test_a_stream_that_nobody_reads_holds_up_nobody_and_the_lost_lines_are_counted() -> None:
    stream = HeldStream()
    writer = LogWriter(stream)
    writer.handle(record("first"))
    assert stream.waits.wait(WITHIN_S)
    line = "x" * 1000
    count = QUEUE_BYTES_MAX // 1000 + 500
    for number in range(count):
        writer.handle(record(f"{number} {line}", level=logging.CRITICAL))
    kept = len(writer._lines)
    assert kept < count
    assert writer._queued_bytes <= QUEUE_BYTES_MAX
    stream.go.set()
    writer.flush()
    assert f"{count - kept} log lines were dropped" in stream.getvalue()


def test_an_end_of_the_process_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logwriter, "_FLUSH_S_MAX", 0.01)
    stream = HeldStream()
    writer = LogWriter(stream)
    writer.handle(record("first"))
    assert stream.waits.wait(WITHIN_S)
    writer.flush()
    stream.go.set()


def test_lines_that_repeat_are_limited_and_counted() -> None:
    limit = RepeatLimit()
    passed = [limit.admits(record("bad request %d", number), 5.0) for number in range(1000)]
    assert sum(passed) == LINES_PER_WINDOW_MAX
    assert limit.admits(record("another message"), 5.0)
    assert limit.ended(5.0 + WINDOW_S - 0.1) == []
    (summary,) = limit.ended(5.0 + WINDOW_S)
    rest = 1000 - LINES_PER_WINDOW_MAX
    assert summary.getMessage() == f"{rest} more lines like this were not written: bad request %d"
    assert limit.admits(record("bad request %d", 1), 5.0 + WINDOW_S)


def test_what_ends_a_node_is_always_written() -> None:
    limit = RepeatLimit()
    assert all(limit.admits(record("failed", level=logging.CRITICAL), 0.0) for _ in range(1000))


def test_messages_of_many_kinds_cost_bounded_memory() -> None:
    limit = RepeatLimit()
    for number in range(5000):
        limit.admits(record(f"made with its arguments: {number}"), 0.0)
    assert len(limit._windows) <= logwriter._MESSAGES_MAX + 1
    limit.ended(WINDOW_S)
    assert not limit._windows


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_lines_come_in_order_in_both_formats(formatter: logging.Formatter) -> None:
    stream = HeldStream()
    stream.go.set()
    writer = LogWriter(stream)
    writer.setFormatter(formatter)
    for number in range(10):
        writer.handle(record("line %d", number))
    writer.flush()
    lines = stream.getvalue().splitlines()
    assert [f"line {number}" in line for number, line in enumerate(lines)] == [True] * 10
    if isinstance(formatter, JsonFormatter):
        assert json.loads(lines[0])["message"] == "line 0"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_node_whose_error_stream_nobody_reads_goes_on_and_stops(tmp_path: Path, log_format: str) -> None:
    """The pipe is full from the start; each junk connection is worth a line."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    options = ["--taskflux-port", "0", "--storage-reserve-bytes", "0", "--log-format", log_format]
    command = [sys.executable, "-m", "penstock", "serve", "--no-etzel", "--no-monique", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=write_end, text=True)
    try:
        os.close(write_end)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        port = next(int(line.split()[1].rpartition(":")[2]) for line in lines if line.startswith("taskflux"))
        next(line for line in lines if line.endswith("is ready.\n"))
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as junk:
                junk.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while junk.recv(1000):
                    pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(read_end)


def test_lines_of_a_node_are_all_there_when_it_ends(tmp_path: Path) -> None:
    with started("serve", "--taskflux-port", "0", "--storage-reserve-bytes", "0", cwd=tmp_path) as process:
        assert process.stdout is not None
        next(line for line in iter(process.stdout.readline, "") if line.endswith("is ready.\n"))
        process.terminate()
        _, errors = process.communicate(timeout=WITHIN_S)
    assert "SIGTERM: the node stops" in errors
