"""Records that come back: nack, release, timeouts, lost owners; and what follows: waiting again, dead letters, expiry.

The charter of outcomes, each of which the tests hold against this file:

    outcome                                         counter        then
    take                                            deliveries+1   leased
    nack                                            failures+1     ready, or delayed if a delay is given
    disconnect, ack timeout, new term, release      releases+1     ready, or delayed if a delay is given
    lease deadline                                  timeouts+1     ready
    taken but never written to the socket           deliveries−1   ready

On each return: a record whose time is over expires; one whose deliveries reached the maximum is dead-lettered; both in
the same entry.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Handled
from penstock.engine.commands import FAILURE_BYTES_MAX, NACK, RULES_OF_NAMES, UNSENT, Extend, Return
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.queue import LeaseGroup, Queue
from penstock.engine.records import (
    BURIED,
    DELAYED,
    FAILURE_OFFSET_BITS,
    NO_EXTRAS,
    NO_TRIES,
    READY,
    Extras,
    Lease,
    Record,
    Tries,
)
from penstock.engine.state import State
from penstock.engine.timers import DELAY_END, EXPIRY, LEASE_END
from penstock.engine.views import Origin


class Failure(NamedTuple):
    """What failed and why, as the holder says, and where the text lies in the entry: (offset, length)."""

    text: str
    place: tuple[int, int]


_REASON_OF_RETURN = {1: j.REASON_NACK, 2: j.REASON_RELEASE, 3: j.REASON_UNSENT}


def held(queue: Queue, record_id: int, token: int) -> Record | None:
    """The record, if it is leased under this token."""
    record = queue.get(record_id)
    return record if record is not None and record.lease is not None and record.lease.token == token else None


def failure_of(st: State, text: str) -> Failure | Refusal:
    """The failure that the command tells of; a text that is too long is refused."""
    data = text.encode()
    if len(data) > FAILURE_BYTES_MAX:
        return Refusal(e.BAD_COMMAND, f"the text of a failure has more than {FAILURE_BYTES_MAX} bytes")
    return Failure(text, st.locate(data) if data else (0, 0))


def give_back(st: State, args: Return) -> Answer:
    """Give leased records back."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    if args.failure and args.how != NACK:
        return Refusal(e.BAD_COMMAND, "only a nack has the text of a failure")
    failure = failure_of(st, args.failure)
    if isinstance(failure, Refusal):
        return failure
    how, delay_ms = args.how, args.delay_ms
    told = failure if how == NACK else None
    reason = args.reason or _REASON_OF_RETURN[how]
    lost = []
    for position, (record_id, token) in enumerate(args.handles):
        record = held(queue, record_id, token)
        if record is None:
            lost.append(position)
            continue
        tries = record.tries or NO_TRIES
        if how == NACK:
            tries = msgspec.structs.replace(tries, failures=tries.failures + 1)
        elif how == UNSENT:
            tries = msgspec.structs.replace(tries, deliveries=tries.deliveries - 1)
        else:
            tries = msgspec.structs.replace(tries, releases=tries.releases + 1)
        come_back(st, queue, record, tries, reason, delay_ms, None, told)
    return Handled(len(args.handles) - len(lost), lost)


def release_for(st: State, queue: Queue, record: Record, reason: int) -> None:
    """Its holder went away: the record comes back with releases+1."""
    tries = record.tries or NO_TRIES
    come_back(st, queue, record, msgspec.structs.replace(tries, releases=tries.releases + 1), reason, 0)


def time_out(st: State, queue: Queue, record: Record) -> None:
    """Its lease is over: the record comes back with timeouts+1, to its place or to the tail as the lease said."""
    assert record.lease is not None
    tries = record.tries or NO_TRIES
    place = queue.draw_place() if record.lease.to_tail else record.place
    come_back(
        st, queue, record, msgspec.structs.replace(tries, timeouts=tries.timeouts + 1), j.REASON_LEASE_TIMEOUT, 0, place
    )


