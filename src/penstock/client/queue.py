"""A queue as an asynchronous program sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime

from msgspec import UNSET, UnsetType

from penstock.client.errors import NoSuchRecord, Refused
from penstock.client.failures import reason_number, short_failure
from penstock.client.items import (
    ItemLike,
    PutResult,
    command_options,
    put_outcomes,
    put_results,
    queue_changes,
    queue_settings,
    to_command_item,
)
from penstock.client.link import Link
from penstock.client.messages import Leased, Message, Record, handles_of, mark, one_or_many
from penstock.client.protocol import WAIT_SLICE_MS
from penstock.client.subscription import DEFAULT_WINDOW, Subscription
from penstock.client.units import Payload, Seconds, to_bytes, to_ms, to_ms_or_none
from penstock.engine import commands as c
from penstock.engine.answers import AckTaken, Created, Done, Handled, JobStarted, PutAnswer, PutManyAnswer, Taken
from penstock.engine.views import STATE_NAMES, EventView, Page, QueueView, RecordView
from penstock.wire.native import messages as m

KeyRange = tuple[int, int]
"""Smallest and greatest key, both included."""


class Queue:
    """A queue, by name; whether it exists, the node knows. Got from ``client.queue(name)``."""

    __slots__ = ("_link", "name")

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self.name = name

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    # Producing.

    async def put(
        self,
        payload: Payload,
        key: int = 0,
        *,
        delay: Seconds = 0,
        expires: Seconds | datetime = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        lease: Seconds = 0,
        create: bool = False,
    ) -> PutResult:
        """Put a message. It is durable when this returns.

        key: its priority, smallest first. delay, at: not to be taken before then. expires: dropped if it still waits
        after so long, or at that moment. headers: strings by name. dedup_key: a repeat within the queue's window adds
        nothing and tells the first one's id. lease: how long takes of this message last. create: make the queue if it
        is missing.
        """
        options = command_options(delay, expires, at, headers, dedup_key, lease)
        item = c.Item(key, to_bytes(payload), options)
        answer = await self._link.call(c.Put(self.name, [item], create), PutAnswer)
        if answer.exceptions:
            return put_results(answer, 1)[0]
        return PutResult(answer.first, False)

    async def put_many(self, items: Iterable[ItemLike]) -> list[PutResult]:
        """Put messages, all or none. A refusal names the first that is refused by its ``position``."""
        command_items = [to_command_item(item) for item in items]
        answer = await self._link.call(c.PutMany([(self.name, command_items)]), PutManyAnswer)
        return put_results(answer.puts[0], len(command_items))

    async def put_each(self, items: Iterable[ItemLike], *, create: bool = False) -> list[PutResult | Refused]:
        """Put messages in one request, each judged by itself: in their order, a result or the refusal for each."""
        command_items = [to_command_item(item) for item in items]
        answer = await self._link.call(c.Put(self.name, command_items, create), PutAnswer)
        return put_outcomes(answer, len(command_items))

    # Consuming.

    async def take(
        self, *, wait: Seconds | None = 0, lease: Seconds | None = None, final: bool = False
    ) -> Message | None:
        """Take the first message; None if there is none, after having waited for one.

        wait: how long; None waits for ever. lease: how long it is yours; None leaves it to the message and the queue, 0
        binds it to the connection. final: it ends at once, without a lease.
        """
        messages = await self.take_many(1, wait=wait, lease=lease, final=final)
        return messages[0] if messages else None

    async def take_many(
        self, count: int, *, wait: Seconds | None = 0, lease: Seconds | None = None, final: bool = False
    ) -> list[Message]:
        """Take up to ``count`` messages in order; waits only while there is none at all. See ``take``."""
        lease_ms = to_ms_or_none(lease)
        patience = _Patience(wait)
        while True:
            wait_ms = patience.slice_ms()
            request = c.Take(self.name, count, lease_ms, wait_ms, False, final)
            taken = await self._link.call(request, Taken, wait_seconds=wait_ms / 1000)
            if taken.records or patience.is_over:
                return self._messages(taken, settled=final)

    async def ack_and_take(
        self, messages: Leased | Iterable[Leased], *, wait: Seconds | None = 0, lease: Seconds | None = None
    ) -> Message | None:
        """Acknowledge, and take the next message, in one request.

        A lease that had ended before raises nothing here, since the next message is taken all the same: it is noted as
        ``lost`` on the message that was to be acknowledged.
        """
        taken = await self.ack_and_take_many(one_or_many(messages), 1, wait=wait, lease=lease)
        return taken[0] if taken else None

    async def ack_and_take_many(
        self, messages: Iterable[Leased], count: int, *, wait: Seconds | None = 0, lease: Seconds | None = None
    ) -> list[Message]:
        """Acknowledge, and take up to ``count`` messages, in one request. See ``ack_and_take``."""
        leases, handles = handles_of(messages)
        patience = _Patience(wait)
        # The wait is left to a take of its own: a repeat of it, after a lost connection, finds what it took before.
        answer = await self._link.call(c.AckTake(self.name, handles, count, to_ms_or_none(lease)), AckTaken)
        mark(leases, answer.acked)
        if answer.taken.records or patience.is_over:
            return self._messages(answer.taken)
        return await self.take_many(count, wait=patience.left(), lease=lease)

    def subscribe(self, *, window: int = DEFAULT_WINDOW, lease: Seconds | None = None) -> Subscription:
        """Messages as they come, up to ``window`` at a time without an ack: an async context manager and iterator."""
        return Subscription(self._link, self.name, window, to_ms_or_none(lease))

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.subscribe().__aiter__()

    def _messages(self, taken: Taken, *, settled: bool = False) -> list[Message]:
        messages = [Message(self._link, self.name, taken.token, delivery) for delivery in taken.records]
        if settled:
            for message in messages:
                message.settled = True
        return messages

    # Settling what was taken, many at a time.

    async def ack(self, messages: Iterable[Leased]) -> Handled:
        """Acknowledge messages (or handles) in one request: how many, and the positions of leases that had ended."""
        leases, handles = handles_of(messages)
        return mark(leases, await self._link.call(c.Ack(self.name, handles), Handled))

    async def nack(self, messages: Iterable[Leased], *, delay: Seconds = 0, failure: str = "") -> Handled:
        """The work on these failed: they go back to their places, or come back after ``delay``.

        failure: what failed and why, for people; at most 1 KiB of it is kept.
        """
        return await self._give_back(messages, c.NACK, delay, failure)

    async def release(self, messages: Iterable[Leased], *, delay: Seconds = 0) -> Handled:
        """Give these back unharmed."""
        return await self._give_back(messages, c.RELEASE, delay)

    async def extend(self, messages: Iterable[Leased], lease: Seconds) -> Handled:
        """Let these leases last ``lease`` from now."""
        leases, handles = handles_of(messages)
        handled = await self._link.call(c.Extend(self.name, handles, to_ms(lease)), Handled)
        return mark(leases, handled, settled=False)

    async def _give_back(self, messages: Iterable[Leased], how: int, delay: Seconds, failure: str = "") -> Handled:
        leases, handles = handles_of(messages)
        request = c.Return(self.name, handles, how, to_ms(delay), 0, short_failure(failure))
        return mark(leases, await self._link.call(request, Handled))

    # Looking.

    async def peek(self, count: int = 1) -> list[Record]:
        """The records that would be taken next, untouched."""
        views = await self._link.call(m.Peek(self.name, count), list[RecordView])
        return [Record.of(self.name, view) for view in views]

    async def get(self, id: int) -> Record:
        """One record by its id, in whatever state."""
        return Record.of(self.name, await self._link.call(m.Get(self.name, id), RecordView))

    async def browse(
        self, *, state: str | None = None, key_range: KeyRange | None = None, page: int = 100
    ) -> AsyncIterator[Record]:
        """All records in the order of their ids, of one state or key range if asked for, read page by page."""
        state_number = None if state is None else STATE_NAMES.index(state)
        cursor = 0
        while True:
            request = m.Browse(self.name, state_number, key_range, cursor, page)
            answer = await self._link.call(request, Page)
            for view in answer.records:
                yield Record.of(self.name, view)
            cursor = answer.cursor
            if not cursor:
                return

    async def history(self, id: int) -> list[EventView]:
        """The life of one message, also after it ended, as far back as the journal is kept: its last 10,000 events.

        ``kind_name``, ``reason_name`` and ``door_name`` of an event say in words what the numbers mean.
        """
        return await self._link.call(m.History(self.name, id), list[EventView])

    async def info(self) -> QueueView:
        """The queue's settings and figures."""
        return await self._link.call(m.ShowQueue(self.name), QueueView)

    # Changing records.

    async def edit(self, id: int, *, key: int | None = None, delay: Seconds | None = None) -> None:
        """Change the key or the delay of a record that waits."""
        await self._link.call(c.Edit(self.name, id, key, to_ms_or_none(delay)), Done)

    async def delete(self, ids: int | Iterable[int]) -> Handled:
        """End records in any state, whoever holds them. A single id that is not there raises ``NoSuchRecord``."""
        return self._check_one(ids, await self._link.call(c.Delete(self.name, _listed(ids)), Handled))

    async def move(self, ids: int | Iterable[int], target: str) -> Handled:
        """Move waiting or buried records to another queue. A single id that is not there raises ``NoSuchRecord``."""
        return self._check_one(ids, await self._link.call(c.Move(self.name, _listed(ids), target), Handled))

    async def bury(self, ids: int | Iterable[int], *, failure: str = "") -> Handled:
        """Set records aside in any state, as an operator. A single id that is not there raises ``NoSuchRecord``.

        failure: why, for people; at most 1 KiB of it is kept.
        """
        handles = [(record_id, 0) for record_id in _listed(ids)]
        request = c.Bury(self.name, handles, short_failure(failure))
        return self._check_one(ids, await self._link.call(request, Handled))

    async def kick(self, ids: int | Iterable[int] = (), *, count: int = 0) -> int:
        """Make buried or delayed records ready: those named, or the first ``count`` buried ones. Tells how many."""
        return (await self._link.call(c.Kick(self.name, _listed(ids), count), Done)).count

    async def redrive(
        self,
        target: str | None = None,
        *,
        key_range: KeyRange | None = None,
        reason: str | int = 0,
        count_max: int = 0,
        rate_per_s: int = 0,
        new_key: int | None = None,
    ) -> int:
        """Move the records that match, step by step, to ``target`` or back to where each came from.

        reason: only dead letters with this reason, such as ``nack``; 0 for any.

        Returns the number of the job that does it; ``client.jobs()`` tells how far it is.
        """
        request = c.Redrive(self.name, target, key_range, reason_number(reason), count_max, rate_per_s, new_key)
        return (await self._link.call(request, JobStarted)).job

    async def purge(self) -> int:
        """End all ready and delayed records. Tells how many."""
        return (await self._link.call(c.Purge(self.name), Done)).count

    def _check_one(self, ids: int | Iterable[int], handled: Handled) -> Handled:
        if isinstance(ids, int) and handled.lost:
            raise NoSuchRecord(f"{self.name!r} has no such record: {ids}")
        return handled

    # The queue itself.

    async def create(
        self,
        *,
        implementation: str = "h4",
        size_max: int | None = None,
        payload_bytes_max: int | None = None,
        key_range: KeyRange | None = None,
        descending: bool | None = None,
        lease: Seconds | None = None,
        deliveries_max: int | None = None,
        dead_letter: str | None = None,
        expires: Seconds | None = None,
        dead_letter_expired: bool | None = None,
        dedup_window: Seconds | None = None,
        dedup_keys_max: int | None = None,
        if_absent: bool = False,
    ) -> Created:
        """Make the queue. What is None takes the node's default; with ``if_absent`` an equal one will do.

        implementation: ``h4`` or ``qa`` (which needs a key_range). size_max, payload_bytes_max: limits. descending:
        greatest key first. lease: the default lease. deliveries_max: after so many a message becomes a dead letter, in
        the queue ``dead_letter``. expires: the default expiry; dead_letter_expired sends expired ones there too.
        dedup_window, dedup_keys_max: how long and how many deduplication keys are remembered.
        """
        settings = queue_settings(
            implementation,
            {
                "size_max": size_max,
                "payload_bytes_max": payload_bytes_max,
                "key_range": key_range,
                "descending": descending,
                "lease": lease,
                "deliveries_max": deliveries_max,
                "dead_letter": dead_letter,
                "expires": expires,
                "dead_letter_expired": dead_letter_expired,
                "dedup_window": dedup_window,
                "dedup_keys_max": dedup_keys_max,
            },
        )
        return await self._link.call(c.CreateQueue(self.name, settings, if_absent), Created)

    async def set(
        self,
        *,
        size_max: int | UnsetType | None = UNSET,
        payload_bytes_max: int | UnsetType | None = UNSET,
        lease: Seconds | UnsetType = UNSET,
        deliveries_max: int | UnsetType = UNSET,
        dead_letter: str | UnsetType | None = UNSET,
        expires: Seconds | UnsetType = UNSET,
        dead_letter_expired: bool | UnsetType = UNSET,
        dedup_window: Seconds | UnsetType = UNSET,
        dedup_keys_max: int | UnsetType = UNSET,
    ) -> None:
        """Change settings; what is not said stays. None takes a limit or the dead-letter queue away."""
        changes = queue_changes(
            {
                "size_max": size_max,
                "payload_bytes_max": payload_bytes_max,
                "lease": lease,
                "deliveries_max": deliveries_max,
                "dead_letter": dead_letter,
                "expires": expires,
                "dead_letter_expired": dead_letter_expired,
                "dedup_window": dedup_window,
                "dedup_keys_max": dedup_keys_max,
            }
        )
        await self._link.call(c.ChangeQueue(self.name, changes), Done)

    async def drop(self) -> None:
        """Delete the queue with all it holds."""
        await self._link.call(c.DeleteQueue(self.name), Done)

    async def pause(self) -> None:
        """Stop takes; puts go on."""
        await self._link.call(c.Pause(self.name, True), Done)

    async def resume(self) -> None:
        """Let takes go on."""
        await self._link.call(c.Pause(self.name, False), Done)


def _listed(ids: int | Iterable[int]) -> list[int]:
    return [ids] if isinstance(ids, int) else list(ids)


class _Patience:
    """How long a take still waits; the wait is asked of the node in slices."""

    __slots__ = ("_time", "_until")

    def __init__(self, wait: Seconds | None) -> None:
        self._time = asyncio.get_running_loop().time
        self._until = None if wait is None else self._time() + to_ms(wait) / 1000

    def left(self) -> float | None:
        """Seconds left; None is for ever."""
        return None if self._until is None else max(0.0, self._until - self._time())

    def slice_ms(self) -> int:
        """The wait to ask for in the next request."""
        left = self.left()
        return WAIT_SLICE_MS if left is None else min(WAIT_SLICE_MS, round(left * 1000))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to ask for."""
        return self._until is not None and self._until - self._time() < 0.001
