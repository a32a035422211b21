"""The scheduler: what components push comes in over ZeroMQ, what they subscribe to goes out.

    components ─PUSH▶ PULL com  9000 ─▶ rules ─▶ the log ─▶ PUB com  9001 ─▶ SUB components
                      PULL tech 9024 ─▶ rules ─▶ the log ─▶ PUB tech 9025

With the inner ports open, the rules are those of other programs, as in a MoniQue of several processes:

    PULL com 9000 ─▶ PUSH 9010 ─▶ scheduler-logic ─▶ PULL 9011 ─▶ the log ─▶ PUB com 9001       (tech: 9034, 9035)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.doors.monique.errors import WrongFrameCount
from penstock.doors.monique.publishing import COM, PACKED, TECH, Rules
from penstock.doors.monique.sockets import Complaints, Inlet, Outlet, ZeroMqListener
from penstock.engine import errors as e
from penstock.engine.answers import Answer
from penstock.engine.commands import Broadcast
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.node.node import Node
from penstock.settings.schema import MoniqueSettings, Place
from penstock.wire.monique.errors import MoniqueError
from penstock.wire.monique.tags import Dialect, pack_tag_frame, unpack_tag_frame

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)

HELP: Final = "pip install 'penstock[monique]'"
_IN_FLIGHT_MAX: Final = 4096
"""Messages of one socket that may be on their way to the log; beyond that its peers wait."""
_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
_RETRY_S: Final = 0.1
_RECEIVED_MAX: Final = 1000
"""Messages that libzmq itself may hold for each peer while its peers wait."""
_LINGER_MS: Final = 1000
_DRAINS_MAX: Final = 100
"""How often, when the node stops, it is looked for more of what components had sent before."""
_FOR_LATER: Final = frozenset((e.MEMORY_FULL, e.DISK_FULL, e.NOT_LEADER))
"""Refusals that end by themselves: ZeroMQ has no way to tell them, so its peers wait instead."""
_CHANNEL_NAMES: Final = ("com", "tech")


def zeromq_is_installed() -> bool:
    """Whether pyzmq can be imported; it is an extra, since only this part of one door needs it."""
    try:
        import zmq  # noqa: F401
    except ImportError:
        return False
    return True


class Intake:
    """Messages from one socket on their way to the log, so many at a time."""

    def __init__(self, node: Node, what: str, translate: Callable[[list[bytes]], list[Command]]) -> None:
        self._node = node
        self._what = what
        self._translate = translate
        self._complaints = Complaints()
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._held: deque[Command] = deque()
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self.resume: Callable[[], None] = lambda: None
        """Called when messages may come again after ``ready`` had been false."""

    def ready(self) -> bool:
        """Whether another message may come."""
        return self._in_flight < _IN_FLIGHT_MAX and self._in_flight_bytes < _IN_FLIGHT_BYTES_MAX and not self._held

    def take(self, frames: list[bytes]) -> None:
        """Publish a message; one that cannot be is dropped, and told."""
        try:
            commands = self._translate(frames)
        except MoniqueError as problem:
            self._complaints.tell(f"monique {self._what}: a message is dropped", problem)
            return
        for command in commands:
            self._submit(command)

    def _submit(self, command: Command) -> None:
        if self._held:
            self._held.append(command)
        else:
            self._in_flight += 1
            self._in_flight_bytes += len(command.body)
            self._node.submit(command, self, 0)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """A message is in the log, or was refused."""
        was_ready = self.ready()
        self._in_flight -= 1
        self._in_flight_bytes -= len(command.body)
        if isinstance(answer, Refusal):
            if answer.code in _FOR_LATER and not self._stopped:
                if not self._held:
                    self._loop.call_later(_RETRY_S, self._retry)
                self._held.append(command)
            self._complaints.tell(f"monique {self._what}: a message is not published", answer.detail)
        if not was_ready and self.ready():
            self.resume()

    def flush(self) -> None:
        """Nothing is written from here."""

    def _retry(self) -> None:
        held, self._held = self._held, deque()
        for command in held:
            self._submit(command)
        if self.ready():
            self.resume()

    def stop(self) -> None:
        """Hold nothing any more."""
        self._stopped = True


class Relay:
    """Messages from one socket on their way to a program that decides on them."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        import zmq

        self._socket = socket
        self._no_wait = int(zmq.NOBLOCK)
        self._events, self._writable = int(zmq.EVENTS), int(zmq.POLLOUT)
        self._loop = asyncio.get_running_loop()
        self._waiting = False
        self.resume: Callable[[], None] = lambda: None
        """Called when messages may come again after ``ready`` had been false."""

    def ready(self) -> bool:
        """Whether there is somebody who takes another message."""
        if self._socket.closed or self._waiting:
            return False
        if not int(self._socket.getsockopt(self._events)) & self._writable:
            self._waiting = True
            self._loop.call_later(_RETRY_S, self._retry)
        return not self._waiting

    def take(self, frames: list[bytes]) -> None:
        """Pass a message on, whatever it is."""
        self._socket.send_multipart(frames, self._no_wait)

    def _retry(self) -> None:
        self._waiting = False
        if self.ready():
            self.resume()