def come_back(
    st: State,
    queue: Queue,
    record: Record,
    tries: Tries,
    reason: int,
    delay_ms: int,
    place: int | None = None,
    failure: Failure | None = None,
) -> None:
    """A leased record is free again: it waits, expires, or is dead-lettered."""
    assert record.lease is not None
    st.end_lease(queue, record.id, record.lease)
    queue.totals.returned += 1
    extras = record.extras
    available_us = st.stamp_us + delay_ms * 1000 if delay_ms else 0
    if available_us or (extras is not None and extras.available_at_us):
        extras = msgspec.structs.replace(extras or NO_EXTRAS, available_at_us=available_us)
    # A return with a delay asks for its place back when the delay ends, whatever the first delay was to do.
    if available_us and extras is not None and extras.delay_to_tail:
        extras = msgspec.structs.replace(extras, delay_to_tail=False)
    if failure is not None:
        extras = _with_failure(st, extras, failure)
    freed = Record(
        record.id,
        record.key,
        record.payload,
        record.place if place is None else place,
        record.published_us,
        DELAYED if available_us else READY,
        tries,
        None,
        extras,
    )
    text_at = failure.place if failure is not None else (0, 0)
    st.record_row(j.RETURNED, queue, freed, reason, available_us, text_at)
    queue.change(record, freed)
    if available_us:
        st.timers.add(available_us, (DELAY_END, queue.uid, record.id))
    else:
        st.woken.add(queue.name)
    if extras is not None and 0 < extras.expires_at_us <= st.stamp_us:
        expire(st, queue, freed)
    elif 0 < queue.settings.deliveries_max <= tries.deliveries:
        dead_letter(st, queue, freed, reason, text_at)


def _with_failure(st: State, extras: Extras | None, failure: Failure) -> Extras | None:
    """What a record keeps of its last failure; without a text nothing changes."""
    if not (failure.text or (extras is not None and extras.failure)):
        return extras
    return msgspec.structs.replace(extras or NO_EXTRAS, failure=failure.text, failure_at=failure_at(st, failure.place))


def failure_at(st: State, place: tuple[int, int]) -> int:
    """Where the text of a failure lies that this entry brings, as a record keeps it."""
    return st.index << FAILURE_OFFSET_BITS | place[0] if place[1] and st.rules >= RULES_OF_NAMES else 0


def become_available(st: State, queue: Queue, record: Record) -> None:
    """A delay ended."""
    assert record.extras is not None
    place = queue.draw_place() if record.extras.delay_to_tail else record.place
    extras: Extras = msgspec.structs.replace(record.extras, available_at_us=0)
    ready = msgspec.structs.replace(record, state=READY, place=place, extras=extras)
    queue.change(record, ready)
    st.woken.add(queue.name)
    st.record_row(j.AVAILABLE, queue, ready)


def expire(st: State, queue: Queue, record: Record) -> None:
    """A waiting record's time is over."""
    if queue.settings.dead_letter_expired:
        dead_letter(st, queue, record, j.REASON_EXPIRED)
        return
    st.record_row(j.EXPIRED, queue, record, j.REASON_EXPIRED)
    queue.totals.expired += 1
    st.end(queue, record)


def dead_letter(st: State, queue: Queue, record: Record, reason: int, text_at: tuple[int, int] = (0, 0)) -> None:
    """Move a record to the dead-letter queue, past its size limit; bury it where there is none."""
    target = st.by_name.get(queue.settings.dead_letter) if queue.settings.dead_letter is not None else None
    if target is None:
        bury(st, queue, record, reason, text_at)
        return
    queue.totals.dead_lettered += 1
    transfer(st, queue, record, target, reason, j.DEAD_LETTERED, text_at=text_at)


