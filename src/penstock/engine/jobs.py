"""Work that touches more records than one entry may: redrives, and the publication of staged records.

A job does a slice with each entry in which its timer is due; between slices it is state like all else, so it goes on
after a restart or on another leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done, JobStarted
from penstock.engine.commands import RECORDS_PER_COMMAND_MAX, CancelJob, Item, Redrive
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.memory import JOBS, items_bytes
from penstock.engine.operating import fits
from penstock.engine.putting import duplicate_row, place
from penstock.engine.queue import Queue
from penstock.engine.records import LEASED, Location, Record
from penstock.engine.returning import transfer
from penstock.engine.staged import Part
from penstock.engine.state import State
from penstock.engine.timers import JOB_STEP

SLICE_RECORDS: Final = 1_000
SCANNED_PER_SLICE: Final = 10_000
STEP_US: Final = 100_000
"""How often a redrive with a rate does its share of a second."""
ENDED_JOBS_KEPT: Final = 100
REDRIVES_MAX: Final = 1_000


class Slice(Struct, array_like=True, gc=False):
    """Staged records for one queue."""

    queue: str
    index: int
    """The entry that holds the payloads."""
    items: list[Item]
    locations: list[Location]


class Job(Struct, array_like=True):
    """A redrive (with ``redrive``) or a publication (with ``pieces`` and ``parts``).

    The next piece is the last of the list, where it can be taken off at no cost.
    """

    id: int
    redrive: Redrive | None = None
    pieces: list[Slice] = []
    source_uid: int = 0
    cursor: int = 0
    moved: int = 0
    skipped: int = 0
    """Records that match but have no origin, or do not fit the queue they should go to."""
    due_us: int = 0
    done: bool = False
    offset: int = 0
    """How many records of the last piece are in their queue."""
    parts: list[Part] = []
    """What is not cut into pieces yet, the next part last. A snapshot has it as pieces."""


def redrive(st: State, args: Redrive) -> Answer:
    """Begin to move matching records; the answer names the job, and the first slice follows with the next entry."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    if args.target is not None and args.target not in st.by_name:
        return no_such_queue(args.target)
    if args.target == args.queue:
        return Refusal(e.BAD_COMMAND, "records cannot be redriven into the queue they are in")
    if sum(not job.done for job in st.jobs.values()) >= REDRIVES_MAX:
        return Refusal(e.BAD_COMMAND, f"{REDRIVES_MAX} redrives are under way already")
    job = Job(st.position, args, source_uid=queue.uid)
    st.jobs[job.id] = job
    st.timers.add_soon((JOB_STEP, job.id))
    return JobStarted(job.id)


def cancel_job(st: State, args: CancelJob) -> Answer:
    """Stop a redrive; what it has moved stays moved. A publication cannot be stopped: it has been decided."""
    job = st.jobs.get(args.job)
    if job is None or job.redrive is None:
        return Refusal(e.NO_SUCH_JOB, f"there is no redrive {args.job}")
    if not job.done:
        _finish(st, job)
    return Done(job.moved)


def start_publication(st: State, job: Job) -> None:
    """Do the first slice of a publication at once, so that a small batch is visible with the entry that decides it."""
    st.jobs[job.id] = job
    st.spare -= _publish_slice(st, job, st.spare if st.rules else RECORDS_PER_COMMAND_MAX)


def step(st: State, job_id: int) -> int:
    """Do the next slice of a job; tells how many records it touched."""
    job = st.jobs.get(job_id)
    if job is None or job.done:
        return 0
    if job.redrive is not None:
        return _redrive_slice(st, job, job.redrive)
    return _publish_slice(st, job, SLICE_RECORDS)


def _again(st: State, job: Job, due_us: int) -> None:
    job.due_us = due_us
    if due_us:
        st.timers.add(due_us, (JOB_STEP, job.id))
    else:
        st.timers.add_soon((JOB_STEP, job.id))


def _finish(st: State, job: Job) -> None:
    job.done = True
    if job.redrive is None:
        del st.jobs[job.id]
        return
    ended = [other.id for other in st.jobs.values() if other.done]
    for job_id in sorted(ended)[:-ENDED_JOBS_KEPT]:
        del st.jobs[job_id]


