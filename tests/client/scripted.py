"""A node that does what a test tells it, over real sockets: it speaks the native protocol and has no mind of its own.

It answers Hello and Status by itself; every other request waits until the test takes it up and answers, refuses or
ignores it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from struct import pack
from types import TracebackType
from typing import Any, NamedTuple

from penstock.client import Client, connect
from penstock.engine import commands as c
from penstock.engine.answers import Delivery, Taken
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.frames import FrameReader, encode_frame

HANDSHAKE = b"AN" + b"B" + pack(">iii", 0x50454E53, 1, 0)
ACCEPTED = b"a\x01b\x01"


def refusal_bytes(marker: bytes, reason: str) -> bytes:
    """The answer that refuses a step of the handshake."""
    text = reason.encode()
    return marker + b"\x00" + pack(">i", len(text)) + text


class Request(NamedTuple):
    """A request as the node read it."""

    op: int
    number: int
    body: Any


class Peer:
    """The node's end of one connection."""

    def __init__(self, server: ScriptedNode, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self.hello: m.Hello | None = None
        self.ended = asyncio.Event()
        self.statuses = 0

    async def run(self) -> None:
        """Shake hands, then read requests until the connection ends."""
        try:
            assert await self._reader.readexactly(len(HANDSHAKE)) == HANDSHAKE
            self._writer.write(self._server.handshake_answer)
            if self._server.handshake_answer != ACCEPTED:
                self._writer.write_eof()
                return
            frames = FrameReader()
            while data := await self._reader.read(65536):
                for op, number, body in frames.feed(data):
                    self._take_up(op, number, body)
                await self._server.may_read.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()
            self.ended.set()

    def _take_up(self, op: int, number: int, body: bytes) -> None:
        decoder = c.DECODERS.get(op) or m.DECODERS[op]
        request = Request(op, number, decoder.decode(body))
        if op == m.HELLO:
            self.hello = request.body
            if self._server.answers_hello is not None:
                self._server.answers_hello(self, request)
                return
            self.answer(request, m.Welcome("0", self._server.cluster, 1, 1, 1 << 24))
        elif op == m.STATUS and self._server.answers_status:
            self.statuses += 1
            self.answer(request, status(self._server.log_time_us))
        else:
            self._requests.put_nowait(request)

    async def receive(self, op: int | None = None) -> Request:
        """The next request; fails if it is not the expected one."""
        request = await self._requests.get()
        assert op is None or request.op == op, request
        return request

    def received_none(self) -> bool:
        """Whether every request that was read has been taken up."""
        return self._requests.empty()

    def answer(self, request: Request, value: Any) -> None:
        """Answer a request."""
        self._writer.write(encode_frame(m.ANSWER, request.number, c.encode(value)))

    def refuse(self, request: Request, code: int, detail: str = "", figures: tuple[int, ...] = ()) -> None:
        """Refuse a request."""
        body = c.encode(Refusal(code, detail, figures))
        self._writer.write(encode_frame(m.REFUSED, request.number, body))

    def push(self, subscription: Request, taken: Taken) -> None:
        """Push records to a subscription."""
        self._writer.write(encode_frame(m.PUSH, subscription.number, c.encode(taken)))

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def drop(self) -> None:
        """End the connection without a word."""
        self.abort()
        await self.ended.wait()

    def abort(self) -> None:
        """As ``drop``, without waiting for the end."""
        self._writer.transport.abort()


class ScriptedNode:
    """Listens on a free port of the loopback address."""

    def __init__(self) -> None:
        self.handshake_answer = ACCEPTED
        self.cluster = "cluster-1"
        self.answers_status = True
        self.answers_hello: Callable[[Peer, Request], None] | None = None
        self.log_time_us = 1_000_000_000
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self._runs: dict[asyncio.Task[None], Peer] = {}

    async def __aenter__(self) -> ScriptedNode:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deafen()
        self.may_read.set()
        runs = dict(self._runs)
        for run, peer in runs.items():
            run.cancel()
            peer.abort()
        await asyncio.gather(*runs, return_exceptions=True)
        await settle()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"penstock://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    def deafen(self) -> None:
        """Accept no more connections; those that are open stay so."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> Peer:
        """The next connection."""
        return await self._accepted.get()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, reader, writer)
        self._accepted.put_nowait(peer)
        task = asyncio.get_running_loop().create_task(peer.run())
        self._runs[task] = peer
        task.add_done_callback(self._runs.pop)


async def meet(node: ScriptedNode, **options: Any) -> tuple[Client, Peer]:
    """A client, and the node's end of its connection."""
    client = await connect(node.url, **options)
    return client, await node.accept()


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin something that the test will come back to."""
    return asyncio.get_running_loop().create_task(work)


async def settle() -> None:
    """Let everything run that can run without waiting."""
    for _ in range(10):
        await asyncio.sleep(0)


def delivery(id: int, payload: bytes = b"x", *, deliveries: int = 1, lease_until_us: int = 0) -> Delivery:
    """A record as a taker gets it."""
    return Delivery(id, 0, payload, deliveries, 1_700_000_000_000_000, b"", lease_until_us)


def taken(*ids: int, token: int = 7) -> Taken:
    """Some records under a lease."""
    return Taken(token, [delivery(each) for each in ids])


def status(log_time_us: int = 1) -> m.NodeStatus:
    """A node's figures, of which a client uses the time."""
    return m.NodeStatus("0", "cluster-1", 1, 1, 1, 0, log_time_us, 0, "durable", 1, 0, 0, 0, False, 0)
