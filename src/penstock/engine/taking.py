"""Taking records under a lease, and ending them: take, ack, ack-and-take."""

from __future__ import annotations

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import AckTaken, Answer, Delivery, Handled, Taken
from penstock.engine.chunks import CHUNK_BITS, CHUNK_SLOTS
from penstock.engine.commands import BYTES_PER_ANSWER_MAX, RULES_OF_BYTES, Ack, AckTake, Take
from penstock.engine.errors import Refusal
from penstock.engine.journal import ROW
from penstock.engine.managing import no_such_queue
from penstock.engine.memory import TRIES_BYTES
from penstock.engine.queue import LeaseGroup, Queue
from penstock.engine.records import FIRST_TRY, LEASED, READY, Lease, Record, Tries, content_bytes
from penstock.engine.state import LEASES_PER_OWNER_MAX, OWNER_TERM_SHIFT, Owner, State
from penstock.engine.timers import EXPIRY, LEASE_END, OWNER_END


def take(st: State, args: Take) -> Answer:
    """Lease the first records of a queue, or end them at once where the take is final."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    if args.final:
        return _take_for_good(st, queue, args.count)
    return lease_first(st, queue, args.count, args.lease_ms, args.to_tail)


def ack_take(st: State, args: AckTake) -> Answer:
    """End records and take the next."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    handled = acknowledge(st, queue, args.handles)
    taken = lease_first(st, queue, args.count, args.lease_ms, False)
    if isinstance(taken, Refusal):
        taken = Taken(st.position, [], queue.uid)
    return AckTaken(handled, taken)


def ack(st: State, args: Ack) -> Answer:
    """End leased records: their work is done."""
    queue = st.by_name.get(args.queue)
    return no_such_queue(args.queue) if queue is None else acknowledge(st, queue, args.handles)


def lease_first(st: State, queue: Queue, count: int, lease_ms: int | None, to_tail: bool) -> Taken | Refusal:
    """Lease up to ``count`` records from the head of the order."""
    token = st.position
    if queue.paused or not queue.counts[READY]:
        return Taken(token, [], queue.uid)
    holder: Owner | None = None
    if lease_ms == 0 or (lease_ms is None and not queue.settings.lease_ms):
        holder = st.owners.get(st.owner)
        if holder is None:
            holder = st.owners[st.owner] = Owner()
            if st.owner >> OWNER_TERM_SHIFT < st.term:
                # Nobody is left who would notice that this connection ends.
                st.timers.add_soon((OWNER_END, st.owner))
        count = min(count, LEASES_PER_OWNER_MAX - holder.leases)
        if count <= 0:
            return Refusal(
                e.TOO_MANY_LEASES,
                f"this connection holds {LEASES_PER_OWNER_MAX} leases; acknowledge some first",
                (LEASES_PER_OWNER_MAX,),
            )
    records = queue.order.pop(count)
    records = _within_bytes(st, queue, records)
    deliveries = _lease(st, queue, records, lease_ms, to_tail)
    queue.stale.add(queue)
    count = len(records)
    queue.counts[READY] -= count
    queue.counts[LEASED] += count
    queue.totals.delivered += count
    if holder is not None:
        bound = queue.leases.get((token, 0))
        if bound is not None:
            holder.hold(queue, (token, 0), st.owner, bound.left)
        elif not holder.queues:
            del st.owners[st.owner]  # each record asked for a lease with a deadline of its own
    return Taken(token, deliveries, queue.uid)


def _within_bytes(st: State, queue: Queue, records: list[Record]) -> list[Record]:
    """Put back what would make the answer too long."""
    if queue.payload_bytes + queue.options_bytes <= BYTES_PER_ANSWER_MAX or len(records) < 2:
        return records
    with_headers = st.rules >= RULES_OF_BYTES
    size = 0
    for position, record in enumerate(records):
        size += content_bytes(record) if with_headers else len(record.payload)
        if size > BYTES_PER_ANSWER_MAX and position:
            for surplus in records[position:]:
                queue.order.insert(surplus)
            return records[:position]
    return records