def bury(
    st: State, queue: Queue, record: Record, reason: int, text_at: tuple[int, int] = (0, 0), text: str = ""
) -> None:
    """Set a record aside; it neither expires nor counts as ready until it is kicked."""
    if record.lease is not None:
        st.end_lease(queue, record.id, record.lease)
    st.forget_timers(queue.uid, record)
    old = record.extras or NO_EXTRAS
    extras = msgspec.structs.replace(old, reason=reason, available_at_us=0)
    if text:
        extras = msgspec.structs.replace(extras, failure=text, failure_at=failure_at(st, text_at))
    buried = msgspec.structs.replace(record, state=BURIED, lease=None, extras=extras)
    queue.change(record, buried)
    st.record_row(j.BURIED, queue, buried, reason, 0, text_at)


def transfer(
    st: State,
    source: Queue,
    record: Record,
    target: Queue,
    reason: int,
    kind: int,
    key: int | None = None,
    text_at: tuple[int, int] = (0, 0),
) -> None:
    """End a record here and begin it anew there: a new id, zero counters, and its origin."""
    tries = record.tries or NO_TRIES
    old = record.extras or NO_EXTRAS
    expires_ms = target.settings.expires_ms
    forgets = reason == j.REASON_REDRIVE
    extras = Extras(
        expires_at_us=st.stamp_us + expires_ms * 1000 if expires_ms else 0,
        lease_ms=old.lease_ms,
        headers=old.headers,
        shared=old.shared,
        reason=reason,
        origin=Origin(
            *(source.name, source.uid, record.id, record.published_us, st.stamp_us),
            *(tries.deliveries, tries.failures, tries.releases, tries.timeouts, reason),
        ),
        failure="" if forgets else old.failure,
        failure_at=0 if forgets else old.failure_at,
    )
    new_id = target.next_id
    target.next_id = new_id + 1
    new_key = record.key if key is None else key
    copy = Record(new_id, new_key, record.payload, target.draw_place(), st.stamp_us, READY, None, None, extras)
    st.row(*(kind, source.uid, record.id, record.key, tries.deliveries, reason, 0, target.uid, new_id), payload=text_at)
    st.end(source, record)
    target.admit(copy)
    target.totals.put += 1
    if extras.expires_at_us:
        st.timers.add(extras.expires_at_us, (EXPIRY, target.uid, new_id))
    text_index, kept_at = _failure_place(extras) if extras.failure_at else (st.index, (0, 0))
    st.row(*(j.MOVED_IN, target.uid, new_id, new_key, 0, reason, 0, source.uid, record.id), text_index, payload=kept_at)
    st.woken.add(target.name)


def _failure_place(extras: Extras) -> tuple[int, tuple[int, int]]:
    """Where the text of a kept failure lies: the entry, and (offset, length) in it."""
    offset = extras.failure_at & (1 << FAILURE_OFFSET_BITS) - 1
    return extras.failure_at >> FAILURE_OFFSET_BITS, (offset, len(extras.failure.encode()))


def extend(st: State, args: Extend) -> Answer:
    """Give leases with a deadline a new one; a bound lease needs none and stays as it is."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    until_us = st.stamp_us + args.lease_ms * 1000
    name = (st.position, until_us)
    lost = []
    ids: list[int] = []
    leases: dict[int, Lease] = {}
    for position, (record_id, token) in enumerate(args.handles):
        record = held(queue, record_id, token)
        if record is None or record.lease is None:
            lost.append(position)
        elif record.lease.until_us and record.lease.serial != st.position:
            st.leave_group(queue, record.lease)
            old = record.lease
            lease = leases.get(token)
            if lease is None:  # the records of one take go on sharing their lease
                lease = leases[token] = Lease(token, st.position, old.owner, until_us, old.to_tail)
            queue.table.replace(msgspec.structs.replace(record, lease=lease))
            ids.append(record_id)
            # The group must be there before the next record of the same old group leaves.
            queue.leases[name] = LeaseGroup(ids, len(ids), old.owner)
            st.record_row(j.EXTENDED, queue, record, value=until_us)
    if ids:
        queue.stale.add(queue)
        st.timers.add(until_us, (LEASE_END, queue.uid, *name))
    return Handled(len(args.handles) - len(lost), lost)
