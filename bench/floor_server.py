"""The floor: the least that a durable server in Python costs. A program of its own, started by `servers.Floor`.

A request is a 4-byte big-endian length and a body; its answer is one byte, sent after the body is on the disk. The file
is filled with zeros beforehand, so that a sync has no change of length to record, and is written round and round.
Requests that arrive while a sync runs form the next batch. There is no queue behind it: whatever a broker does beyond
this comes on top.

    thread   the sync runs on a thread, and the next batch gathers meanwhile (what other servers are compared with)
    inline   the sync runs in the loop, once per turn
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from pathlib import Path
from typing import cast

import uvloop

_LENGTH_BYTES = 4


def preallocate(path: Path, size_bytes: int) -> None:
    """Fill a file with zeros, unless that was done before."""
    if path.exists() and path.stat().st_size == size_bytes:
        return
    with path.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())


class Journal:
    """Where requests are made durable: write, sync, answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, inline: bool) -> None:
        self._loop = loop
        self._file = os.open(path, os.O_RDWR)
        self._size_bytes = os.fstat(self._file).st_size
        self._offset = 0
        self._bodies: list[bytes] = []
        self._answers: list[tuple[asyncio.WriteTransport, int]] = []
        self._batch: tuple[bytes, list[tuple[asyncio.WriteTransport, int]]] = (b"", [])
        self._busy = False
        self._inline = inline
        self._handed_over = threading.Semaphore(0)
        if not inline:
            threading.Thread(target=self._sync_forever, daemon=True).start()

    def add(self, data: bytes, transport: asyncio.WriteTransport, requests: int) -> None:
        """Take requests; their answers are sent when they are durable."""
        self._bodies.append(data)
        self._answers.append((transport, requests))
        if not self._busy:
            self._busy = True
            # Whatever else this turn of the loop reads joins the batch.
            self._loop.call_soon(self._commit_inline if self._inline else self._hand_over)

    def _hand_over(self) -> None:
        self._batch = (b"".join(self._bodies), self._answers)
        self._bodies, self._answers = [], []
        self._handed_over.release()

    def _sync_forever(self) -> None:
        while True:
            self._handed_over.acquire()
            data, answers = self._batch
            self._write(data)
            self._loop.call_soon_threadsafe(self._synced, answers)

    def _synced(self, answers: list[tuple[asyncio.WriteTransport, int]]) -> None:
        # The next sync starts before this batch is answered: the disk never waits for the network.
        if self._bodies:
            self._hand_over()
        else:
            self._busy = False
        for transport, requests in answers:
            transport.write(b"\1" * requests)

    def _commit_inline(self) -> None:
        data, answers = b"".join(self._bodies), self._answers
        self._bodies, self._answers = [], []
        self._busy = False
        self._write(data)
        for transport, requests in answers:
            transport.write(b"\1" * requests)

    def _write(self, data: bytes) -> None:
        if self._offset + len(data) > self._size_bytes:
            self._offset = 0
        os.pwrite(self._file, data, self._offset)
        self._offset += len(data)
        os.fdatasync(self._file)


class Connection(asyncio.Protocol):
    """Cuts a stream into requests."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        if self._rest:
            data = self._rest + data
        start, requests, length = 0, 0, len(data)
        while length - start >= _LENGTH_BYTES:
            end = start + _LENGTH_BYTES + int.from_bytes(data[start : start + _LENGTH_BYTES], "big")
            if end > length:
                break
            _body = data[start + _LENGTH_BYTES : end]  # any server looks at it
            requests += 1
            start = end
        if requests:
            self._journal.add(data[:start], self._transport, requests)
        self._rest = data[start:]


async def serve(port: int, path: Path, inline: bool) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    journal = Journal(loop, path, inline)
    server = await loop.create_server(lambda: Connection(journal), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """The command `python -m bench.floor_server`."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor_server", description="The floor of a durable server.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True, help="a preallocated file")
    parser.add_argument("--sync", choices=["thread", "inline"], default="thread")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.file, arguments.sync == "inline"))


if __name__ == "__main__":
    main()
