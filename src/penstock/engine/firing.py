"""What happens when a timer is due, and when an owner is gone."""

from __future__ import annotations

from typing import Final

from penstock.engine import jobs, staging
from penstock.engine import journal as j
from penstock.engine.records import DELAYED, READY
from penstock.engine.returning import become_available, expire, release_for, time_out
from penstock.engine.state import State
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


def fire_due(st: State) -> None:
    """Fire the timers that are due at the entry's stamp, in order, up to a limit; the rest wait for the next entry."""
    st.timers.admit_soon()
    room = TIMERS_PER_ENTRY_MAX
    while room > 0:
        due = st.timers.pop_due(st.stamp_us, room)
        if not due:
            return
        for due_us, name in due:
            if room > 0:
                # One with nothing left to do must not count: a node that started from a snapshot never set it.
                room -= _fire(st, name, due_us)
            else:
                st.timers.add(due_us, name)


def _fire(st: State, name: TimerName, due_us: int) -> int:
    """Do what one timer was set for; tells how many records that touched."""
    kind = name[0]
    if kind == LEASE_END:
        return _end_leases(st, name[1], (name[2], name[3]))
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
        return queue.dedup.forget(st.stamp_us, 1000, queue.uid, st.timers) if queue is not None else 0
    if kind == STAGE_END:
        for staged in [staged for staged in st.staged.values() if staged.serial == name[1]]:
            staging.forget_staged(st, staged)
    elif kind == OWNER_END:
        return release_owner(st, name[1], j.REASON_NEW_TERM)
    elif kind == JOB_STEP:
        return jobs.step(st, name[1])
    return 0


def _end_leases(st: State, queue_uid: int, name: tuple[int, int]) -> int:
    queue = st.by_uid.get(queue_uid)
    group = queue.leases.get(name) if queue is not None else None
    if queue is None or group is None:
        return 0
    count = 0
    for record_id in sorted(group.ids):
        record = queue.get(record_id)
        if record is not None and record.lease is not None and (record.lease.serial, record.lease.until_us) == name:
            time_out(st, queue, record)
            count += 1
    return count


def release_owner(st: State, number: int, reason: int) -> int:
    """Release the leases bound to a connection, in the order of (queue, lease, record), up to the limit of an entry."""
    owner = st.owners.get(number)
    if owner is None:
        return 0
    count = 0
    for queue_uid, name in sorted(owner.groups):
        if count >= TIMERS_PER_ENTRY_MAX * 10:
            st.timers.add_soon((OWNER_END, number))
            break
        queue = st.by_uid[queue_uid]
        for record_id in sorted(queue.leases[name].ids):
            record = queue.get(record_id)
            lease = record.lease if record is not None else None
            if record is not None and lease is not None and (lease.serial, lease.until_us) == name:
                release_for(st, queue, record, reason)
                count += 1
    return count
