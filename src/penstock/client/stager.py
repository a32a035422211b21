"""Writing a batch exactly once, for programs that block: stage in parts, several under way at a time, then publish.

A part is named by (query, batch, partition, attempt, part), and a batch is published once. So everything here can be
sent again after a lost connection, and a program that ended in the middle can begin its batch anew under other numbers
of attempts: whatever of it gets to be published, is so once and whole.

A query of one batch says that it is its last, and the node does not remember it. What that memory is good for, the
repeat of a publication whose answer was lost, then goes by the producer's number instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

from penstock.client.blocking import BlockingLink
from penstock.client.errors import OutcomeUnknown, QueueExists, Refused, refused
from penstock.engine import commands as c
from penstock.engine.answers import Published
from penstock.engine.errors import BATCH_NOT_STAGED, NO_SUCH_QUEUE, Refusal
from penstock.wire.native import messages as m

PARTS_IN_FLIGHT_MAX: Final = 4
"""Enough that the node never waits for the next part, and few enough that none waits long."""

Puts = list[tuple[str, list[c.Item]]]
"""Items by queue, in the wire's form."""
Explain = Callable[[Refused], Exception]
"""Says what to raise for the refusal of a part; its ``position`` is that of the item, counted over all of the part."""


class Stager:
    """One batch of a query on its way. Use it in a ``with`` block; not from two threads at once.

    ``is_last`` tells that no other batch of the query follows, and must be the same for all who write this one.
    """

    def __init__(self, url: str, query: str, batch: int, *, is_last: bool = False, retry_timeout: float = 30.0) -> None:
        self.query = query
        self.batch = batch
        self.is_last = is_last
        self._url = url
        self._retry_timeout = retry_timeout
        self._link = BlockingLink(url, retry_timeout=retry_timeout)

    def __enter__(self) -> Stager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name."""
        answer = self._answer(m.ShowQueue(name))
        if isinstance(answer, Refusal):
            if answer.code != NO_SUCH_QUEUE:
                raise refused(answer)
            return False
        return True

    def create_queue(self, name: str) -> None:
        """Make a queue with default settings, unless one of that name is there by now."""
        answer = self._answer(c.CreateQueue(name, c.QueueSettings(), if_absent=True))
        if isinstance(answer, Refusal) and answer.code != QueueExists.code:
            raise refused(answer)

    def stage(self, partition: int, attempt: int, part: int, puts: Puts, explain: Explain) -> None:
        """Send a part. It is staged after ``flush``; if it is refused, this or a later call raises what it means."""
        while self._link.in_flight >= PARTS_IN_FLIGHT_MAX:
            self._settle()
        self._link.send(c.Stage(self.query, self.batch, partition, attempt, part, puts, self.is_last), explain)

    def flush(self) -> None:
        """Wait until all that was sent is staged."""
        while self._link.in_flight:
            self._settle()

    def publish(self, attempts: Iterable[tuple[int, int]], records: int) -> Published:
        """Make (partition, attempt) pairs visible, which must have exactly so many records. Tells if it was the first
        time."""
        command = c.Publish(self.query, self.batch, list(attempts), records, self.is_last)
        answer = self._publish_last(command) if self.is_last else self._answer(command)
        if isinstance(answer, Refusal):
            raise refused(answer)
        assert isinstance(answer, Published)
        return answer

    def abort(self) -> None:
        """Drop what is staged for the batch."""
        answer = self._answer(c.Abort(self.query, self.batch))
        if isinstance(answer, Refusal):
            raise refused(answer)

    def _publish_last(self, command: c.Publish) -> Any:
        # A link of its own: only this command needs a producer, and the node has room for some thousands of them.
        self.flush()
        producer = 1 + secrets.randbelow(c.INT64_MAX)
        with BlockingLink(self._url, producer=producer, retry_timeout=self._retry_timeout) as link:
            call, answer = link.ask_telling(command)
        if isinstance(answer, Refusal) and answer.code == BATCH_NOT_STAGED and call.doubtful:
            # Either it was never there, or it was published by the first try and the node has forgotten the producer.
            reason = f"it was repeated after a lost connection, and then {answer.detail}"
            raise OutcomeUnknown(call.name, call.number, reason)
        return answer

    def _answer(self, request: Any) -> Any:
        self.flush()
        return self._link.ask(request)

    def _settle(self) -> None:
        for call, answer in self._link.receive():
            if isinstance(answer, Refusal):
                explain: Explain = call.waiter
                raise explain(refused(answer, atomic=True))
