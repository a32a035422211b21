"""What operators and tools do to single records: bury, kick, edit, delete, move."""

from __future__ import annotations

from itertools import islice

import msgspec

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done, Handled
from penstock.engine.commands import Bury, Delete, Edit, Kick, Move
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.queue import Queue
from penstock.engine.records import BURIED, DELAYED, LEASED, NO_EXTRAS, READY, Record
from penstock.engine.returning import bury, failure_of, held, transfer
from penstock.engine.state import State
from penstock.engine.timers import DELAY_END, EXPIRY


def bury_records(st: State, args: Bury) -> Answer:
    """Set records aside: by their holder with the token, by an operator with token 0."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    failure = failure_of(st, args.failure)
    if isinstance(failure, Refusal):
        return failure
    lost = []
    for position, (record_id, token) in enumerate(args.handles):
        record = held(queue, record_id, token) if token else queue.get(record_id)
        if record is None or record.state == BURIED:
            lost.append(position)
        else:
            reason = j.REASON_HOLDER if token else j.REASON_OPERATOR
            bury(st, queue, record, reason, failure.place, failure.text)
    return Handled(len(args.handles) - len(lost), lost)


def kick(st: State, args: Kick) -> Answer:
    """Make buried or delayed records ready again, at their places."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    named = {record.id: record for record in map(queue.get, args.ids) if record is not None}
    if args.count:
        first = list(islice(queue.buried.from_value(0), args.count))
        named |= {record.id: record for record in map(queue.get, first) if record is not None}
    size_max = queue.settings.size_max
    count = 0
    for record in named.values():
        if record.state == BURIED and size_max is not None and queue.occupied() >= size_max:
            # Buried records do not count against the limit, so their return is judged like a put.
            if not count:
                return Refusal(e.QUEUE_FULL, f"queue {args.queue!r} holds its {size_max} records", (size_max,))
        elif record.state in (BURIED, DELAYED):
            _make_ready(st, queue, record)
            count += 1
    return Done(count)


def _make_ready(st: State, queue: Queue, record: Record) -> None:
    extras = record.extras or NO_EXTRAS
    if record.state == DELAYED:
        st.timers.cancel(extras.available_at_us, (DELAY_END, queue.uid, record.id))
    elif extras.expires_at_us:
        # It did not expire while it was buried; a time that passed meanwhile ends it with the next entry.
        st.timers.add(extras.expires_at_us, (EXPIRY, queue.uid, record.id))
    extras = msgspec.structs.replace(extras, available_at_us=0, reason=0)
    ready = msgspec.structs.replace(record, state=READY, extras=extras)
    queue.change(record, ready)
    st.woken.add(queue.name)
    st.record_row(j.KICKED, queue, ready)


def edit(st: State, args: Edit) -> Answer:
    """Change the key or the delay of a record that waits."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    record = queue.get(args.id)
    if record is None:
        return Refusal(e.NO_SUCH_RECORD, f"queue {args.queue!r} has no record {args.id}")
    if record.state not in (READY, DELAYED):
        return Refusal(e.WRONG_STATE, f"record {args.id} is not waiting")
    key_range = queue.settings.key_range
    if args.key is not None and key_range is not None and not key_range[0] <= args.key <= key_range[1]:
        return Refusal(e.KEY_OUT_OF_RANGE, f"the key is outside {key_range[0]}..{key_range[1]}", key_range)
    extras, state = record.extras, record.state
    if args.delay_ms is not None:
        if state == DELAYED and extras is not None:
            st.timers.cancel(extras.available_at_us, (DELAY_END, queue.uid, record.id))
        available_us = st.stamp_us + args.delay_ms * 1000 if args.delay_ms else 0
        extras = msgspec.structs.replace(extras or NO_EXTRAS, available_at_us=available_us)
        state = DELAYED if available_us else READY
        if available_us:
            st.timers.add(available_us, (DELAY_END, queue.uid, record.id))
    key = record.key if args.key is None else args.key
    edited = msgspec.structs.replace(record, key=key, state=state, extras=extras)
    queue.change(record, edited)
    if state == READY:
        st.woken.add(queue.name)
    st.record_row(j.EDITED, queue, edited, value=extras.available_at_us if extras is not None else 0)
    return Done(1)


def delete(st: State, args: Delete) -> Answer:
    """End records in any state, whoever holds them."""
    named = st.by_name.get(args.queue)
    queue = st.by_uid.get(args.uid, named) if args.uid else named
    if queue is None:
        return no_such_queue(args.queue)
    lost = []
    is_meant = args.uid in (0, queue.uid)
    for position, record_id in enumerate(args.ids):
        record = queue.get(record_id)
        if record is None or not is_meant:
            lost.append(position)
            continue
        if args.done:
            st.record_row(j.ACKED, queue, record)
            queue.totals.acked += 1
        else:
            st.record_row(j.DELETED, queue, record, j.REASON_OPERATOR)
            queue.totals.ended_otherwise += 1
        st.end(queue, record)
    return Handled(len(args.ids) - len(lost), lost)


def move(st: State, args: Move) -> Answer:
    """Move records to another queue; leased ones stay with their holder and are told as lost."""
    queue, target = st.by_name.get(args.queue), st.by_name.get(args.target)
    if queue is None or target is None:
        return no_such_queue(args.queue if queue is None else args.target)
    if queue is target:
        return Refusal(e.BAD_COMMAND, "a record cannot be moved to the queue it is in")
    chosen: dict[int, Record] = {}
    lost: list[int] = []
    for position, record_id in enumerate(args.ids):
        record = queue.get(record_id)
        if record is None or record.state == LEASED or record_id in chosen:
            lost.append(position)
            continue
        code, figures = fits(target, record, len(chosen))
        if code:
            return Refusal(code, f"record {record_id} does not fit queue {args.target!r}", (*figures, position))
        chosen[record_id] = record
    for record in chosen.values():
        queue.totals.ended_otherwise += 1
        transfer(st, queue, record, target, j.REASON_OPERATOR, j.MOVED_OUT)
    return Handled(len(chosen), lost)


def fits(target: Queue, record: Record, waiting: int, key: int | None = None) -> tuple[int, tuple[int, ...]]:
    """Whether a record may be moved into a queue: code 0, or the policy that speaks against it and its figures."""
    settings = target.settings
    if settings.size_max is not None and target.occupied() + waiting >= settings.size_max:
        return e.QUEUE_FULL, (settings.size_max,)
    new_key = record.key if key is None else key
    if settings.key_range is not None and not settings.key_range[0] <= new_key <= settings.key_range[1]:
        return e.KEY_OUT_OF_RANGE, settings.key_range
    if settings.payload_bytes_max is not None and len(record.payload) > settings.payload_bytes_max:
        return e.PAYLOAD_TOO_LARGE, (settings.payload_bytes_max,)
    return 0, ()
