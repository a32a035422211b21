"""A reader of a node's whole history at full speed, again and again, as a process of its own.

`python -m bench.history_reader URL` prints a line when it begins to read. When its input ends, it prints how many bytes
it got.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.errors import ServerFailed
from penstock.client.history import HistoryReader

_PROJECT = Path(__file__).resolve().parent.parent


def read_until_told(url: str) -> int:
    """Read until standard input ends; returns how many bytes of events and log came."""
    count_bytes = 0
    with HistoryReader(url) as reader:
        print("reading", flush=True)
        while True:
            reach = reader.reach()
            for piece in reader.pieces(reach.first_index, reach.applied_index):
                count_bytes += len(piece.blocks) + len(piece.log)
                if select.select([sys.stdin], [], [], 0)[0]:
                    return count_bytes


class ReaderProcess:
    """Such a process. Use it in a ``with`` block; afterwards `megabytes_per_s` is how fast it was served."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.megabytes_per_s = 0.0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "bench.history_reader", self._url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_PROJECT, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "reading\n":
            self._process.kill()
            self._process.communicate()
            raise ServerFailed("the reader of the history", "it did not begin")
        self._began_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told, _ = self._process.communicate()
        if kind is None:
            if self._process.returncode:
                raise ServerFailed("the reader of the history", "it ended early")
            self.megabytes_per_s = int(told) / 1e6 / (time.perf_counter() - self._began_s)


if __name__ == "__main__":
    print(read_until_told(sys.argv[1]))
