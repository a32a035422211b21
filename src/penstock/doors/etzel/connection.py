"""One Etzel client: its requests in, exactly one reply to each out, in the order of the requests.

Requests are numbered as they come. Most become a command, and the reply is written when that is committed; others can
be answered at once, and then wait for their turn. ``awk`` belongs to no request and is written when it is due.

What a client said of a queue, that it subscribes to it and that it sleeps, is kept here for as long as it is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from websockets.datastructures import Headers

from penstock.doors.connection import IN_FLIGHT_MAX
from penstock.doors.etzel import frames
from penstock.doors.etzel.holding import UNREAD_BYTES_MAX, HeldFetches
from penstock.doors.etzel.sleepers import Sleepers
from penstock.doors.listening import Doorkeeper
from penstock.doors.subscribing import SubscriptionMemory
from penstock.doors.visitors import Visitors
from penstock.doors.websocket import Refused, WebSocketConnection
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import Answer, Handled, PutAnswer, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_ETZEL
from penstock.engine.names import DEFAULT_QUEUE
from penstock.node.node import Node
from penstock.wire.etzel import Nok, Request, RequestError, decode_uid, encode_uid, parse_request, queue_name
from penstock.wire.etzel.replies import Awake, NoMessage, Sleeping, Subscribed
from penstock.wire.etzel.requests import Acknowledge, Fetch, Publish, Sleep, Sub

QUEUES_PER_CONNECTION_MAX: Final = 1_000
"""Queues to which one client may subscribe, or on which it may sleep."""
_SUBSCRIBED: Final = 1
_ASLEEP: Final = 2
_BOTH: Final = _SUBSCRIBED | _ASLEEP
_PATH: Final = "/connect"
_GREETING: Final = b"Penstock is here. Etzel clients connect to /connect by WebSocket.\n"


class EtzelConnection(WebSocketConnection):
    """A client of the Etzel protocol."""

    def __init__(
        self,
        node: Node,
        keeper: Doorkeeper,
        sleepers: Sleepers,
        *,
        visitors: Visitors,
        payload_bytes_max: int,
        message_bytes_max: int,
    ) -> None:
        super().__init__(node, keeper, "etzel", message_bytes_max=message_bytes_max, visitors=visitors)
        self._sleepers = sleepers
        self._payload_bytes_max = payload_bytes_max
        self._asked = 0
        """Requests that came."""
        self._said = 0
        """Requests that are answered: the number of the one whose turn it is."""
        self._early: dict[int, bytes] = {}
        """Replies that wait for their turn."""
        self._unanswered: dict[int, Request] = {}
        self._held = HeldFetches()
        self._memory = SubscriptionMemory(keeper)
        self._queues: dict[str, int] = {}
        """What the client said of each queue."""

    # The WebSocket's side.

    def admit(self, path: str, headers: Headers) -> None:
        """Let those in who ask for the one path there is."""
        if path.rstrip("/") == _PATH:
            return
        if path == "/":
            raise Refused(HTTPStatus.OK, _GREETING)
        raise Refused(HTTPStatus.NOT_FOUND, b"There is nothing here.\n")

    def message(self, payload: bytes, text: bool) -> None:
        """Take one request."""
        number = self._asked
        self._asked = number + 1
        if not text:
            self._say(number, frames.nok_frame(Nok.BAD_REQUEST))
            return
        try:
            request = parse_request(payload)
        except RequestError as problem:
            self._say(number, frames.nok_frame(problem.nok))
            return
        _ON_REQUEST[request.__class__](self, number, request)

    def busy(self) -> bool:
        """Whether no further request should be read for now."""
        return self._asked - self._said > IN_FLIGHT_MAX or super().busy()

    def resume_writing(self) -> None:
        """The client reads again: fetches that were held back may go on."""
        super().resume_writing()
        self._fetch_again()

    def gone(self) -> None:
        """The client left: it is woken no more."""
        for queue, said in self._queues.items():
            if said == _BOTH:
                self._sleepers.forget(queue, self)
        self._queues.clear()
        self._memory.clear()

    def _say(self, number: int, frame: bytes) -> None:
        """Write a reply, and those that waited for it; or let it wait for its turn."""
        early = self._early
        if number != self._said:
            early[number] = frame
            return
        if self.is_open:
            self.write(frame)
            while early and (following := early.pop(number + 1, None)) is not None:
                self.write(following)
                number += 1
        self._said = number + 1

    # Requests.

    def _submit(self, number: int, request: Request, op: int, args: Any) -> None:
        self._unanswered[number] = request
        self.submit(Command(op, DOOR_ETZEL, self.owner, 0, 0, c.encode(args), args), number)

    def _on_publish(self, number: int, request: Publish) -> None:
        if len(request.payload) > self._payload_bytes_max:
            self._say(number, frames.nok_frame(Nok.PAYLOAD_TOO_LARGE))
            return
        options = None
        delay_ms, expires_ms, timeout_ms = request.delay_ms, request.expires_ms, request.timeout_ms
        if delay_ms or expires_ms or timeout_ms:
            options = c.Options(delay_ms, expires_ms, lease_ms=timeout_ms, delay_to_tail=delay_ms > 0)
        item = c.Item(request.priority, request.payload, options)
        self._submit(number, request, c.PUT, c.Put(queue_name(request.qname), [item], True))

    def _on_fetch(self, number: int, request: Fetch) -> None:
        if self._held:
            self._held.hold(number, request, 1)
            return
        self._fetch(number, request)

    def _fetch(self, number: int, request: Fetch) -> None:
        # The length of the lease is the message's own, or the queue's.
        self._submit(number, request, c.TAKE, c.Take(queue_name(request.qname), 1, None, 0, True))

    def _on_acknowledge(self, number: int, request: Acknowledge) -> None:
        named = decode_uid(request.uid)
        if named is None or named[0] not in self.node.engine.state.by_uid:
            # A client learns a uid after its queue was made, so a queue that is missing now has gone for good. There is
            # nothing to end, and the reply is the same as if there had been.
            self._say(number, frames.acknowledged_frame(request.uid, request.qname))
            return
        queue_uid, record_id = named
        self._submit(number, request, c.DELETE, c.Delete(DEFAULT_QUEUE, [record_id], True, queue_uid))

    def _on_subscribe(self, number: int, request: Sub) -> None:
        queue = queue_name(request.qname)
        if not self._note(queue, _SUBSCRIBED):
            self._say(number, frames.nok_frame(Nok.TOO_MANY_SUBS))
            return
        self._say(number, frames.queue_frame(Subscribed, request.qname))
        if self._queues[queue] == _BOTH:
            self._lie_down(queue, request.qname)

    def _on_sleep(self, number: int, request: Sleep) -> None:
        # What was asked before comes first: a message that it publishes or fetches decides whether it may sleep.
        self._unanswered[number] = request
        self.node.read(lambda: self._sleep(number, request), self)

    def _sleep(self, number: int, request: Sleep) -> None:
        self._unanswered.pop(number, None)
        if not self.is_open:
            return
        queue = queue_name(request.qname)
        if self._note(queue, _ASLEEP):
            self._say(number, frames.queue_frame(Sleeping, request.qname))
            if self._queues[queue] == _BOTH:
                self._lie_down(queue, request.qname)
        else:
            self._say(number, frames.nok_frame(Nok.TOO_MANY_SUBS))
        if self._reading_paused:
            self._regulate()

    # Sleep.

    def _note(self, queue: str, what: int) -> bool:
        """Remember what the client said of a queue; false if it, or all clients together, named too many."""
        said = self._queues.get(queue)
        if said is None and (len(self._queues) >= QUEUES_PER_CONNECTION_MAX or not self._memory.add(len(queue))):
            return False
        said = said or 0
        self._queues[queue] = said | what
        return True

    def _lie_down(self, queue: str, qname: str) -> None:
        if not self._sleepers.lie_down(queue, self):
            self.awaken(queue, frames.queue_frame(Awake, qname))

    def awaken(self, queue: str, frame: bytes) -> None:
        """There is something to take from a queue on which the client sleeps."""
        self._queues[queue] &= ~_ASLEEP
        if self._early:
            # The reply to its ISLP may be among those that wait; the client shall hear that first.
            self._early[max(self._early)] += frame
        elif self.is_open:
            self.write(frame)

    # The node's answers.

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Say the answer to a request."""
        request = self._unanswered.pop(ref)
        if not self.is_open:
            self.unsent(command, answer)
        elif answer.__class__ is Refusal:
            self._on_refusal(ref, request, answer)
        else:
            _ON_ANSWER[request.__class__](self, ref, request, command, answer)

    def _on_refusal(self, number: int, request: Request, refusal: Refusal) -> None:
        if refusal.code == e.NO_SUCH_QUEUE and isinstance(request, Acknowledge):
            self._say(number, frames.acknowledged_frame(request.uid, request.qname))
            return
        self._say(number, frames.refusal_frame(refusal.code))
        if isinstance(request, Fetch):
            self._fetched()
            queue = queue_name(request.qname)
            if refusal.code == e.NO_SUCH_QUEUE and self._queues.get(queue, 0) & _SUBSCRIBED:
                # Clients of the original do not know that they should sleep now, so they are taken to.
                self._note(queue, _ASLEEP)
                self._lie_down(queue, request.qname)

    def _on_published(self, number: int, request: Publish, command: Command, answer: PutAnswer) -> None:
        if answer.exceptions:
            self._say(number, frames.refusal_frame(answer.exceptions[0][1]))
            return
        frame = frames.PUBLISHED
        if request.wants_uid:
            frame = frames.published_frame(encode_uid(answer.queue_uid, answer.first))
        self._say(number, frame)

    def _on_taken(self, number: int, request: Fetch, command: Command, answer: Taken) -> None:
        if not answer.records:
            self._say(number, frames.queue_frame(NoMessage, request.qname))
            self._fetched()
            return
        record = answer.records[0]
        if self._held.is_before(number) or (self._writing_paused and self.unsent_bytes > UNREAD_BYTES_MAX):
            self.unsent(command, answer)
            self._held.hold(number, request, len(record.payload))
        else:
            uid = encode_uid(answer.queue_uid, record.id)
            self._say(number, frames.message_frame(request.qname, uid, record.deliveries - 1, record.payload))
        self._fetched()

    def _on_acknowledged(self, number: int, request: Acknowledge, _command: Command, _answer: Handled) -> None:
        self._say(number, frames.acknowledged_frame(request.uid, request.qname))

    # Fetches that were held back.

    def _fetched(self) -> None:
        """A fetch has come back; perhaps it was the last that others had to wait for."""
        if self._held.came_back() and not self._writing_paused:
            self._fetch_again()

    def _fetch_again(self) -> None:
        if self._held and not self.closed:
            for number, request in self._held.let_go():
                self._fetch(number, request)


_ON_REQUEST: Final[dict[type, Callable[[EtzelConnection, int, Any], None]]] = {
    Publish: EtzelConnection._on_publish,
    Fetch: EtzelConnection._on_fetch,
    Acknowledge: EtzelConnection._on_acknowledge,
    Sub: EtzelConnection._on_subscribe,
    Sleep: EtzelConnection._on_sleep,
}
_ON_ANSWER: Final[dict[type, Callable[[EtzelConnection, int, Any, Command, Any], None]]] = {
    Publish: EtzelConnection._on_published,
    Fetch: EtzelConnection._on_taken,
    Acknowledge: EtzelConnection._on_acknowledged,
}
"""What is said to each answer that is no refusal."""
