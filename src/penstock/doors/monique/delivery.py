"""Which gateway clients want which messages, and handing these out.

Messages in a row that go to the same clients are one piece of bytes: built once for each dialect, however many clients
there are. At the end of a batch each client gets its pieces in one write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from penstock.doors.websocket import server_frame
from penstock.engine.commands import Broadcast
from penstock.node.node import Node
from penstock.wire.monique.gateway import Pattern, PushedFromMq, encode_reply, patterns_of
from penstock.wire.monique.tags import Dialect

log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1024 * 1024
"""A batch is cut into pieces of about this size, so that the slowness of a client shows between them."""
_AUDIENCES_MAX: Final = 10_000
_AUDIENCE_CLIENTS_MAX: Final = 100_000
"""Clients in all audiences that are remembered; beyond that they are found anew."""


class Subscriber(Protocol):
    """A client of the gateway, as it is seen from here."""

    dialect: Dialect

    def deliver(self, frames: bytes, *, at_once: bool) -> None:
        """Send frames that are ready, at once or at the end of the batch; end the client if it is too slow for them."""

    def broken(self, problem: BaseException) -> None:
        """Frames could not be sent because of an error of the program: end the client."""


class Audience:
    """The clients that get a message, by dialect."""

    __slots__ = ("current", "legacy")

    def __init__(self, clients: Iterable[Subscriber]) -> None:
        everybody = list(clients)
        self.current = [each for each in everybody if each.dialect is Dialect.CURRENT]
        self.legacy = [each for each in everybody if each.dialect is Dialect.LEGACY]


class Subscriptions:
    """The patterns of all clients, and the messages that wait for the end of the batch."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clients: dict[Pattern, dict[Subscriber, None]] = {}
        # Equal audiences are one object, so that it is seen when a message goes where the last one went.
        self._audiences: dict[tuple[str, str], Audience] = {}
        self._same: dict[tuple[Subscriber, ...], Audience] = {}
        self._audience_clients = 0
        self._audience = Audience(())
        self._current: list[bytes] = []
        self._legacy: list[bytes] = []
        self._waiting_bytes = 0

    # Who wants what.

    def add(self, client: Subscriber, patterns: Iterable[Pattern]) -> None:
        """From now on the client gets what matches these patterns."""
        for pattern in patterns:
            self._clients.setdefault(pattern, {})[client] = None
        self.changed()

    def remove(self, client: Subscriber, patterns: Iterable[Pattern]) -> None:
        """These very patterns count no more for the client."""
        for pattern in patterns:
            clients = self._clients.get(pattern)
            if clients is not None:
                clients.pop(client, None)
                if not clients:
                    del self._clients[pattern]
        self.changed()

    def changed(self) -> None:
        """A client wants something else, or wants it in another dialect: find all audiences anew."""
        self._audiences.clear()
        self._same.clear()
        self._audience_clients = 0

    def _audience_of(self, spec: str, type: str) -> Audience:
        clients: dict[Subscriber, None] = {}
        for pattern in patterns_of(spec, type):
            clients.update(self._clients.get(pattern, {}))
        if len(self._audiences) >= _AUDIENCES_MAX or self._audience_clients > _AUDIENCE_CLIENTS_MAX:
            self.changed()
        names = tuple(clients)
        audience = self._same.get(names)
        if audience is None:
            audience = self._same[names] = Audience(names)
            self._audience_clients += len(names)
        self._audiences[spec, type] = audience
        return audience

    # Handing out.

    def deliver(self, message: Broadcast) -> None:
        """Let a message go with this batch to all who want it, once to each."""
        if not self._clients:
            return
        audience = self._audiences.get((message.spec, message.type)) or self._audience_of(message.spec, message.type)
        if audience is not self._audience or self._waiting_bytes > _CHUNK_BYTES:
            self._pass_on(at_once=False)
            self._audience = audience
        if not self._waiting_bytes and (audience.current or audience.legacy):
            self._node.dirty(self)
        if audience.current:
            self._add(self._current, message, Dialect.CURRENT)
        if audience.legacy:
            self._add(self._legacy, message, Dialect.LEGACY)

    def _add(self, waiting: list[bytes], message: Broadcast, dialect: Dialect) -> None:
        try:
            reply = encode_reply(PushedFromMq(message.tag, message.body, dialect))
        except UnicodeDecodeError:
            return  # another door may publish whatever it likes
        frame = server_frame(reply, text=False)
        waiting.append(frame)
        self._waiting_bytes += len(frame)

    def flush(self) -> None:
        """The batch is over: send what waits."""
        self._pass_on(at_once=True)

    def _pass_on(self, *, at_once: bool) -> None:
        if self._waiting_bytes:
            self._waiting_bytes = 0
            for waiting, clients in ((self._current, self._audience.current), (self._legacy, self._audience.legacy)):
                if waiting:
                    frames = waiting[0] if len(waiting) == 1 else b"".join(waiting)
                    waiting.clear()
                    for client in clients:
                        try:
                            client.deliver(frames, at_once=at_once)
                        except Exception as problem:  # one client's error must not keep the message from the others
                            client.broken(problem)

    def answered(self, ref: int, command: object, answer: object) -> None:
        """Nothing is submitted from here."""

    def broken(self, problem: BaseException) -> None:
        """A batch could not be handed out; errors with single clients are handled for each of them."""
        log.error("monique: topic messages could not be handed out", exc_info=problem)
