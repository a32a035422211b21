"""Staging for writers that must not write twice: Stage, Publish, Abort.

A writer's task stages what it has under (query, batch, partition, attempt); nothing of it can be seen. Publishing names
one attempt per partition and decides in one entry; a batch that was published once is never published again, so a
writer that repeats itself adds nothing. The records then move into their queues, the first of them in the same entry,
the rest in slices (``jobs``).

For that the last batch of every query is remembered, unless it is published as the query's last one. Then the query is
forgotten with it. A repeat of such a publication adds nothing either, since nothing is staged for it any more, but is
refused: that the first one succeeded its writer learns from the answers kept for its producer, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done, Published
from penstock.engine.commands import RECORDS_PER_COMMAND_MAX, Abort, Publish, Stage
from penstock.engine.errors import Refusal
from penstock.engine.jobs import Job, start_publication
from penstock.engine.managing import no_such_queue
from penstock.engine.memory import JOBS, NAME_BYTES, NAMES, PART_BYTES, STAGED, STAGED_BYTES, text_bytes
from penstock.engine.putting import empty_group, headers_of, judge, locate, refuse_put
from penstock.engine.records import Location
from penstock.engine.staged import Batch, Part, Staged
from penstock.engine.state import State
from penstock.engine.timers import STAGE_END

QUERIES_MAX: Final = 100_000
"""Queries whose last published batch is remembered, which is for ever. From then on a new one cannot stage, unless it
says that it need not be remembered."""
QUERIES_PUBLISHED_MAX: Final = 2 * QUERIES_MAX
"""So many there are at most: what was staged before the limit was reached is published all the same, and a writer that
asks to be remembered only when it publishes finds an end, too."""
BATCHES_PER_QUERY_MAX: Final = 1_000
"""Batches of one query that can be staged at a time; a publication looks at each of them."""
PARTS_PER_BATCH_MAX: Final = 100_000
"""Parts of one batch, in all its attempts: a publication puts those that it names in order."""
FREED_PER_STEP_RECORDS: Final = 1_000
FREED_PER_STEP_ATTEMPTS: Final = 100


def stage(st: State, args: Stage) -> Answer:
    """Keep records of an attempt, unseen. A part that is there already is not kept twice."""
    total = sum(len(items) for _, items in args.puts)
    if total > RECORDS_PER_COMMAND_MAX:
        return Refusal(e.BAD_COMMAND, f"{total} records are more than {RECORDS_PER_COMMAND_MAX}")
    refusal = empty_group(st, args.puts)
    if refusal is not None:
        return refusal
    position = 0
    for name, items in args.puts:
        queue = st.by_name.get(name)
        if queue is None:
            return no_such_queue(name)
        for item in items:
            code, figure = judge(st, queue, item)
            # A full queue is no reason: what is staged comes later, and publication has been promised room.
            if code > 0 and code != e.QUEUE_FULL:
                return refuse_put(queue, code, figure, position)
            position += 1
    if args.batch <= st.published.get(args.query, -1):
        return Done(0)
    if not args.is_last and _has_no_place(st, args.query, QUERIES_MAX):
        return _stage_full(QUERIES_MAX)
    batch = st.staged.batch(args.query, args.batch)
    staged = None if batch is None else batch.attempts.get((args.partition, args.attempt))
    if staged is not None and args.part in staged.parts:
        return Done(0)
    if st.rules and _is_too_long(st, args.query, batch):
        return _batch_full(batch)
    if staged is None:
        ends_us = st.stamp_us + st.staged_for_us
        staged = Staged(st.position, args.query, args.batch, args.partition, args.attempt, ends_us, {})
        staged.began_us = st.stamp_us
        add_staged(st, staged)
    add_part(st, staged, Part(args.part, st.index, args.puts, _locations(st, args)))
    st.row(j.STAGED, value=args.batch, key=total)
    return Done(total)


def _is_too_long(st: State, query: str, batch: Batch | None) -> bool:
    if batch is None:
        return len(st.staged.queries.get(query, ())) >= BATCHES_PER_QUERY_MAX
    return batch.parts >= PARTS_PER_BATCH_MAX


def _batch_full(batch: Batch | None) -> Refusal:
    if batch is None:
        text = f"{BATCHES_PER_QUERY_MAX} batches of this query are staged already; publish or abort some"
        return Refusal(e.STAGE_FULL, text, (BATCHES_PER_QUERY_MAX,))
    text = f"the batch has {PARTS_PER_BATCH_MAX} parts already; stage more records in each"
    return Refusal(e.STAGE_FULL, text, (PARTS_PER_BATCH_MAX,))


def add_staged(st: State, staged: Staged) -> None:
    """Begin an attempt, and set the timer that ends it."""
    st.staged.add(staged)
    st.memory.change(STAGED, STAGED_BYTES + text_bytes(staged.query))
    st.timers.add(staged.ends_us, (STAGE_END, staged.serial))


def add_part(st: State, staged: Staged, part: Part) -> None:
    """Add to an attempt what one command brought."""
    st.memory.change(STAGED, st.staged.add_part(staged, part))


def _locations(st: State, args: Stage) -> list[list[Location]]:
    found: list[list[Location]] = []
    start = 0
    for _, items in args.puts:
        found.append([])
        for item in items:
            if item.options is not None:
                # Raw bytes refer to the whole body of the command, which must not stay for them.
                item.options.headers = item.options.headers.copy()
            payload_at, headers_at, start = locate(st, item.payload, headers_of(item.options), start)
            found[-1].append(Location(payload_at, headers_at))
    return found


def _has_no_place(st: State, query: str, limit: int) -> bool:
    return query not in st.published and len(st.published) >= limit


def _stage_full(limit: int) -> Refusal:
    return Refusal(e.STAGE_FULL, f"{limit} queries have published already", (limit,))


def publish(st: State, args: Publish) -> Answer:
    """Make the named attempts visible, once."""
    if args.batch <= st.published.get(args.query, -1):
        return Published(0, False)
    if len({partition for partition, _ in args.attempts}) < len(args.attempts):
        return Refusal(e.BAD_COMMAND, "a partition is named twice; one attempt at each can be published")
    batch = st.staged.batch(args.query, args.batch) or Batch()
    chosen: list[Staged] = []
    for partition, attempt in sorted(args.attempts):
        staged = batch.attempts.get((partition, attempt))
        if staged is None:
            text = f"nothing is staged for batch {args.batch}, partition {partition}, attempt {attempt}"
            return Refusal(e.BATCH_NOT_STAGED, text, (partition, attempt))
        chosen.append(staged)
    count = sum(staged.records for staged in chosen)
    if args.records not in (0, count):
        # An attempt may have been dropped half-way, and begun anew by its later parts.
        text = f"{count} records are staged for batch {args.batch}, there should be {args.records}"
        return Refusal(e.BATCH_INCOMPLETE, text, (count, args.records))
    if args.is_last:
        forget_query(st, args.query)
    elif _has_no_place(st, args.query, QUERIES_PUBLISHED_MAX):
        return _stage_full(QUERIES_PUBLISHED_MAX)
    else:
        remember_batch(st, args.query, args.batch)
    st.row(j.PUBLISHED, value=args.batch, key=count)
    parts = [part for staged in chosen for _, part in sorted(staged.parts.items())]
    for staged in chosen:
        staged.parts = {}  # they are the job's now, and not to be freed with the attempt
        st.memory.change(STAGED, -staged.parts_bytes)
    st.memory.change(JOBS, sum(staged.parts_bytes for staged in chosen) - PART_BYTES * len(parts))
    for number in [number for number in st.staged.queries.get(args.query, ()) if number <= args.batch]:
        _drop_batch(st, args.query, number)
    parts.reverse()
    start_publication(st, Job(st.position, parts=parts))
    return Published(count, True)


def remember_batch(st: State, query: str, batch: int) -> None:
    """The last batch of a query that was published."""
    if query not in st.published:
        st.memory.change(NAMES, NAME_BYTES + text_bytes(query))
    st.published[query] = batch


def forget_query(st: State, query: str) -> None:
    """No batch of a query follows."""
    if st.published.pop(query, None) is not None:
        st.memory.change(NAMES, -NAME_BYTES - text_bytes(query))


def abort(st: State, args: Abort) -> Answer:
    """Drop what is staged for a batch."""
    batch = st.staged.batch(args.query, args.batch)
    if batch is None:
        return Done(0)
    count = len(batch.attempts)
    _drop_batch(st, args.query, args.batch)
    st.row(j.ABORTED, value=args.batch)
    return Done(count)


def end_staged(st: State, serial: int) -> int:
    """The time of an attempt is over: drop it. Tells whether there was one."""
    staged = st.staged.live(serial)
    if staged is None:
        return 0
    st.staged.detach(staged)
    st.trash.append(_freer(st, {(staged.partition, staged.attempt): staged}))
    # By the first rules such timers did not count against the limit of an entry.
    return 1 if st.rules else 0


def _drop_batch(st: State, query: str, number: int) -> None:
    batch = st.staged.detach_batch(query, number)
    if batch is not None:
        st.trash.append(_freer(st, batch.attempts))


def _freer(st: State, detached: dict[tuple[int, int], Staged]) -> Callable[[], bool]:
    """Free attempts that were detached, with their timers, in small steps."""

    def free() -> bool:
        room = FREED_PER_STEP_RECORDS
        for _ in range(FREED_PER_STEP_ATTEMPTS):
            if not detached or room <= 0:
                break
            name, staged = detached.popitem()
            while staged.parts and room > 0:
                _, part = staged.parts.popitem()
                room -= 1 + part.records()
                st.memory.change(STAGED, -part.memory_bytes())
            if not staged.parts:
                st.memory.change(STAGED, -STAGED_BYTES - text_bytes(staged.query))
                st.timers.cancel(staged.ends_us, (STAGE_END, staged.serial))
                st.staged.by_serial.pop(staged.serial, None)
            else:
                detached[name] = staged
        return not detached

    return free
