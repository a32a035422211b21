"""Looking at the state without changing it: queues, records, jobs, bindings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from penstock.engine import errors as e
from penstock.engine.chunks import CHUNK_BITS
from penstock.engine.commands import BYTES_PER_ANSWER_MAX
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.memory import STAGED_BYTES, text_bytes
from penstock.engine.queue import Queue
from penstock.engine.records import BURIED, NO_EXTRAS, NO_TRIES, Record, content_bytes
from penstock.engine.staged import Batch
from penstock.engine.state import State
from penstock.engine.views import BindingView, JobView, Page, QueueView, RecordView, StagedView

SCANNED_PER_PAGE_MAX: Final = 2_000
"""A page looks at no more records than this, so that reading never stops the service."""
CHUNKS_PER_PAGE_MAX: Final = 64
"""Nor into more chunks, of which each may hold but one record."""
STAGED_BATCHES_LISTED_MAX: Final = 10_000


def list_queues(st: State) -> Iterator[QueueView]:
    """All queues in the order in which they were made; one that is deleted while they are listed is left out."""
    for uid in sorted(st.by_uid):
        queue = st.by_uid.get(uid)
        if queue is not None:
            yield view_queue(queue)


def show_queue(st: State, name: str) -> QueueView | Refusal:
    """One queue."""
    queue = st.by_name.get(name)
    return no_such_queue(name) if queue is None else view_queue(queue)


def view_queue(queue: Queue) -> QueueView:
    """A queue and its figures."""
    ready, delayed, leased, buried = queue.counts
    totals = queue.totals
    return QueueView(
        queue.name,
        queue.uid,
        queue.settings,
        queue.paused,
        ready,
        delayed,
        leased,
        buried,
        queue.payload_bytes,
        queue.oldest_us(),
        totals.put,
        totals.delivered,
        totals.acked,
        totals.returned,
        totals.expired,
        totals.dead_lettered,
        totals.ended_otherwise,
        len(queue.dedup.ids),
    )


def view_record(st: State, record: Record) -> RecordView:
    """A record with all that is known of it; its points in time as the wall clock shows them."""
    tries, extras, lease = record.tries or NO_TRIES, record.extras or NO_EXTRAS, record.lease
    return RecordView(
        record.id,
        record.key,
        record.payload,
        record.state,
        record.place,
        st.to_wall(record.published_us),
        tries.deliveries,
        tries.failures,
        tries.releases,
        tries.timeouts,
        st.to_wall(extras.available_at_us),
        st.to_wall(extras.expires_at_us),
        st.to_wall(lease.until_us) if lease is not None else 0,
        lease.token if lease is not None else 0,
        lease.owner if lease is not None else 0,
        extras.headers,
        extras.dedup_key,
        extras.reason,
        extras.origin,
        extras.lease_ms,
        extras.failure,
        st.owner_names.get(lease.owner, "") if lease is not None else "",
    )


def peek(st: State, name: str, count: int) -> list[RecordView] | Refusal:
    """The records that would be taken next."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    found: list[RecordView] = []
    size = 0
    for record in islice(queue.order.walk(), count):
        size += content_bytes(record)
        if found and size > BYTES_PER_ANSWER_MAX:
            break
        found.append(view_record(st, record))
    return found


def get(st: State, name: str, record_id: int) -> RecordView | Refusal:
    """One record, in whatever state."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    record = queue.get(record_id)
    if record is None:
        return Refusal(e.NO_SUCH_RECORD, f"queue {name!r} has no record {record_id}")
    return view_record(st, record)


def browse(
    st: State, name: str, state: int | None, key_range: tuple[int, int] | None, cursor: int, count: int
) -> Page | Refusal:
    """Records in the order of their ids, from a cursor on."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    found: list[RecordView] = []
    if state is not None and (not 0 <= state < len(queue.counts) or not queue.counts[state]):
        return Page(found, 0)
    size = 0
    for scanned, record in enumerate(_candidates(queue, state, cursor)):
        if isinstance(record, int):
            return Page(found, record)
        if len(found) == count or scanned == SCANNED_PER_PAGE_MAX:
            return Page(found, record.id)
        if state is not None and record.state != state:
            continue
        if key_range is not None and not key_range[0] <= record.key <= key_range[1]:
            continue
        size += content_bytes(record)
        if found and size > BYTES_PER_ANSWER_MAX:
            return Page(found, record.id)
        found.append(view_record(st, record))
    return Page(found, 0)


def _candidates(queue: Queue, state: int | None, cursor: int) -> Iterator[Record | int]:
    """The records that may be in a state, from a cursor on; at the end of what a page may cost, where to continue."""
    if state == BURIED:
        for record_id in queue.buried.from_value(cursor):
            record = queue.get(record_id)
            if record is not None:
                yield record
        return
    for looked_into, number in enumerate(queue.chunk_numbers(cursor)):
        if looked_into == CHUNKS_PER_PAGE_MAX:
            yield number << CHUNK_BITS
            return
        yield from queue.scan_chunk(number, cursor)


def list_jobs(st: State) -> list[JobView]:
    """Redrives under way, and those that ended lately."""
    return [
        JobView(job.id, job.redrive.queue, job.redrive.target, job.moved, job.skipped, job.done)
        for _, job in sorted(st.jobs.items())
        if job.redrive is not None
    ]


def list_bindings(st: State) -> Iterator[BindingView]:
    """The bindings by name; one that is removed while they are listed is left out."""
    for name in sorted(st.bindings):
        binding = st.bindings.get(name)
        if binding is not None:
            yield binding


def list_staged(st: State) -> Iterator[StagedView]:
    """The batches that are staged, up to a limit; a batch that goes while they are listed is left out."""
    names = ((query, number) for query, batches in st.staged.queries.items() for number in batches)
    for query, number in list(islice(names, STAGED_BATCHES_LISTED_MAX)):
        batch = st.staged.batch(query, number)
        if batch is not None:
            yield _view_staged(st, query, number, batch)


def _view_staged(st: State, query: str, number: int, batch: Batch) -> StagedView:
    attempts = list(batch.attempts.values())
    each_bytes = STAGED_BYTES + text_bytes(query)
    return StagedView(
        query,
        number,
        len({staged.partition for staged in attempts}),
        len(attempts),
        sum(staged.records for staged in attempts),
        sum(each_bytes + staged.parts_bytes for staged in attempts),
        st.to_wall(min(staged.began_us for staged in attempts)),
        st.to_wall(min(staged.ends_us for staged in attempts)),
    )
