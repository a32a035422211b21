"""The whole history of a cluster, raw and in order: for programs that keep tables of it.

Blocking, on one socket of its own, since its pieces are large and its readers have nothing else to do: the next piece
is asked for before the last one is looked at. Everything here only reads, so whatever fails is simply asked again, of
the next endpoint if need be.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from types import TracebackType
from typing import Any, Final

from penstock.client.endpoints import Endpoint, parse_url
from penstock.client.errors import BadAnswer, ConnectionLost, HandshakeRefused, refused
from penstock.client.protocol import Call, Session
from penstock.engine.errors import NOT_LEADER, STOPPING, Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.errors import NativeError

_RECEIVE_BYTES: Final = 1024 * 1024
_RETRY_EVERY_S: Final = 0.2
_ANSWER_WITHIN_S: Final = 60.0
_ELSEWHERE: Final = (NOT_LEADER, STOPPING)


class HistoryReader:
    """Reads the history through any node of a cluster. Use it in a ``with`` block; not from two threads at once."""

    def __init__(self, url: str, *, connect_timeout: float = 5.0, retry_timeout: float = 30.0) -> None:
        self._endpoints = parse_url(url)
        self._connect_timeout = connect_timeout
        self._retry_timeout = retry_timeout
        self._session = Session(0, "history")
        self._socket: socket.socket | None = None
        self._reason = ""
        self._turn = 0

    def __enter__(self) -> HistoryReader:
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

    def reach(self, after: int = -1, wait_seconds: float = 0.0) -> m.Reach:
        """How far the history reaches; waits for an entry after ``after`` if that is asked for."""
        answer: m.Reach = self._ask(m.Latest(after, round(wait_seconds * 1000)))
        return answer

    def queue_names(self) -> dict[int, str]:
        """The names of queues by uid, also of queues that were deleted lately."""
        return {queue.uid: queue.name for queue in self._ask(m.QueueNames())}

    def find_time(self, time_us: int) -> int:
        """The first entry that was stamped at a time or later; one behind the last if there is none."""
        answer: m.IndexFound = self._ask(m.FindTime(max(0, time_us)))
        return answer.index

    def entries(self, indexes: list[int]) -> dict[int, bytes]:
        """Single entries by index; those that are gone are missing."""
        found: dict[int, bytes] = {}
        start = 0
        while start < len(indexes):
            some = indexes[start : start + m.ENTRIES_PER_READ_MAX]
            answer: m.EntriesRead = self._ask(m.ReadEntries(some))
            found |= {index: entry for index, entry in zip(some, answer.entries, strict=False) if entry is not None}
            start += len(answer.entries)
        return found

    def pieces(
        self, first_index: int, last_index: int, *, bytes_max: int = m.PIECE_BYTES_MAX, with_log: bool = True
    ) -> Iterator[m.JournalPiece]:
        """The history of these entries, both included, piece by piece. Raises ``HistoryGone`` where it begins later."""
        call: Call | None = None
        while first_index <= last_index:
            request = m.ReadJournal(first_index, last_index, bytes_max, with_log)
            piece: m.JournalPiece = self._ask(request, call)
            first_index = piece.last_index + 1
            call = self._send_ahead(m.ReadJournal(first_index, last_index, bytes_max, with_log), last_index)
            yield piece

    # The conversation.

    def _send_ahead(self, request: m.ReadJournal, last_index: int) -> Call | None:
        if request.first_index > last_index or self._socket is None:
            return None
        call = self._session.call(request, self)
        try:
            self._socket.sendall(call.frame)
        except OSError as error:
            self._lose(str(error))
            return None
        return call

    def _ask(self, request: Any, call: Call | None = None) -> Any:
        """Ask until there is an answer, or nobody can be reached for too long."""
        give_up_s = time.monotonic() + self._retry_timeout
        while True:
            try:
                if self._socket is None:
                    self._connect()
                    call = None
                if call is None:
                    call = self._session.call(request, self)
                    self._live().sendall(call.frame)
                answer = self._receive(call)
                if not isinstance(answer, Refusal):
                    return answer
                if answer.code not in _ELSEWHERE:
                    raise refused(answer)
                self._lose(answer.detail)
            except (OSError, NativeError) as error:
                self._lose(str(error) or type(error).__name__)
            call = None
            if time.monotonic() > give_up_s:
                raise ConnectionLost(", ".join(map(str, self._endpoints)), self._reason)
            time.sleep(_RETRY_EVERY_S)

    def _receive(self, call: Call) -> Any:
        while True:
            data = self._live().recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            for answered, _, value in self._session.receive(data):
                if answered is call:
                    if isinstance(value, BadAnswer):
                        raise value
                    return value

    def _live(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def _connect(self) -> None:
        endpoint: Endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        self._session.calls.clear()
        connection = socket.create_connection(endpoint, self._connect_timeout)
        try:
            connection.sendall(self._session.begin())
            while not self._session.shake(data := connection.recv(_RECEIVE_BYTES)):
                if not data:
                    raise ConnectionResetError("the node closed the connection in the handshake")
            connection.settimeout(_ANSWER_WITHIN_S)
        except HandshakeRefused:
            connection.close()
            raise
        except BaseException:
            with closing(connection):
                raise
        self._socket = connection

    def _lose(self, reason: str) -> None:
        self._reason = reason
        self.close()
