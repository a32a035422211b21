"""Commands that a node runs beside itself on a leash (see ``penstock.cli.leash``), and the lines that they write."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

_READ_BYTES: Final = 65536
_LINE_BYTES_MAX: Final = 4096
_TERMINAL_LINES: Final = 24
_KILL_AFTER_SECONDS: Final = 5.0
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-Z]?|[\x00-\x08\x0b-\x1f\x7f]")


class Lines:
    """Cuts what a program writes into lines; what it writes over (a progress bar) is a line for each state."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; a line that does not end is cut."""
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        if len(self._rest) > _LINE_BYTES_MAX:
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            self._tell(line)

    def end(self) -> None:
        """The last line has no end of its own."""
        self._tell(self._rest)
        self._rest = b""

    def _tell(self, line: bytes) -> None:
        text = _ESCAPES.sub("", line[:_LINE_BYTES_MAX].decode(errors="replace")).strip()
        if text:
            self._on_line(text)


@asynccontextmanager
async def leashed(
    command: Sequence[str], on_line: Callable[[str], None], *, grace_seconds: float, columns: int = 0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command as long as the context lasts. With `columns` it believes in a terminal, and so shows its progress."""
    read_end, write_end = pty.openpty() if columns else os.pipe()
    if columns:
        termios.tcsetwinsize(write_end, (_TERMINAL_LINES, columns))
    leash_end, leash = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock.cli.leash", str(grace_seconds), *command),
            stdin=leash_end,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
        )
    except BaseException:
        os.close(leash)
        os.close(read_end)
        raise
    finally:
        os.close(leash_end)
        os.close(write_end)
    lines = Lines(on_line)
    loop = asyncio.get_running_loop()
    os.set_blocking(read_end, False)
    loop.add_reader(read_end, lambda: _read(read_end, lines) or loop.remove_reader(read_end))
    try:
        yield process
    finally:
        os.close(leash)
        try:
            await asyncio.wait_for(process.wait(), grace_seconds + _KILL_AFTER_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        loop.remove_reader(read_end)
        while _read(read_end, lines):
            pass
        lines.end()
        os.close(read_end)


def _read(descriptor: int, lines: Lines) -> bool:
    """Pass on what is there; False when nothing is, or nothing will come any more."""
    data = b""
    with suppress(OSError):  # A terminal whose other side is closed cannot be read.
        data = os.read(descriptor, _READ_BYTES)
    lines.feed(data)
    return bool(data)