def _lease(st: State, queue: Queue, records: list[Record], lease_ms: int | None, to_tail: bool) -> list[Delivery]:
    """Mark records that left the order as leased, in one lease per deadline."""
    stamp_us, index, n, door, owner, uid = st.stamp_us, st.index, st.n, st.door, st.owner, queue.uid
    token, item_number = st.position, st.item
    append_row, pack, chunks, writable = st.rows.append, ROW.pack, queue.table.chunks, queue.table.writable
    default_ms = queue.settings.lease_ms if lease_ms is None else lease_ms
    leases: dict[int, tuple[Lease, list[int]]] = {}
    length_ms, lease, ids = -1, Lease(0, 0, 0, 0, False), list[int]()
    deliveries: list[Delivery] = []
    for record in records:
        extras = record.extras
        wanted_ms = extras.lease_ms or default_ms if extras is not None and lease_ms is None else default_ms
        if wanted_ms != length_ms:
            length_ms = wanted_ms
            if length_ms not in leases:
                until_us = stamp_us + length_ms * 1000 if length_ms else 0
                leases[length_ms] = Lease(token, token, owner, until_us, to_tail), []
            lease, ids = leases[length_ms]
        record_id, key, payload, tries = record.id, record.key, record.payload, record.tries
        if tries is None:
            tries = FIRST_TRY
        else:
            was_first = tries == FIRST_TRY
            tries = Tries(tries.deliveries + 1, tries.failures, tries.releases, tries.timeouts)
            queue.options_bytes += TRIES_BYTES * (was_first - (tries == FIRST_TRY))
        number = record_id >> CHUNK_BITS
        chunk = chunks[number]
        if chunk.frozen:
            chunk = writable(number)
        published_us = record.published_us
        chunk.slots[record_id & (CHUNK_SLOTS - 1)] = Record(
            record_id, key, payload, record.place, published_us, LEASED, tries, lease, extras
        )
        ids.append(record_id)
        count, until_us = tries.deliveries, lease.until_us
        headers, failure = (b"", "") if extras is None else (extras.headers, extras.failure)
        deliveries.append(Delivery(record_id, key, payload, count, published_us, headers, until_us, failure))
        append_row(
            pack(
                *(index, n, item_number, j.TAKEN, door, 0, count, stamp_us, owner, uid, record_id, key, until_us),
                *(0, 0, 0, 0, 0, 0, 0),
            )
        )
        item_number += 1
    st.item = item_number
    for lease, ids in leases.values():
        name = (token, lease.until_us)
        queue.leases[name] = LeaseGroup(ids, len(ids), owner)
        if lease.until_us:
            st.timers.add(lease.until_us, (LEASE_END, uid, *name))
    return deliveries


def _take_for_good(st: State, queue: Queue, count: int) -> Taken:
    """Take and end in one, for protocols that know no acknowledgement."""
    records = [] if queue.paused else _within_bytes(st, queue, queue.order.pop(count))
    deliveries = []
    for record in records:
        tries = record.tries.deliveries + 1 if record.tries is not None else 1
        headers, failure = (b"", "") if record.extras is None else (record.extras.headers, record.extras.failure)
        deliveries.append(
            Delivery(record.id, record.key, record.payload, tries, record.published_us, headers, 0, failure)
        )
        st.row(j.TAKEN, queue.uid, record.id, record.key, tries)
        st.row(j.ACKED, queue.uid, record.id, record.key, tries)
        st.forget_timers(queue.uid, record)
        queue.counts[READY] -= 1
        queue.count_out(record)
        queue.table.remove(record.id)
    queue.stale.add(queue)
    queue.totals.delivered += len(records)
    queue.totals.acked += len(records)
    return Taken(st.position, deliveries, queue.uid)


def acknowledge(st: State, queue: Queue, handles: list[tuple[int, int]]) -> Handled:
    """End the records that are held under the tokens given; others are told as lost."""
    stamp_us, index, n, door, owner, uid = st.stamp_us, st.index, st.n, st.door, st.owner, queue.uid
    item_number = st.item
    append_row, pack, get, remove = st.rows.append, ROW.pack, queue.table.get, queue.table.remove
    lost: list[int] = []
    payload_bytes = 0
    lease: Lease | None = None
    is_own = True
    held = 0
    cancel = st.timers.cancel
    for position, (record_id, token) in enumerate(handles):
        record = get(record_id)
        if record is None and queue.purged:
            record = queue.get(record_id)
        if record is None or record.lease is None or record.lease.token != token:
            lost.append(position)
            continue
        if record.lease is not lease:
            if lease is not None:
                _leave(st, queue, lease, held)
            lease, held = record.lease, 0
            is_own = lease.owner == owner
        held += 1
        if not is_own:
            st.leases_ended.append((lease.owner, record_id, token))
        extras = record.extras
        if extras is None and record.tries is FIRST_TRY:
            payload_bytes += len(record.payload)
        else:
            if extras is not None and extras.expires_at_us:
                cancel(extras.expires_at_us, (EXPIRY, uid, record_id))
            queue.count_out(record)
        remove(record_id)
        deliveries = record.tries.deliveries  # type: ignore[union-attr]
        append_row(
            pack(
                *(index, n, item_number, j.ACKED, door, 0, deliveries, stamp_us, owner, uid, record_id, record.key),
                *(0, 0, 0, 0, 0, 0, 0, 0),
            )
        )
        item_number += 1
    if lease is not None:
        _leave(st, queue, lease, held)
    count = len(handles) - len(lost)
    st.item = item_number
    queue.counts[LEASED] -= count
    queue.payload_bytes -= payload_bytes
    queue.stale.add(queue)
    queue.totals.acked += count
    return Handled(count, lost)


def _leave(st: State, queue: Queue, lease: Lease, held: int) -> None:
    """``held`` records of one lease have ended: as ``State.leave_group`` for each, in one step for all but the last."""
    group = queue.leases[lease.serial, lease.until_us]
    group.left -= held - 1
    if not lease.until_us:
        st.owners[group.owner].let_go(queue.uid, held - 1)
    st.leave_group(queue, lease)
