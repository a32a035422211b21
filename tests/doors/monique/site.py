"""A whole node with a MoniQue door for tests, on a loop in a thread of its own, and real clients to talk to it.

Clients are the `websockets` package's and libzmq's. What they wait for has a limit that only a failing test reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import uvloop
import zmq
from websockets.sync.client import ClientConnection, connect

from penstock.doors.server import Server
from penstock.engine.commands import Broadcast
from penstock.node.node import Node
from penstock.settings import Settings
from penstock.settings.schema import EtzelSettings, LimitsSettings, MoniqueSettings, TaskfluxSettings
from penstock.wire.monique import gateway as g
from penstock.wire.monique.bodies import Body, encode_body
from penstock.wire.monique.tags import Dialect

T = TypeVar("T")
WITHIN_S = 20.0
_probes = itertools.count(1)


def body(type: str = "config", spec: str = "example_calculator", **fields: Any) -> Body:
    """A message with whatever a test does not care about filled in."""
    given = {"id": f"id-{next(_probes)}", "creator": "tester", "created_at_ms": 1528138732079, "data": b"{}"}
    return Body(type=type, spec=spec, **{**given, **fields})


class Client:
    """A client of the gateway."""

    def __init__(self, port: int, **options: Any) -> None:
        opening = connect(
            f"ws://127.0.0.1:{port}/anything", compression=None, max_size=None, open_timeout=WITHIN_S, **options
        )
        self._open = contextlib.ExitStack()
        self.socket: ClientConnection = self._open.enter_context(opening)

    def close(self) -> None:
        """Leave in good order."""
        self._open.close()

    def send(self, request: g.Request) -> None:
        """Send a request without waiting for its answer."""
        self.socket.send(g.encode_request(request))

    def hear_bytes(self) -> bytes:
        """The next frame, which is a binary one."""
        heard = self.socket.recv(timeout=WITHIN_S)
        assert isinstance(heard, bytes)
        return heard

    def hear(self) -> g.Reply:
        """The next reply or message."""
        return g.decode_reply(self.hear_bytes())

    def ask(self, request: g.Request) -> g.Reply:
        """Send a request, and hear the next reply."""
        self.send(request)
        return self.hear()

    def subscribe(self, *patterns: tuple[str, str]) -> None:
        """Subscribe to (spec, type) patterns."""
        wanted = tuple(itertools.starmap(g.Pattern, patterns))
        assert self.ask(g.Subscribe(wanted)) == g.Subscribed(wanted)

    def push(self, tag: bytes, message: bytes = b"opaque", dialect: Dialect = Dialect.CURRENT) -> None:
        """Publish, and hear that it was."""
        assert self.ask(g.PushToMq(tag, message, dialect)) == g.PushedToMq(tag, dialect)

    def hears_nothing(self) -> None:
        """All that was sent to the client up to now has been heard: the next thing is the answer to a ping."""
        number = next(_probes)
        assert self.ask(g.Ping(number)) == g.Pong(number)


class Site:
    """A node whose loop runs in a thread, and the sockets of a test."""

    def __init__(
        self,
        settings: Settings,
        *,
        in_memory: bool = True,
        loop: asyncio.AbstractEventLoop | None = None,
        **options: Any,
    ) -> None:
        self.server: Server
        self.published: list[Broadcast] = []
        """What was applied from the log, in order."""
        self.context = zmq.Context()
        self.loop = loop or uvloop.new_event_loop()
        self._unseen: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self._unseen.append(context))
        self._thread = threading.Thread(target=self.loop.run_forever, name="site", daemon=True)
        self._thread.start()
        self._clients: list[Client] = []
        self._sockets: list[zmq.Socket[bytes]] = []

        async def start() -> None:
            self.server = Server(settings, in_memory=in_memory, **options)
            await self.server.start()
            # Before the door's: what a client has received has been noted.
            self.server.node.on_broadcast.insert(0, self.published.append)

        try:
            self.run(start())
        except BaseException:
            self._end_loop()
            raise
        self.ports = {
            listener.key.removeprefix("monique."): listener.port
            for listener in self.server.listeners
            if listener.door == "monique"
        }

    @property
    def node(self) -> Node:
        return self.server.node

    # The loop.

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the loop to its end."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WITHIN_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function between two turns of the loop."""

        async def call() -> T:
            return function()

        result: T = self.run(call())
        return result

    def until(self, holds: Callable[[], object]) -> None:
        """Turn the loop until something holds."""
        give_up_s = time.monotonic() + WITHIN_S
        while not self.call(holds):
            assert time.monotonic() < give_up_s, "it never came to hold"

    def hold_commits(self) -> Callable[[], None]:
        """Let nothing be committed until what is returned is called."""
        held: list[Any] = []
        consensus = self.node.consensus
        persisted = consensus.persisted

        def release() -> None:
            consensus.persisted = persisted  # type: ignore[method-assign]
            for ready in held:
                persisted(ready)
            self.node.step()

        self.call(lambda: setattr(consensus, "persisted", held.append))
        return lambda: self.call(release)

    def counts(self, queue: str) -> list[int]:
        """How many records of a queue are ready, delayed, leased and buried."""
        return self.call(lambda: list(self.node.engine.state.by_name[queue].counts))

    def counts_now(self, queue: str) -> list[int]:
        """The same, for who is on the loop's thread already."""
        return list(self.node.engine.state.by_name[queue].counts)

    # Clients.

    def client(self, **options: Any) -> Client:
        """A new client of the gateway."""
        self._clients.append(client := Client(self.ports["gateway_port"], **options))
        return client

    def socket(self, kind: int, port: str, **options: int) -> zmq.Socket[bytes]:
        """A ZeroMQ socket connected to the port of this name."""
        self._sockets.append(socket := self.context.socket(kind))  # one that nobody knows any more sends nothing
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, int(WITHIN_S * 1000))
        socket.setsockopt(zmq.SNDTIMEO, int(WITHIN_S * 1000))
        for name, value in options.items():
            socket.setsockopt(getattr(zmq, name), value)
        socket.connect(f"tcp://127.0.0.1:{self.ports[port]}")
        return socket

    def component(self, channel: str = "com", **options: int) -> zmq.Socket[bytes]:
        """What a component pushes its messages into."""
        return self.socket(zmq.PUSH, f"{channel}_in_port", **options)

    def subscriber(self, *topics: bytes, channel: str = "com", **options: int) -> zmq.Socket[bytes]:
        """A subscriber whose subscriptions have reached the node."""
        socket = self.socket(zmq.SUB, f"{channel}_out_port", **options)
        for topic in topics:
            socket.subscribe(topic)
        spec = f"probe{next(_probes)}"
        socket.subscribe(f"data:{spec}:")  # it arrives after the others
        pusher = self.component(channel)
        probe, last = body("data", spec, id="probe"), body("data", spec, id="last")
        while not socket.poll(20):
            pusher.send_multipart([probe.tag.encode(), encode_body(probe)])
        pusher.send_multipart([last.tag.encode(), encode_body(last)])
        while last.tag.encode() not in socket.recv_multipart()[0]:
            pass
        socket.unsubscribe(f"data:{spec}:")
        pusher.close()
        return socket

    # The end.

    def stop(self) -> None:
        """End all; what went wrong unseen is told now."""
        try:
            self.run(self.server.stop())
        finally:
            for client in self._clients:
                client.close()
            self.context.destroy(linger=0)
            self._end_loop()
        assert not self._unseen, self._unseen

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN_S)
        self.loop.close()


def settings(*, data_dir: str = "unused", payload_bytes: int = 16 * 2**20, **monique: Any) -> Settings:
    """Settings with a MoniQue door on free ports, and no other that could be in the way."""
    ports = dict.fromkeys(("gateway_port", "com_in_port", "com_out_port", "tech_in_port", "tech_out_port"), 0)
    inner = ("inner_com_in_port", "inner_com_out_port", "inner_tech_in_port", "inner_tech_out_port")
    return Settings(
        data_dir=data_dir,
        limits=LimitsSettings(payload_bytes=payload_bytes),
        taskflux=TaskfluxSettings(port=0),
        etzel=EtzelSettings(enabled=False),
        monique=MoniqueSettings(**{**ports, **dict.fromkeys(inner, 0), **monique}),
    )


@contextlib.contextmanager
def running(
    *, payload_bytes: int = 16 * 2**20, loop: asyncio.AbstractEventLoop | None = None, **monique: Any
) -> Iterator[Site]:
    """A node with these settings of the door for the length of a `with`."""
    site = Site(settings(payload_bytes=payload_bytes, **monique), loop=loop)
    try:
        yield site
    finally:
        site.stop()