def _redrive_slice(st: State, job: Job, args: Redrive) -> int:
    queue = st.by_uid.get(job.source_uid)
    if queue is None:
        _finish(st, job)
        return 0
    room = SLICE_RECORDS
    if args.rate_per_s:
        room = min(room, max(1, args.rate_per_s * STEP_US // 1_000_000))
    if args.count_max:
        room = min(room, args.count_max - job.moved)
    moved = scanned = 0
    chosen: list[tuple[Record, Queue]] = []
    more = False
    for record in queue.scan(job.cursor):
        if len(chosen) == room or scanned == SCANNED_PER_SLICE:
            more = True
            break
        scanned += 1
        job.cursor = record.id + 1
        if record.state != LEASED and _matches(record, args):
            target = _target(st, record, args)
            if target is None or target is queue or fits(target, record, 0, args.new_key)[0]:
                job.skipped += 1
            else:
                chosen.append((record, target))
    for record, target in chosen:
        # An earlier record of this slice may have filled the target.
        if fits(target, record, 0, args.new_key)[0]:
            job.skipped += 1
            continue
        queue.totals.ended_otherwise += 1
        transfer(st, queue, record, target, j.REASON_REDRIVE, j.MOVED_OUT, args.new_key)
        moved += 1
    job.moved += moved
    if more and not (args.count_max and job.moved >= args.count_max):
        # At a low rate a slice of one record stands for more than a step's time.
        wait_us = max(STEP_US, room * 1_000_000 // args.rate_per_s) if args.rate_per_s else 0
        _again(st, job, st.stamp_us + wait_us if wait_us else 0)
    else:
        _finish(st, job)
    return scanned


def _matches(record: Record, args: Redrive) -> bool:
    if args.key_range is not None and not args.key_range[0] <= record.key <= args.key_range[1]:
        return False
    return not args.reason or (record.extras is not None and record.extras.reason == args.reason)


def _target(st: State, record: Record, args: Redrive) -> Queue | None:
    if args.target is not None:
        return st.by_name.get(args.target)
    origin = record.extras.origin if record.extras is not None else None
    return st.by_name.get(origin.queue) if origin is not None else None


def pieces_of(part: Part) -> list[Slice]:
    """A staged part as pieces, the first one last."""
    cut = zip(reversed(part.puts), reversed(part.locations), strict=True)
    return [Slice(name, part.index, items, locations) for (name, items), locations in cut]


def remaining_pieces(job: Job) -> Iterator[Slice]:
    """The pieces that a publication has yet to put, in order; the first may have been put in part."""
    yield from reversed(job.pieces)
    for part in reversed(job.parts):
        yield from reversed(pieces_of(part))


def _publish_slice(st: State, job: Job, room: int) -> int:
    moved = 0
    while moved < room and (job.pieces or job.parts):
        if not job.pieces:
            job.pieces = pieces_of(job.parts.pop())
            continue
        piece, start = job.pieces[-1], job.offset
        end = min(len(piece.items), start + room - moved)
        moved += end - start
        job.offset = end
        if end == len(piece.items):
            job.pieces.pop()
            st.memory.change(JOBS, -items_bytes([(piece.queue, piece.items)]))
            job.offset = 0
        _publish_items(st, job, piece, start, end)
    job.moved += moved
    if job.pieces or job.parts:
        _again(st, job, 0)
    else:
        _finish(st, job)
    return moved


def _publish_items(st: State, job: Job, piece: Slice, start: int, end: int) -> None:
    queue = st.by_name.get(piece.queue)
    if queue is None:
        job.skipped += end - start  # its queue was deleted after the decision
        return
    for number in range(start, end):
        item = piece.items[number]
        first_id = _known(queue, item)
        if first_id is None:
            place(st, queue, item, 0, piece.index, piece.locations[number])
        else:
            duplicate_row(st, queue, item, first_id)
    st.woken.add(queue.name)


def _known(queue: Queue, item: Item) -> int | None:
    """The record with the same deduplication key that came while this one was staged, if one did."""
    if item.options is None or item.options.dedup_key is None:
        return None
    return queue.dedup.ids.get(item.options.dedup_key)