class Scheduler:
    """The sockets of both channels. Made with the door; ``start`` when the node leads."""

    def __init__(self, settings: MoniqueSettings, payload_bytes_max: int) -> None:
        self._settings = settings
        self._payload_bytes_max = payload_bytes_max
        places = {place.port_key.removeprefix("monique."): place for place in settings.places()}
        self._listeners = {name: _listener(name, places) for name in _PURPOSES if name in places}
        self._intakes: list[Intake] = []
        self._inlets: list[Inlet] = []
        self._outlets: list[Outlet] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    @property
    def listeners(self) -> list[ZeroMqListener]:
        """Where components connect."""
        return list(self._listeners.values())

    def start(self, node: Node, rules: Rules) -> None:
        """Make the sockets; what comes in is published by these rules."""
        import zmq

        self._node, self._rules = node, rules
        self._owner = node.new_owner()
        self._context = zmq.Context()
        self._outlets = [Outlet(self._socket(zmq.PUB, f"{name}_out_port")) for name in _CHANNEL_NAMES]
        for name, translate in (("com", self._com), ("tech", self._tech)):
            inlet_socket = self._socket(zmq.PULL, f"{name}_in_port")
            if self._settings.inner:
                self._connect(inlet_socket, Relay(self._socket(zmq.PUSH, f"inner_{name}_in_port")))
                inlet_socket = self._socket(zmq.PULL, f"inner_{name}_out_port")
                translate = self._decided_com if name == "com" else self._decided_tech
            intake = Intake(node, name, translate)
            self._intakes.append(intake)
            self._connect(inlet_socket, intake)

    def _connect(self, socket: zmq.Socket[bytes], target: Intake | Relay) -> None:
        inlet = Inlet(socket, target.take, target.ready)
        target.resume = inlet.resume
        inlet.resume()
        self._inlets.append(inlet)

    def _socket(self, kind: int, name: str) -> zmq.Socket[bytes]:
        import zmq

        assert self._context is not None
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, self._payload_bytes_max)
        socket.setsockopt(zmq.RCVHWM, _RECEIVED_MAX)
        socket.setsockopt(zmq.SNDHWM, self._settings.zeromq_unsent)
        self._listeners[name].socket = socket
        return socket

    async def stop(self) -> None:
        """Publish what has come in, send what is to go out, and close the sockets."""
        if self._context is None:
            return
        loop = asyncio.get_running_loop()
        for intake in self._intakes:
            intake.stop()
        for _ in range(_DRAINS_MAX):
            unread = [inlet for inlet in self._inlets if not inlet.drain()]
            await self._published()
            if not unread or self._node.failed.done():
                break
        for outlet in self._outlets:
            outlet.close()
        for listener in self.listeners:
            if listener.socket is not None:
                listener.socket.close()
        # Waits for what is on its way to subscribers, which must not hold up the loop.
        await loop.run_in_executor(None, self._context.term)

    async def _published(self) -> None:
        """Wait until all that was submitted is in the log, unless that cannot be."""
        published = asyncio.get_running_loop().create_future()
        self._node.read(lambda: published.set_result(None))
        await asyncio.wait((published, self._node.failed), return_when=asyncio.FIRST_COMPLETED)

    # In.

    def _com(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.com(tag, frames[1], self._owner, packed)]

    def _tech(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return self._rules.tech(tag, frames[1], self._owner, self._node.clock.now_us() // 1000, packed)

    def _decided_com(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.as_it_is(COM | packed, tag, frames[1], self._owner)]

    def _decided_tech(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.as_it_is(TECH | packed, tag, frames[1], self._owner)]

    # Out.

    def deliver(self, message: Broadcast) -> None:
        """Send a message to the components that subscribed to it, on its channel."""
        if not self._outlets:
            return
        tag, dialect = message.tag, self._settings.dialect
        if dialect == "legacy" or (dialect == "auto" and message.channel & PACKED):
            tag = pack_tag_frame(tag, Dialect.LEGACY)
        self._outlets[message.channel & TECH].send(tag, message.body)


def _open(frames: list[bytes]) -> tuple[bytes, int]:
    """The tag of a message, and PACKED if it came so."""
    if len(frames) != 2:
        raise WrongFrameCount(len(frames))
    tag, dialect = unpack_tag_frame(frames[0])
    return tag, PACKED if dialect is Dialect.LEGACY else 0


def _listener(name: str, places: dict[str, Place]) -> ZeroMqListener:
    return ZeroMqListener(places[name], _PURPOSES[name])


_PURPOSES: Final = {
    "com_in_port": "MoniQue components push messages (ZeroMQ)",
    "com_out_port": "MoniQue components subscribe to messages (ZeroMQ)",
    "tech_in_port": "MoniQue components push technical messages (ZeroMQ)",
    "tech_out_port": "MoniQue components subscribe to technical messages (ZeroMQ)",
    "inner_com_in_port": "scheduler-logic pulls what came in (ZeroMQ)",
    "inner_com_out_port": "scheduler-logic pushes what goes out (ZeroMQ)",
    "inner_tech_in_port": "scheduler-logic pulls technical messages that came in (ZeroMQ)",
    "inner_tech_out_port": "scheduler-logic pushes technical messages that go out (ZeroMQ)",
}
