"""Our own protocol: frames by hand, so that the door is asked and not the SDK."""

from __future__ import annotations

from typing import Any

from penstock.engine import commands as c
from penstock.engine.errors import NAMES, Refusal
from tests.conformance.driving import Closing, Door, Refused, Taken, Worker, refusal
from tests.conformance.hosting import WITHIN_S, Hosted
from tests.doors.native.support import RawClient

PORT = "taskflux.port"
_LEASE_MS = {None: None, True: 0, False: 60_000}
"""What a take says of its lease: nothing, the connection's, a time."""


class NativeWorker(Closing, Worker):
    """Takes with a lease of the queue's length, or one bound to the connection."""

    def __init__(self, hosted: Hosted, queue: str, bound: bool | None) -> None:
        self._client = RawClient(hosted.port(PORT))
        self._queue = queue
        self._lease_ms = _LEASE_MS[bound]
        self._waits = False

    def take(self) -> Taken:
        taken = self._ask(0)
        assert len(taken.records) == 1, "there was nothing to take"
        record = taken.records[0]
        return Taken(record.payload, (record.id, taken.token), record.key, str(record.id), record.deliveries)

    def finds_nothing(self) -> None:
        assert self._ask(0).records == []

    def wait(self) -> None:
        self._send(int(WITHIN_S * 1000))
        self._waits = True

    def ack(self, taken: Taken) -> None:
        handled = self._client.call(c.Ack(self._queue, [taken.handle]))
        refuse(handled)
        if handled.lost:
            raise Refused("lost")

    def give_back(self, taken: Taken) -> None:
        handled = self._client.call(c.Return(self._queue, [taken.handle], c.NACK))
        assert not handled.lost

    def leave(self) -> None:
        self._client.close()

    def _send(self, wait_ms: int) -> None:
        self._client.send(c.Take(self._queue, 1, self._lease_ms, wait_ms))

    def _ask(self, wait_ms: int) -> Any:
        if not self._waits:
            self._send(wait_ms)
        self._waits = False
        _, _, answer = self._client.receive()
        refuse(answer)
        return answer


class NativeDoor(Door):
    """The native protocol."""

    name = "native"
    title = "native"
    lease_s = 60.0

    def make_queue(self, queue: str, **limits: Any) -> None:
        self._call(c.CreateQueue(queue, c.QueueSettings(**limits)))

    def delete_queue(self, queue: str) -> None:
        self._call(c.DeleteQueue(queue))

    def put(self, queue: str, payload: bytes, *, key: int = 0, delay_s: float = 0, expires_s: float = 0) -> None:
        options = c.Options(delay_ms=int(delay_s * 1000), expires_ms=int(expires_s * 1000))
        answer = self._call(c.Put(queue, [c.Item(key, payload, options)]))
        if answer.exceptions:
            raise Refused(NAMES[answer.exceptions[0][1]])
        assert answer.count == 1

    def worker(self, queue: str, *, bound: bool | None = None) -> NativeWorker:
        return self._stack.enter_context(NativeWorker(self.hosted, queue, bound))

    def ack_elsewhere(self, queue: str, taken: Taken) -> None:
        self.worker(queue).ack(taken)

    def again(self, worker: Worker, taken: Taken) -> str:
        return refusal(lambda: worker.ack(taken))

    def late(self, worker: Worker, taken: Taken) -> tuple[str, bool]:
        return refusal(lambda: worker.ack(taken)), False

    def _call(self, command: Any) -> Any:
        with RawClient(self.hosted.port(PORT)) as client:
            answer = client.call(command)
        refuse(answer)
        return answer


def refuse(answer: Any) -> None:
    """Raise the word of a refusal."""
    if isinstance(answer, Refusal):
        raise Refused(answer.name)
