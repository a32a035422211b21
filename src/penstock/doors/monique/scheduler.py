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
from functools import partial
from typing import Final

from penstock.doors.complaints import Complaints
from penstock.doors.connection import REQUEST_BYTES
from penstock.doors.doorkeeper import Doorkeeper
from penstock.doors.listening import Listener
from penstock.doors.monique.errors import WrongFrameCount
from penstock.doors.monique.peers import ZmtpPeer
from penstock.doors.monique.publishing import COM, PACKED, TECH, Rules
from penstock.doors.monique.receiving import Inlet
from penstock.doors.monique.relaying import Relay
from penstock.doors.monique.spreading import Outlet
from penstock.engine import errors as e
from penstock.engine.answers import Answer
from penstock.engine.commands import Broadcast
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.node.account import IN_FLIGHT
from penstock.node.node import Node
from penstock.node.requests import NOBODY
from penstock.settings.schema import MoniqueSettings
from penstock.wire.monique.errors import MoniqueError
from penstock.wire.monique.tags import Dialect, pack_tag_frame, unpack_tag_frame
from penstock.wire.monique.zmtp import Limits

log = logging.getLogger(__name__)

_IN_FLIGHT_MAX: Final = 4096
"""Messages of one socket that may be on their way to the log; beyond that its peers wait."""
_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
_RETRY_S: Final = 0.1
_TAG_ROOM_BYTES: Final = 64 * 1024
"""What a message may have besides its body."""
_DRAINS_MAX: Final = 100
"""How often, when the node stops, it is looked for more of what components had sent before."""
_TURNS_PER_DRAIN: Final = 3
"""Turns of the loop after which what the system had for us has been read."""
_FOR_LATER: Final = frozenset((e.MEMORY_FULL, e.DISK_FULL, e.NOT_LEADER))
"""Refusals that end by themselves: ZeroMQ has no way to tell them, so its peers wait instead."""


class Intake:
    """Messages from one socket on their way to the log, so many at a time."""

    def __init__(self, node: Node, what: str, translate: Callable[[list[bytes]], list[Command]]) -> None:
        self._node = node
        self._what = what
        self._translate = translate
        self._complaints = Complaints(log)
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
            self._node.account.change(IN_FLIGHT, len(command.body) + REQUEST_BYTES)
            self._node.submit(command, self, 0)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """A message is in the log, or was refused."""
        was_ready = self.ready()
        self._in_flight -= 1
        self._in_flight_bytes -= len(command.body)
        self._node.account.change(IN_FLIGHT, -len(command.body) - REQUEST_BYTES)
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

    def broken(self, problem: BaseException) -> None:
        """The outcome of a message could not be noted; its sender expects no answer."""
        log.error("monique %s: an outcome could not be noted", self._what, exc_info=problem)

    def _retry(self) -> None:
        held, self._held = self._held, deque()
        for command in held:
            self._submit(command)
        if self.ready():
            self.resume()

    def stop(self) -> None:
        """Hold nothing any more."""
        self._stopped = True


class Scheduler:
    """The ports of both channels. Made with the door; ``start`` when the node leads."""

    def __init__(self, settings: MoniqueSettings, payload_bytes_max: int) -> None:
        self._settings = settings
        self._limits = Limits(payload_bytes_max + _TAG_ROOM_BYTES)
        places = {place.port_key.removeprefix("monique."): place for place in settings.places()}
        self.listeners = [
            Listener(places[name], partial(self._make, name), purpose)
            for name, purpose in _PURPOSES.items()
            if name in places
        ]
        """Where components connect."""
        self._intakes: list[Intake] = []
        self._inlets: list[Inlet] = []
        self._outlets: list[Outlet] = []
        self._makers: dict[str, Callable[[Node, Doorkeeper], ZmtpPeer]] = {}

    def _make(self, name: str) -> ZmtpPeer:
        return self._makers[name](self._node, self._keeper)

    def start(self, node: Node, keeper: Doorkeeper, rules: Rules) -> None:
        """Get ready for components; what comes in is published by these rules."""
        self._node, self._keeper, self._rules = node, keeper, rules
        self._owner = node.new_owner()
        for name, translate in (("com", self._com), ("tech", self._tech)):
            self._outlets.append(outlet := Outlet(self._settings.zeromq_unsent))
            self._makers[f"{name}_out_port"] = outlet.make
            entrance = f"{name}_in_port"
            if self._settings.inner:
                relay = Relay()
                self._makers[f"inner_{name}_in_port"] = relay.make
                self._connect(entrance, relay)
                entrance = f"inner_{name}_out_port"
                translate = self._decided_com if name == "com" else self._decided_tech
            self._intakes.append(intake := Intake(node, name, translate))
            self._connect(entrance, intake)

    def _connect(self, name: str, target: Intake | Relay) -> None:
        inlet = Inlet(target.take, target.ready, self._limits)
        target.resume = inlet.resume
        self._makers[name] = inlet.make
        self._inlets.append(inlet)

    async def stop(self) -> None:
        """Publish what has come in, and take nothing more. Peers keep what they have not sent."""
        if not self._makers:
            return
        for intake in self._intakes:
            intake.stop()
        came_bytes = -1
        for _ in range(_DRAINS_MAX):
            for _turn in range(_TURNS_PER_DRAIN):
                await asyncio.sleep(0)
            await self._published()
            came_before, came_bytes = came_bytes, sum(inlet.came_bytes() for inlet in self._inlets)
            is_drained = came_bytes == came_before and all(inlet.is_idle() for inlet in self._inlets)
            if is_drained or self._node.failed.done():
                break
        for inlet in self._inlets:
            inlet.close()

    async def _published(self) -> None:
        """Wait until all that was submitted is in the log, unless that cannot be."""
        published = asyncio.get_running_loop().create_future()
        self._node.read(lambda: published.set_result(None), NOBODY)
        await asyncio.wait((published, self._node.failed), return_when=asyncio.FIRST_COMPLETED)

    # In.

    def _com(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.com(tag, frames[1], self._owner, packed)]

    def _tech(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return self._rules.tech(tag, frames[1], self._owner, self._node.clock.wall_us() // 1000, packed)

    def _decided_com(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.as_it_is(COM | packed, tag, frames[1], self._owner)]

    def _decided_tech(self, frames: list[bytes]) -> list[Command]:
        tag, packed = _open(frames)
        return [self._rules.as_it_is(TECH | packed, tag, frames[1], self._owner)]

    # Out.

    def deliver(self, message: Broadcast) -> None:
        """Send a message to the components that subscribed to it, on its channel."""
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
