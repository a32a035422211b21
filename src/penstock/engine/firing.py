"""What happens when a timer is due, and when an owner is gone."""

from __future__ import annotations

from typing import Final

from penstock.engine import jobs, staging
from penstock.engine import journal as j
from penstock.engine.queue import LeaseName, Queue
from penstock.engine.records import DELAYED, READY
from penstock.engine.returning import become_available, expire, release_for, time_out
from penstock.engine.state import LEASES_PER_OWNER_MAX, State
from penstock.engine.timers import (
    DEDUP_END,
    DELAY_END,
    EXPIRY,
    JOB_STEP,
    LEASE_END,
    OWNER_END,
    STAGE_END,
    TimerName,
)

TIMERS_PER_ENTRY_MAX: Final = 1_000
RELEASED_PER_COMMAND_MAX: Final = 1_000
"""Leases that the end of a connection releases at once; the rest follow with the next entries."""


def fire_due(st: State) -> None:
    """Fire the timers that are due at the entry's stamp, in order, up to a limit; the rest wait for the next entry."""
    st.timers.admit_soon()
    room = TIMERS_PER_ENTRY_MAX
    while room > 0:
        due = st.timers.pop_due(st.stamp_us)
        if due is None:
            return
        # One with nothing left to do must not count: a node that started from a snapshot never set it.
        room -= _fire(st, due[1], due[0], room)


def _fire(st: State, name: TimerName, due_us: int, room: int) -> int:
    """Do what one timer was set for, up to ``room`` records; tells how many that touched."""
    kind = name[0]
    if kind == LEASE_END:
        return _end_leases(st, name, due_us, room)
    if kind in (DELAY_END, EXPIRY):
        queue = st.by_uid.get(name[1])
        record = queue.get(name[2]) if queue is not None else None
        if queue is None or record is None or record.extras is None:
            return 0
        if kind == DELAY_END and record.state == DELAYED and record.extras.available_at_us == due_us:
            become_available(st, queue, record)
            return 1
        if kind == EXPIRY and record.state in (READY, DELAYED) and record.extras.expires_at_us == due_us:
            expire(st, queue, record)
            return 1
        return 0
    if kind == DEDUP_END:
        queue = st.by_uid.get(name[1])
        if queue is None:
            return 0
        queue.stale.add(queue)
        return queue.dedup.forget(st.stamp_us, 1000, queue.uid, st.timers)
    if kind == STAGE_END:
        return staging.end_staged(st, name[1])
    if kind == OWNER_END:
        return release_owner(st, name[1], st.owners_gone.get(name[1], j.REASON_NEW_TERM), room)
    if kind == JOB_STEP:
        return jobs.step(st, name[1])
    return 0


def _end_leases(st: State, timer: TimerName, due_us: int, room: int) -> int:
    """End a group of leases; what is beyond ``room`` is due again with the next entry."""
    queue, name = st.by_uid.get(timer[1]), (timer[2], timer[3])
    group = queue.leases.get(name) if queue is not None else None
    if queue is None or group is None:
        return 0
    count, ids = 0, sorted(group.ids)
    for position, record_id in enumerate(ids):
        if count == room and st.rules:
            group.ids = ids[position:]
            st.timers.add(due_us, timer)
            break
        record = queue.get(record_id)
        if record is not None and record.lease is not None and (record.lease.serial, record.lease.until_us) == name:
            time_out(st, queue, record)
            count += 1
    return count


def owner_gone(st: State, number: int) -> int:
    """A connection ended: release its leases, now or entry by entry. Tells how many it had."""
    owner = st.owners.get(number)
    if owner is None:
        return 0
    leases = owner.leases
    count = release_owner(st, number, j.REASON_DISCONNECT, min(RELEASED_PER_COMMAND_MAX, st.spare))
    st.spare -= count
    return leases


def release_owner(st: State, number: int, reason: int, room: int) -> int:
    """Release the leases bound to a connection, in the order of (queue, lease, record), up to ``room`` of them."""
    count = 0
    if not st.rules:
        room = LEASES_PER_OWNER_MAX  # once, an owner was released in one entry whatever it held
    owner = st.owners.get(number)
    queues = {} if owner is None else owner.queues
    groups = [(uid, name) for uid in sorted(queues) for name in sorted(queues[uid].names)]
    for uid, name in groups:
        if count >= room:
            break
        count += _release_group(st, st.by_uid[uid], name, reason, room - count)
    if number in st.owners:
        st.owners_gone[number] = reason
        st.timers.add_soon((OWNER_END, number))
    else:
        st.owners_gone.pop(number, None)
    return count


def _release_group(st: State, queue: Queue, name: LeaseName, reason: int, room: int) -> int:
    count, group = 0, queue.leases[name]
    ids = sorted(group.ids)
    for position, record_id in enumerate(ids):
        if count == room:
            group.ids = ids[position:]
            break
        record = queue.get(record_id)
        lease = record.lease if record is not None else None
        if record is not None and lease is not None and (lease.serial, lease.until_us) == name:
            release_for(st, queue, record, reason)
            count += 1
    return count
