"""Looking at the state without changing it: queues, records, jobs, bindings."""

from __future__ import annotations

from itertools import islice
from typing import Final

from penstock.engine import errors as e
from penstock.engine.commands import BYTES_PER_ANSWER_MAX
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.queue import Queue
from penstock.engine.records import DELAYED, NO_EXTRAS, NO_TRIES, READY, Record
from penstock.engine.state import State
from penstock.engine.views import BindingView, JobView, Page, QueueView, RecordView

SCANNED_PER_PAGE_MAX: Final = 10_000
"""A page looks at no more records than this, so that reading never stops the service."""


def list_queues(st: State) -> list[QueueView]:
    """All queues, in the order in which they were made."""
    return [view_queue(queue) for _, queue in sorted(st.by_uid.items())]


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
        _oldest_us(queue),
        totals.put,
        totals.delivered,
        totals.acked,
        totals.returned,
        totals.expired,
        totals.dead_lettered,
        totals.ended_otherwise,
    )


def _oldest_us(queue: Queue) -> int:
    if not queue.counts[READY] and not queue.counts[DELAYED]:
        return 0
    for record in islice(queue.scan(0), SCANNED_PER_PAGE_MAX):
        if record.state in (READY, DELAYED):
            return record.published_us
    return 0


def view_record(record: Record) -> RecordView:
    """A record with all that is known of it."""
    tries, extras, lease = record.tries or NO_TRIES, record.extras or NO_EXTRAS, record.lease
    return RecordView(
        record.id,
        record.key,
        record.payload,
        record.state,
        record.place,
        record.published_us,
        tries.deliveries,
        tries.failures,
        tries.releases,
        tries.timeouts,
        extras.available_at_us,
        extras.expires_at_us,
        lease.until_us if lease is not None else 0,
        lease.token if lease is not None else 0,
        lease.owner if lease is not None else 0,
        extras.headers,
        extras.dedup_key,
        extras.reason,
        extras.origin,
        extras.lease_ms,
    )


def peek(st: State, name: str, count: int) -> list[RecordView] | Refusal:
    """The records that would be taken next."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    found: list[RecordView] = []
    size = 0
    for record in islice(queue.order.walk(), count):
        size += len(record.payload)
        if found and size > BYTES_PER_ANSWER_MAX:
            break
        found.append(view_record(record))
    return found


def get(st: State, name: str, record_id: int) -> RecordView | Refusal:
    """One record, in whatever state."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    record = queue.get(record_id)
    if record is None:
        return Refusal(e.NO_SUCH_RECORD, f"queue {name!r} has no record {record_id}")
    return view_record(record)


def browse(
    st: State, name: str, state: int | None, key_range: tuple[int, int] | None, cursor: int, count: int
) -> Page | Refusal:
    """Records in the order of their ids, from a cursor on."""
    queue = st.by_name.get(name)
    if queue is None:
        return no_such_queue(name)
    found: list[RecordView] = []
    size = 0
    for scanned, record in enumerate(queue.scan(cursor)):
        if len(found) == count or scanned == SCANNED_PER_PAGE_MAX or size > BYTES_PER_ANSWER_MAX:
            return Page(found, record.id)
        if state is not None and record.state != state:
            continue
        if key_range is not None and not key_range[0] <= record.key <= key_range[1]:
            continue
        found.append(view_record(record))
        size += len(record.payload)
    return Page(found, 0)


def list_jobs(st: State) -> list[JobView]:
    """Redrives under way, and those that ended lately."""
    return [
        JobView(job.id, job.redrive.queue, job.redrive.target, job.moved, job.skipped, job.done)
        for _, job in sorted(st.jobs.items())
        if job.redrive is not None
    ]


def list_bindings(st: State) -> list[BindingView]:
    """The bindings, by name."""
    return [st.bindings[name] for name in sorted(st.bindings)]
