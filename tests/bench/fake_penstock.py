"""A stand-in for a node: speaks enough of both protocols for the benchmark's loads, keeps records in memory and a file.

It takes the node's command line. What it does not know it refuses. It syncs nothing: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
from collections import deque
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.engine import commands as c
from penstock.wire.native import messages as m
from penstock.wire.native.frames import FrameReader, encode_frame


class Queue:
    """The one queue there is: first in, first out."""

    def __init__(self, path: Path, snapshots: bool) -> None:
        self.ready: deque[tuple[int, int, bytes]] = deque()
        self.waiters: deque[tuple[Connection, int, list[Any]]] = deque()
        self.subscribers: list[tuple[Connection, int]] = []
        self.last_id = self.token = 0
        self.snapshots = snapshots
        for item in msgspec.msgpack.decode(path.read_bytes()) if path.exists() else []:
            self._append(*item)
        self._path = path

    def _append(self, key: int, payload: bytes) -> None:
        self.last_id += 1
        self.ready.append((self.last_id, key, payload))

    def save(self) -> None:
        """Keep all records for the next start."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(msgspec.msgpack.encode([(key, payload) for _, key, payload in self.ready]))

    def put(self, items: list[Any]) -> list[Any]:
        """Put records and serve whoever waits."""
        first = self.last_id + 1
        for key, payload in items:
            self._append(key, payload)
        while self.waiters and self.ready:
            connection, request, acked = self.waiters.popleft()
            connection.answer(request, [*acked, self.take(100)] if acked else self.take(100))
        for connection, request in self.subscribers:
            if self.ready:
                connection.send(encode_frame(m.PUSH, request, c.encode(self.take(100))))
        return [first, len(items), []]

    def take(self, count: int) -> list[Any]:
        """A `Taken`."""
        self.token += 1
        records = [self.ready.popleft() for _ in range(min(count, len(self.ready)))]
        return [self.token, [[*record, 1, 0, b"", 0] for record in records]]


class Connection(asyncio.Protocol):
    """Both protocols after the handshake."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.buffer = b""
        self.reader: FrameReader | None = None
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def answer(self, request: int, body: Any) -> None:
        self.send(encode_frame(m.ANSWER, request, c.encode(body)))

    def data_received(self, data: bytes) -> None:
        if self.reader is not None:
            for code, request, body in self.reader.feed(data):
                self.on_request(code, request, msgspec.msgpack.decode(body))
            return
        self.buffer += data
        while self.buffer and (used := self.on_packet(self.buffer)):
            self.buffer = self.buffer[used:]

    def on_packet(self, data: bytes) -> int:
        """One TaskFlux packet; how many bytes it had, 0 if it is not whole."""
        if data[:2] == b"AN":
            self.send(b"a\1")
            return 2
        if data[:1] == b"B":
            if struct.unpack(">i", data[1:5])[0] == m.MAJOR:
                self.reader = FrameReader()
            self.send(b"b\1")
            return 13
        if data[:2] == b"CE" and len(data) == 115:
            self.pending = data[15:]
            self.send(b"k")
            return 115
        if data[:2] == b"CD":
            records = self.queue.take(1)[1]
            self.send(b"cd\1" + struct.pack(">qi", 0, 100) + records[0][2] if records else b"cd\0")
            return 7
        if data[:1] == b"K":
            if self.pending:
                self.queue.put([[0, self.pending]])
                self.pending = b""
            self.send(b"k")
            return 1
        return 0

    def on_request(self, code: int, request: int, body: Any) -> None:
        """One native request."""
        queue = self.queue
        match code:
            case c.PUT:
                self.answer(request, queue.put(body[1]))
            case c.ACK:
                self.answer(request, [len(body[1]), []])
            case c.TAKE:
                self.take_or_wait(request, [], [*body, None, 0][1:4:2])
            case c.ACK_TAKE:
                self.take_or_wait(request, [[len(body[1]), []]], body[2::2])
            case m.SUBSCRIBE:
                self.answer(request, [0])
                queue.subscribers.append((self, request))
            case m.STATUS:
                index = queue.last_id if queue.snapshots else 0
                self.answer(request, ["0", "", 0, 1, 0, 1, 0, index, "durable", 1, len(queue.ready), 1, 1, False, 1])
            case m.PING:
                self.answer(request, [0])
            case _:
                self.send(encode_frame(m.REFUSED, request, c.encode([0])))

    def take_or_wait(self, request: int, acked: list[Any], count_and_wait: list[int]) -> None:
        count, wait_ms = count_and_wait
        if wait_ms and not self.queue.ready:
            self.queue.waiters.append((self, request, acked))
        else:
            self.answer(request, [*acked, self.queue.take(count)] if acked else self.queue.take(count))


async def serve(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    queue = Queue(arguments.data_dir / "records", arguments.storage_snapshot_bytes > 0)
    ended = asyncio.Event()
    loop.add_signal_handler(15, ended.set)
    async with await loop.create_server(lambda: Connection(queue), "127.0.0.1", arguments.taskflux_port):
        await ended.wait()
    queue.save()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--taskflux-port", type=int)
    parser.add_argument("--no-etzel", action="store_true")
    parser.add_argument("--no-monique", action="store_true")
    parser.add_argument("--storage-snapshot-bytes", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
