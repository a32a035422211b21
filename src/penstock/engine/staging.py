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

from typing import Final

from msgspec import Struct

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done, Published
from penstock.engine.commands import RECORDS_PER_COMMAND_MAX, Abort, Item, Publish, Stage
from penstock.engine.errors import Refusal
from penstock.engine.jobs import Job, Slice, start_publication
from penstock.engine.managing import no_such_queue
from penstock.engine.putting import Location, headers_of, judge, locate, refuse_put
from penstock.engine.state import State
from penstock.engine.timers import STAGE_END

STAGED_FOR_US: Final = 24 * 3600 * 1_000_000
QUERIES_MAX: Final = 100_000
"""Queries whose last published batch is remembered, which is for ever. From then on a new one cannot stage, unless it
says that it need not be remembered."""
QUERIES_PUBLISHED_MAX: Final = 2 * QUERIES_MAX
"""So many there are at most: what was staged before the limit was reached is published all the same, and a writer that
asks to be remembered only when it publishes finds an end, too."""


class Part(Struct, array_like=True, gc=False):
    """What one Stage command brought."""

    number: int
    index: int
    """The entry that holds the payloads."""
    puts: list[tuple[str, list[Item]]]
    locations: list[list[Location]]
    """Where each item lies in that entry."""

    def payload_bytes(self) -> int:
        """What its payloads cost in memory."""
        return sum(len(item.payload) for _, items in self.puts for item in items)


class Staged(Struct, array_like=True):
    """All that one attempt at a partition has staged."""

    serial: int
    query: str
    batch: int
    partition: int
    attempt: int
    ends_us: int
    parts: dict[int, Part]

    @property
    def name(self) -> tuple[str, int, int, int]:
        """What it is found by."""
        return self.query, self.batch, self.partition, self.attempt


def stage(st: State, args: Stage) -> Answer:
    """Keep records of an attempt, unseen. A part that is there already is not kept twice."""
    total = sum(len(items) for _, items in args.puts)
    if total > RECORDS_PER_COMMAND_MAX:
        return Refusal(e.BAD_COMMAND, f"{total} records are more than {RECORDS_PER_COMMAND_MAX}")
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
    staged = st.staged.get((args.query, args.batch, args.partition, args.attempt))
    if staged is None:
        ends_us = st.stamp_us + STAGED_FOR_US
        staged = Staged(st.position, args.query, args.batch, args.partition, args.attempt, ends_us, {})
        st.staged[staged.name] = staged
        st.timers.add(ends_us, (STAGE_END, staged.serial))
    if args.part not in staged.parts:
        part = staged.parts[args.part] = Part(args.part, st.index, args.puts, _locations(st, args))
        st.staged_bytes += part.payload_bytes()
        st.row(j.STAGED, value=args.batch, key=total)
        return Done(total)
    return Done(0)


def _locations(st: State, args: Stage) -> list[list[Location]]:
    found: list[list[Location]] = []
    start = 0
    for _, items in args.puts:
        found.append([])
        for item in items:
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
    chosen: list[Staged] = []
    for partition, attempt in sorted(args.attempts):
        staged = st.staged.get((args.query, args.batch, partition, attempt))
        if staged is None:
            text = f"nothing is staged for batch {args.batch}, partition {partition}, attempt {attempt}"
            return Refusal(e.BATCH_NOT_STAGED, text, (partition, attempt))
        chosen.append(staged)
    slices: list[Slice] = [
        Slice(name, part.index, items, locations)
        for staged in chosen
        for _, part in sorted(staged.parts.items())
        for (name, items), locations in zip(part.puts, part.locations, strict=True)
    ]
    count = sum(len(piece.items) for piece in slices)
    if args.records not in (0, count):
        # An attempt may have been dropped half-way, and begun anew by its later parts.
        text = f"{count} records are staged for batch {args.batch}, there should be {args.records}"
        return Refusal(e.BATCH_INCOMPLETE, text, (count, args.records))
    if args.is_last:
        st.published.pop(args.query, None)
    elif _has_no_place(st, args.query, QUERIES_PUBLISHED_MAX):
        return _stage_full(QUERIES_PUBLISHED_MAX)
    else:
        st.published[args.query] = args.batch
    for staged in list(st.staged.values()):
        if staged.query == args.query and staged.batch <= args.batch:
            forget_staged(st, staged)
    st.row(j.PUBLISHED, value=args.batch, key=count)
    start_publication(st, Job(st.position, pieces=slices))
    return Published(count, True)


def abort(st: State, args: Abort) -> Answer:
    """Drop what is staged for a batch."""
    gone = [staged for staged in st.staged.values() if (staged.query, staged.batch) == (args.query, args.batch)]
    for staged in gone:
        forget_staged(st, staged)
    if gone:
        st.row(j.ABORTED, value=args.batch)
    return Done(len(gone))


def forget_staged(st: State, staged: Staged) -> None:
    st.timers.cancel(staged.ends_us, (STAGE_END, staged.serial))
    del st.staged[staged.name]
    st.staged_bytes -= sum(part.payload_bytes() for part in staged.parts.values())
