"""A connection for programs that have nothing else to do than to wait for it: one blocking socket, no event loop.

Requests are sent without waiting, several at a time if their sender wants, and their answers are received later. What a
lost connection leaves without an answer is sent again, to the next endpoint if need be: so only requests whose repeat
does no harm belong here. That is so for all that only reads, and for commands that name what they do once and for all,
as Stage and Publish do. Others need a link with a producer number: by that the node knows a repeat.
"""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any, Final

from penstock.client.endpoints import Endpoint, parse_url
from penstock.client.errors import (
    BadAnswer,
    ConnectionLost,
    FrameTooLarge,
    HandshakeRefused,
    OutcomeUnknown,
    PenstockError,
    RequestTooLarge,
)
from penstock.client.protocol import ANSWER_BYTES_MAX, Call, Session
from penstock.engine.errors import NOT_LEADER, OUTCOME_UNKNOWN, STOPPING, Refusal
from penstock.wire.native.errors import NativeError

_RECEIVE_BYTES: Final = 1024 * 1024
_RETRY_EVERY_S: Final = 0.2
_ANSWER_WITHIN_S: Final = 60.0
_REPEATED: Final = (NOT_LEADER, STOPPING, OUTCOME_UNKNOWN)
"""Refusals that ask for another try, with another node or another connection."""


class BlockingLink:
    """Requests and answers over a connection that is made when it is needed, and made again when it breaks.

    Use it in a ``with`` block; not from two threads at once. Times in seconds; ``retry_timeout`` is how long there may
    be no answer at all while the connection is made again and again. A ``producer`` number above 0 is drawn at random;
    each costs the node a place among those whose answers it keeps. ``frame_bytes_max`` is the longest answer that is
    read.
    """

    def __init__(
        self,
        url: str,
        *,
        client: str = "",
        producer: int = 0,
        connect_timeout: float = 5.0,
        retry_timeout: float = 30.0,
        frame_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self._endpoints = parse_url(url)
        self._connect_timeout = connect_timeout
        self._retry_timeout = retry_timeout
        self._session = Session(producer, client, frame_bytes_max)
        self._socket: socket.socket | None = None
        self._reason = ""
        self._turn = 0

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._session.calls)

    def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer, which may be a ``Refusal``. Nothing else may be in flight."""
        return self.ask_telling(request)[1]

    def ask_telling(self, request: Any) -> tuple[Call, Any]:
        """As ``ask``; also gives the call, which tells whether it was repeated."""
        assert not self.in_flight
        self.send(request)
        (answered,) = self.receive()
        return answered

    def send(self, request: Any, waiter: Any = None) -> Call:
        """Send a request; its answer comes out of ``receive`` with this call, which has ``waiter`` in it."""
        try:
            call = self._session.call(request, waiter or self)
        except RequestTooLarge:
            if self._session.was_welcome:
                raise
            self._connect_in_time()  # the node says how long a request may be
            call = self._session.call(request, waiter or self)
        if self._socket is None:
            call.outstanding = False
            return call
        try:
            self._socket.sendall(call.frame)
        except OSError as error:
            self._lose(str(error))
        return call

    def receive(self) -> list[tuple[Call, Any]]:
        """Wait for answers, at least one. Raises ``ConnectionLost`` or ``OutcomeUnknown`` when nobody answers."""
        assert self.in_flight
        give_up_s = time.monotonic() + self._retry_timeout
        while True:
            try:
                connection = self._socket or self._connect()
                data = connection.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError("the node closed the connection")
                if answered := self._take(data):
                    return answered
            except (OSError, NativeError) as error:
                self._lose(str(error) or type(error).__name__)
            if self._socket is None:
                if time.monotonic() > give_up_s:
                    raise self._given_up(next(iter(self._session.calls.values())))
                time.sleep(_RETRY_EVERY_S)

    def _connect_in_time(self) -> None:
        """Connect, within the time that there is for that."""
        give_up_s = time.monotonic() + self._retry_timeout
        while self._socket is None:
            try:
                self._connect()
            except (OSError, NativeError) as error:
                self._reason = str(error) or type(error).__name__
                if time.monotonic() > give_up_s:
                    raise ConnectionLost(", ".join(map(str, self._endpoints)), self._reason) from error
                time.sleep(_RETRY_EVERY_S)

    def _take(self, data: bytes) -> list[tuple[Call, Any]]:
        answered: list[tuple[Call, Any]] = []
        sent_on = ""
        for call, _, value in self._session.receive(data):
            if isinstance(value, FrameTooLarge):
                self.close()
                self._session.lost()
            if isinstance(value, PenstockError):
                raise value
            assert call is not None
            if isinstance(value, Refusal) and value.code in _REPEATED:
                self._session.keep(call, value, time.monotonic())
                call.doubtful |= value.code == OUTCOME_UNKNOWN
                sent_on = value.detail or value.name
            else:
                answered.append((call, value))
        if sent_on:
            self._lose(sent_on)
        return answered

    def _connect(self) -> socket.socket:
        endpoint: Endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        connection = socket.create_connection(endpoint, self._connect_timeout)
        try:
            # The end of a request must not wait until the other side has acknowledged its beginning.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(self._session.begin())
            while not self._session.shake(data := connection.recv(_RECEIVE_BYTES)):
                if not data:
                    raise ConnectionResetError("the node closed the connection in the handshake")
            connection.settimeout(_ANSWER_WITHIN_S)
            self._say_hello(connection)
        except HandshakeRefused as error:
            connection.close()
            raise HandshakeRefused(error.reason, str(endpoint)) from None
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        connection.sendall(self._session.repeat(time.monotonic()))
        return connection

    def _say_hello(self, connection: socket.socket) -> None:
        """Tell the node whose requests these are, and learn its limits; both before the first of them is sent."""
        hello = self._session.hello(self)
        try:
            connection.sendall(hello.frame)
            while hello.number in self._session.calls:
                if not (data := connection.recv(_RECEIVE_BYTES)):
                    raise ConnectionResetError("the node closed the connection after the handshake")
                for _, _, value in self._session.receive(data):
                    if isinstance(value, BadAnswer):
                        raise value
                    if isinstance(value, Refusal):
                        raise ConnectionResetError(value.detail or value.name)
        finally:
            self._session.calls.pop(hello.number, None)

    def _lose(self, reason: str) -> None:
        self._reason = reason
        if self._socket is None:
            return
        self.close()
        dropped, _ = self._session.lost()
        if dropped:
            raise self._given_up(dropped[0])

    def _given_up(self, call: Call) -> PenstockError:
        if call.is_command and call.doubtful:
            return OutcomeUnknown(call.name, call.number, self._reason)
        return ConnectionLost(", ".join(map(str, self._endpoints)), self._reason)
