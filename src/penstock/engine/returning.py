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

import msgspec

from penstock.engine import journal as j
from penstock.engine.answers import Answer, Handled
from penstock.engine.commands import NACK, UNSENT, Extend, Return
from penstock.engine.managing import no_such_queue
from penstock.engine.queue import LeaseGroup, Queue
from penstock.engine.records import (
    BURIED,
    DELAYED,
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

_REASON_OF_RETURN = {1: j.REASON_NACK, 2: j.REASON_RELEASE, 3: j.REASON_UNSENT}


def held(queue: Queue, record_id: int, token: int) -> Record | None:
    """The record, if it is leased under this token."""
    record = queue.get(record_id)
    return record if record is not None and record.lease is not None and record.lease.token == token else None


def give_back(st: State, args: Return) -> Answer:
    """Give leased records back."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    lost = []
    for position, (record_id, token) in enumerate(args.handles):
        record = held(queue, record_id, token)
        if record is None:
            lost.append(position)
            continue
        tries = record.tries or NO_TRIES
        if args.how == NACK:
            tries = msgspec.structs.replace(tries, failures=tries.failures + 1)
        elif args.how == UNSENT:
            tries = msgspec.structs.replace(tries, deliveries=tries.deliveries - 1)
        else:
            tries = msgspec.structs.replace(tries, releases=tries.releases + 1)
        come_back(st, queue, record, tries, args.reason or _REASON_OF_RETURN[args.how], args.delay_ms)
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
    st: State, queue: Queue, record: Record, tries: Tries, reason: int, delay_ms: int, place: int | None = None
) -> None:
    """A leased record is free again: it waits, expires, or is dead-lettered."""
    assert record.lease is not None
    st.leave_group(queue, record.lease)
    queue.totals.returned += 1
    extras = record.extras
    available_us = st.stamp_us + delay_ms * 1000 if delay_ms else 0
    if available_us or (extras is not None and extras.available_at_us):
        extras = msgspec.structs.replace(extras or NO_EXTRAS, available_at_us=available_us)
    # A return with a delay asks for its place back when the delay ends, whatever the first delay was to do.
    if available_us and extras is not None and extras.delay_to_tail:
        extras = msgspec.structs.replace(extras, delay_to_tail=False)
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
    st.record_row(j.RETURNED, queue, freed, reason, available_us)
    queue.change(record, freed)
    if available_us:
        st.timers.add(available_us, (DELAY_END, queue.uid, record.id))
    else:
        st.woken.add(queue.name)
    if extras is not None and 0 < extras.expires_at_us <= st.stamp_us:
        expire(st, queue, freed)
    elif 0 < queue.settings.deliveries_max <= tries.deliveries:
        dead_letter(st, queue, freed, reason)


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


def dead_letter(st: State, queue: Queue, record: Record, reason: int) -> None:
    """Move a record to the dead-letter queue, past its size limit; bury it where there is none."""
    target = st.by_name.get(queue.settings.dead_letter) if queue.settings.dead_letter is not None else None
    if target is None:
        bury(st, queue, record, reason)
        return
    queue.totals.dead_lettered += 1
    transfer(st, queue, record, target, reason, j.DEAD_LETTERED)


def bury(st: State, queue: Queue, record: Record, reason: int) -> None:
    """Set a record aside; it neither expires nor counts as ready until it is kicked."""
    if record.lease is not None:
        st.leave_group(queue, record.lease)
    st.forget_timers(queue.uid, record)
    extras = msgspec.structs.replace(record.extras or NO_EXTRAS, reason=reason, available_at_us=0)
    buried = msgspec.structs.replace(record, state=BURIED, lease=None, extras=extras)
    queue.change(record, buried)
    st.record_row(j.BURIED, queue, buried, reason)


def transfer(
    st: State, source: Queue, record: Record, target: Queue, reason: int, kind: int, key: int | None = None
) -> None:
    """End a record here and begin it anew there: a new id, zero counters, and its origin."""
    tries = record.tries or NO_TRIES
    old = record.extras or NO_EXTRAS
    expires_ms = target.settings.expires_ms
    extras = Extras(
        expires_at_us=st.stamp_us + expires_ms * 1000 if expires_ms else 0,
        lease_ms=old.lease_ms,
        headers=old.headers,
        reason=reason,
        origin=Origin(
            *(source.name, source.uid, record.id, record.published_us, st.stamp_us),
            *(tries.deliveries, tries.failures, tries.releases, tries.timeouts, reason),
        ),
    )
    new_id = target.next_id
    target.next_id = new_id + 1
    new_key = record.key if key is None else key
    copy = Record(new_id, new_key, record.payload, target.draw_place(), st.stamp_us, READY, None, None, extras)
    st.row(kind, source.uid, record.id, record.key, tries.deliveries, reason, 0, target.uid, new_id)
    st.end(source, record)
    target.admit(copy)
    target.totals.put += 1
    if extras.expires_at_us:
        st.timers.add(extras.expires_at_us, (EXPIRY, target.uid, new_id))
    st.row(j.MOVED_IN, target.uid, new_id, new_key, 0, reason, 0, source.uid, record.id)
    st.woken.add(target.name)


def extend(st: State, args: Extend) -> Answer:
    """Give leases with a deadline a new one; a bound lease needs none and stays as it is."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    until_us = st.stamp_us + args.lease_ms * 1000
    name = (st.position, until_us)
    lost = []
    ids: list[int] = []
    for position, (record_id, token) in enumerate(args.handles):
        record = held(queue, record_id, token)
        if record is None or record.lease is None:
            lost.append(position)
        elif record.lease.until_us and record.lease.serial != st.position:
            st.leave_group(queue, record.lease)
            old = record.lease
            lease = Lease(old.token, st.position, old.owner, until_us, old.to_tail)
            queue.table.replace(msgspec.structs.replace(record, lease=lease))
            ids.append(record_id)
            # The group must be there before the next record of the same old group leaves.
            queue.leases[name] = LeaseGroup(ids, len(ids), old.owner)
            st.record_row(j.EXTENDED, queue, record, value=until_us)
    if ids:
        st.timers.add(until_us, (LEASE_END, queue.uid, *name))
    return Handled(len(args.handles) - len(lost), lost)
