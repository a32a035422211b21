"""TaskFlux: the current dialect with acknowledgements, over a socket."""

from __future__ import annotations

import socket
from typing import Any

from penstock.wire.taskflux import NEED_DATA, ClientConnection
from penstock.wire.taskflux import messages as m
from tests.conformance.driving import Closing, Door, Refused, Taken, Worker, unsaid_unless
from tests.conformance.hosting import WITHIN_S, Hosted

PORT = "taskflux.port"
ACK_TIMEOUT_S = 60.0

_WORDS: dict[type, str] = {
    m.GenericViolation: "Policy Violation 0",
    m.QueueSizeViolation: "Policy Violation 1",
    m.PayloadSizeViolation: "Policy Violation 2",
    m.KeyRangeViolation: "Policy Violation 3",
}


class Conversation(Closing):
    """One connection after its handshake: a request, its reply."""

    def __init__(self, hosted: Hosted) -> None:
        self._codec = ClientConnection()
        self._socket = socket.create_connection(("127.0.0.1", hosted.port(PORT)), WITHIN_S)
        self.ask(m.AuthorizationRequest())
        self.ask(m.BootstrapRequest())

    def say(self, request: m.Request) -> None:
        """Send a request."""
        self._socket.sendall(self._codec.send(request))

    def hear(self) -> m.Reply:
        """Wait for a reply; raises Refused if it is an error or a violation, ConnectionError if there is none."""
        while (reply := self._codec.next_event()) is NEED_DATA:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the connection was closed")
            self._codec.receive_data(data)
        if type(reply) in _WORDS:
            raise Refused(_WORDS[type(reply)])
        if isinstance(reply, m.ErrorResult | m.ErrorPacket):
            raise Refused(f"Error {int(reply.code)}")
        return reply

    def ask(self, request: m.Request) -> m.Reply:
        """Send a request and wait for its reply."""
        self.say(request)
        return self.hear()

    def leave(self) -> None:
        self._socket.close()


class TaskFluxWorker(Conversation, Worker):
    """Takes one record at a time: the connection is bound to it until it is acknowledged."""

    def __init__(self, hosted: Hosted, queue: str) -> None:
        super().__init__(hosted)
        self._queue = queue.encode()
        self._waits = False

    def take(self) -> Taken:
        reply = self._dequeue()
        assert isinstance(reply, m.DequeueResult), "there was nothing to take"
        return Taken(reply.payload, key=reply.key)

    def finds_nothing(self) -> None:
        assert isinstance(self._dequeue(), m.DequeueEmpty)

    def wait(self) -> None:
        self.say(m.Dequeue(self._queue, int(WITHIN_S * 1000)))
        self._waits = True

    def ack(self, taken: Taken) -> None:
        assert self.ask(m.Acknowledge()) == m.Ok()

    def give_back(self, taken: Taken) -> None:
        assert self.ask(m.NegativeAcknowledge()) == m.Ok()

    def _dequeue(self) -> m.Reply:
        if not self._waits:
            self.say(m.Dequeue(self._queue))
        self._waits = False
        return self.hear()


class TaskFluxDoor(Door):
    """The TaskFlux protocol."""

    name = "taskflux"
    title = "TaskFlux"
    lease_s = ACK_TIMEOUT_S
    lease_is_bound = True

    def make_queue(self, queue: str, **limits: Any) -> None:
        command = m.CreateQueue(
            queue.encode(),
            queue_size_max=limits.get("size_max", m.NO_LIMIT),
            payload_bytes_max=limits.get("payload_bytes_max", m.NO_LIMIT),
            key_range=limits.get("key_range"),
        )
        self._call(command)

    def delete_queue(self, queue: str) -> None:
        self._call(m.DeleteQueue(queue.encode()))

    def put(self, queue: str, payload: bytes, *, key: int = 0, delay_s: float = 0, expires_s: float = 0) -> None:
        unsaid_unless(not delay_s, "delay")
        unsaid_unless(not expires_s, "expires")
        with Conversation(self.hosted) as conversation:
            assert conversation.ask(m.Enqueue(queue.encode(), key, payload)) == m.Ok()
            assert conversation.ask(m.Acknowledge()) == m.Ok()

    def worker(self, queue: str, *, bound: bool | None = None) -> TaskFluxWorker:
        unsaid_unless(bound is not False, "a lease that outlives its connection")
        return self._stack.enter_context(TaskFluxWorker(self.hosted, queue))

    def again(self, worker: Worker, taken: Taken) -> str:
        assert isinstance(worker, TaskFluxWorker)
        worker.say(m.Acknowledge())
        return "no answer"

    def late(self, worker: Worker, taken: Taken) -> tuple[str, bool]:
        try:
            worker.ack(taken)
        except ConnectionError:
            return "connection closed", False
        raise AssertionError("the acknowledgement counted")

    def _call(self, request: m.Request) -> None:
        with Conversation(self.hosted) as conversation:
            assert conversation.ask(request) == m.Ok()
