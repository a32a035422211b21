"""Saving the whole state as blocks, and restoring it.

``begin`` marks the state as it is at this index and returns the blocks lazily: each is encoded when it is asked for, in
a step of well under a millisecond, while commands go on being applied. What those change meanwhile works on copies
(``chunks``), so the blocks show the state at the index where they began, and equal logs give equal bytes.

Only what cannot be derived is saved: the order of ready records, lease groups, owners and timers are rebuilt.
A block is a MessagePack array whose first element says what it is.

Copies of one topic message share payload and headers. The snapshot has these once, in a block of their own before the
first block with such a record; the records are without them. Version 1 had no such blocks, and is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from penstock.engine.commands import QueueSettings, encode
from penstock.engine.jobs import Job, Slice, remaining_pieces
from penstock.engine.machine import Engine
from penstock.engine.managing import remember_name
from penstock.engine.memory import JOBS, items_bytes
from penstock.engine.owners import keep_owner_name
from penstock.engine.producers import Kept, Producer
from penstock.engine.queue import Frozen, LeaseGroup, Queue, Totals
from penstock.engine.records import BURIED, DELAYED, FIRST_TRY, LEASED, NO_EXTRAS, READY, Lease, Record, content_bytes
from penstock.engine.staged import Part, Staged, StagedName
from penstock.engine.staging import add_part, add_staged, remember_batch
from penstock.engine.state import OWNER_TERM_SHIFT, STAGED_FOR_US, Owner, State
from penstock.engine.timers import (
    DELAY_END,
    EXPIRY,
    JOB_STEP,
    LEASE_END,
    OWNER_END,
)
from penstock.engine.views import BindingView, Origin

VERSION: Final = 2
_VERSIONS: Final = (1, VERSION)

HEAD: Final = 0
QUEUE: Final = 1
RECORDS: Final = 2
DEDUP: Final = 3
PRODUCER: Final = 4
STAGED: Final = 5
PUBLISHED: Final = 6
BINDING: Final = 7
JOB: Final = 8
PIECE: Final = 9
FORMER_NAMES: Final = 10
OWNER_NAMES: Final = 11
OWNERS_GONE: Final = 12
BODY: Final = 13

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""A block of records holds no more payload and headers than this, but at least one record."""

Blocks = Callable[[], Iterable[bytes]]


class SnapshotError(Exception):
    """A snapshot that cannot be read."""

    code = "snapshot"

    def __init__(self, block: int, reason: str) -> None:
        super().__init__(f"block {block} of the snapshot: {reason}")
        self.block = block
        self.reason = reason


def begin(engine: Engine) -> Iterator[bytes]:
    """Freeze the state at this index; the iterator encodes it block by block. It must be run to its end, or closed."""
    st = engine.state
    limits = (st.payload_bytes_max, st.queues_max)
    later = (st.wall_offset_us, st.kept_since_us, st.rules, st.staged_for_us)
    head = (HEAD, VERSION, st.index, st.term, st.stamp_us, *limits, *later)
    blocks: list[Blocks] = [_ready(encode(head))]
    frozen: list[Frozen] = []
    bodies: set[int] = set()
    for _, queue in sorted(st.by_uid.items()):
        blocks.append(_ready(_encode_queue(queue)))
        for chunks in queue.freeze():
            frozen.append(chunks)
            blocks.append(_records_blocks(queue.uid, chunks, bodies))
        blocks += [_later((DEDUP, queue.uid, entries)) for entries in queue.dedup.freeze()]
    for number, producer in st.producers.items():
        blocks.append(_later((PRODUCER, number, producer.heard_us, list(producer.answers.items()))))
    for batch in st.staged.in_order():
        blocks.append(_staged_blocks([(staged, [*staged.parts.values()]) for staged in batch.attempts.values()]))
    blocks.append(_ready(encode((FORMER_NAMES, list(st.former_names.items())))))
    if st.owner_names:
        blocks.append(_ready(encode((OWNER_NAMES, sorted(st.owner_names.items())))))
    blocks.append(_ready(encode((PUBLISHED, sorted(st.published.items())))))
    blocks += [_later((BINDING, st.bindings[name])) for name in sorted(st.bindings)]
    for _, job in sorted(st.jobs.items()):
        blocks.append(_ready(encode((JOB, msgspec.structs.replace(job, pieces=[], parts=[])))))
        blocks.append(_piece_blocks(msgspec.structs.replace(job, pieces=job.pieces.copy(), parts=job.parts.copy())))
    if st.owners_gone:
        blocks.append(_ready(encode((OWNERS_GONE, sorted(st.owners_gone.items())))))
    return _run(blocks, frozen)


def _run(blocks: list[Blocks], frozen: list[Frozen]) -> Iterator[bytes]:
    try:
        for block in blocks:
            yield from block()
    finally:
        for chunks in frozen:
            chunks.thaw()


def _ready(data: bytes) -> Blocks:
    return lambda: (data,)


def _later(value: Any) -> Blocks:
    return lambda: (encode(value),)


def _records_blocks(uid: int, chunks: Frozen, bodies: set[int]) -> Blocks:
    """The records of a chunk; ``bodies`` names the shared bodies that the snapshot has already."""

    def blocks() -> Iterator[bytes]:
        records = chunks.records()
        chunks.thaw()  # the list above is the copy now
        if not records:
            return
        start = size = 0
        for position, record in enumerate(records):
            extras = record.extras
            if extras is not None and extras.shared:
                if extras.shared not in bodies:
                    bodies.add(extras.shared)
                    yield encode((BODY, extras.shared, record.payload, extras.headers))
                record = records[position] = without_body(record)
            size += content_bytes(record)
            if size > BLOCK_BYTES_MAX and position > start:
                yield encode((RECORDS, uid, records[start:position]))
                start, size = position, content_bytes(record)
        yield encode((RECORDS, uid, records[start:]))

    return blocks


def without_body(record: Record) -> Record:
    """A record as a snapshot has it if it shares its payload and headers."""
    extras = msgspec.structs.replace(record.extras or NO_EXTRAS, headers=b"")
    return msgspec.structs.replace(record, payload=b"", extras=extras)


Bodies = dict[int, tuple[bytes, bytes]]
"""Payload and headers by position, as the blocks have them."""


def give_body(record: Record, bodies: Bodies) -> None:
    """Give a record that was read from a block its shared payload and headers back."""
    if record.extras is not None and record.extras.shared:
        record.payload, record.extras.headers = bodies[record.extras.shared]


def _encode_queue(queue: Queue) -> bytes:
    return encode(
        (QUEUE, queue.uid, queue.name, queue.settings, queue.paused, queue.next_id, queue.next_place, queue.totals)
    )


def _staged_blocks(attempts: list[tuple[Staged, list[Part]]]) -> Blocks:
    def blocks() -> Iterator[bytes]:
        for staged, parts in sorted(attempts, key=lambda each: (each[0].partition, each[0].attempt)):
            name = StagedName(staged.serial, *staged.name, staged.ends_us, staged.began_us)
            for part in sorted(parts, key=lambda part: part.number):
                yield encode((STAGED, name, part))

    return blocks


def _piece_blocks(job: Job) -> Blocks:
    return lambda: (encode((PIECE, job.id, piece)) for piece in remaining_pieces(job))


_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    HEAD: msgspec.msgpack.Decoder(list[int]),  # whatever its length, so that another version is told as such
    QUEUE: msgspec.msgpack.Decoder(tuple[int, int, str, QueueSettings, bool, int, int, Totals]),
    RECORDS: msgspec.msgpack.Decoder(tuple[int, int, list[Record]]),
    BODY: msgspec.msgpack.Decoder(tuple[int, int, bytes, bytes]),
    DEDUP: msgspec.msgpack.Decoder(tuple[int, int, list[tuple[int, str, int]]]),
    PRODUCER: msgspec.msgpack.Decoder(tuple[int, int, int, list[tuple[int, Kept]]]),
    STAGED: msgspec.msgpack.Decoder(tuple[int, StagedName, Part]),
    PUBLISHED: msgspec.msgpack.Decoder(tuple[int, list[tuple[str, int]]]),
    BINDING: msgspec.msgpack.Decoder(tuple[int, BindingView]),
    JOB: msgspec.msgpack.Decoder(tuple[int, Job]),
    PIECE: msgspec.msgpack.Decoder(tuple[int, int, Slice]),
    FORMER_NAMES: msgspec.msgpack.Decoder(tuple[int, list[tuple[int, str]]]),
    OWNER_NAMES: msgspec.msgpack.Decoder(tuple[int, list[tuple[int, str]]]),
    OWNERS_GONE: msgspec.msgpack.Decoder(tuple[int, list[tuple[int, int]]]),
}


def decode_block(number: int, block: bytes) -> tuple[int, Any]:
    """The kind of a block, counted from 0, and its values. Raises ``SnapshotError`` for what it cannot read."""
    try:
        # Every block is an array of at most 15 elements, whose first is a small number: two bytes tell its kind.
        kind = block[1]
        values = _DECODERS[kind].decode(block)
        if (number == 0) != (kind == HEAD):
            raise SnapshotError(number, "the head is not where it belongs")
        if kind == HEAD and values[1] not in _VERSIONS:
            raise SnapshotError(number, f"version {values[1]} is not known here")
    except (LookupError, ValueError, RecursionError) as problem:
        raise SnapshotError(number, f"{problem.__class__.__name__}: {problem}") from problem
    return kind, values


def wall_offset_us(head: list[int]) -> int:
    """How far log time was ahead of the wall clock, by the values of a head block; 0 in those of earlier versions."""
    return head[7] if len(head) > 7 else 0


def restore(blocks: Iterable[bytes]) -> Engine:
    """Build the state that a snapshot holds. Raises ``SnapshotError`` for what it cannot read."""
    loader = _Loader()
    for number, block in enumerate(blocks):
        kind, values = decode_block(number, block)
        try:
            loader.load(kind, values)
        except (LookupError, ValueError) as problem:
            raise SnapshotError(number, f"{problem.__class__.__name__}: {problem}") from problem
    if loader.state.index < 0:
        raise SnapshotError(0, "there is no head")
    return loader.finish()


class _Loader:
    """Puts blocks back together."""

    def __init__(self) -> None:
        self.state = State()
        self.leases: dict[tuple[int, int, int], Lease] = {}
        self.last_place: dict[int, int] = {}
        self.names: dict[str, str] = {}
        self.origin_us = 0
        self.bodies: Bodies = {}

    def load(self, kind: int, values: Any) -> None:
        st = self.state
        if kind == HEAD:
            _, _, st.index, st.term, st.stamp_us, st.payload_bytes_max, st.queues_max, *later = values
            # Snapshots of earlier versions end before some of these.
            defaults = (0, 0, 0, STAGED_FOR_US)
            later += defaults[len(later) :]
            st.wall_offset_us, st.kept_since_us, st.rules, st.staged_for_us = later
        elif kind == QUEUE:
            _, uid, name, settings, paused, next_id, next_place, totals = values
            queue = Queue(uid, name, settings)
            queue.paused, queue.next_id, queue.next_place, queue.totals = paused, next_id, next_place, totals
            st.add_queue(queue)
        elif kind == RECORDS:
            self._load_records(st.by_uid[values[1]], values[2])
        elif kind == BODY:
            self.bodies[values[1]] = values[2:]
        elif kind == DEDUP:
            for expires_us, key, record_id in values[2]:
                st.by_uid[values[1]].dedup.remember(key, record_id, expires_us, values[1], st.timers)
        elif kind == PRODUCER:
            producer = Producer(values[2])
            for request, kept in values[3]:
                producer.add(request, kept)
            st.producers.add(values[1], producer)
        elif kind == STAGED:
            name = values[1]
            staged = st.staged.by_serial.get(name.serial)
            if staged is None:
                staged = Staged(name.serial, name.query, name.batch, name.partition, name.attempt, name.ends_us, {})
                staged.began_us = name.began_us
                add_staged(st, staged)
            add_part(st, staged, values[2])
        elif kind == PUBLISHED:
            for query, batch in values[1]:
                remember_batch(st, query, batch)
        elif kind == FORMER_NAMES:
            for uid, name in values[1]:
                remember_name(st, uid, name)
        elif kind == OWNER_NAMES:
            for owner, name in values[1]:
                keep_owner_name(st, owner, name)
        elif kind == OWNERS_GONE:
            st.owners_gone = dict(values[1])
        elif kind == BINDING:
            st.bindings[values[1].name] = values[1]
        elif kind == PIECE:
            st.jobs[values[1]].pieces.append(values[2])
            st.memory.change(JOBS, items_bytes([(values[2].queue, values[2].items)]))
        else:
            self._load_job(values[1])

    def _load_job(self, job: Job) -> None:
        self.state.jobs[job.id] = job
        if not job.done and job.due_us:
            self.state.timers.add(job.due_us, (JOB_STEP, job.id))
        elif not job.done:
            self.state.timers.add_soon((JOB_STEP, job.id))

    def _load_records(self, queue: Queue, records: list[Record]) -> None:
        last_place = self.last_place.get(queue.uid, 0)
        timers, uid, counts, add = self.state.timers, queue.uid, queue.counts, queue.table.add
        append, count_in = queue.order.append, queue.count_in
        published_us = 0
        for record in records:
            give_body(record, self.bodies)
            if record.lease is not None:
                record = self._join_lease(queue, record)
            if record.tries == FIRST_TRY:
                record.tries = FIRST_TRY
            # Let equal integers be one again, as they were before: 64 bytes a record.
            if record.place == record.id:
                record.place = record.id
            if record.published_us == published_us:
                record.published_us = published_us
            else:
                published_us = record.published_us
            add(record)
            state = record.state
            counts[state] += 1
            count_in(record)
            if state == READY:
                if record.place > last_place:
                    last_place = record.place
                    append(record)
                else:
                    queue.order.insert(record)
            elif state == BURIED:
                queue.buried.add(record.id)
            extras = record.extras
            if extras is not None:
                if extras.origin is not None:
                    self._share_origin(record, extras.origin)
                if state == DELAYED:
                    timers.add(extras.available_at_us, (DELAY_END, uid, record.id))
                if extras.expires_at_us and state in (READY, DELAYED, LEASED):
                    timers.add(extras.expires_at_us, (EXPIRY, uid, record.id))
        self.last_place[queue.uid] = last_place
        queue.stale.add(queue)

    def _share_origin(self, record: Record, origin: Origin) -> None:
        """Let the origins of dead letters share their queue's name and their times again."""
        origin.queue = self.names.setdefault(origin.queue, origin.queue)
        if origin.moved_us == record.published_us:
            origin.moved_us = record.published_us
        if origin.published_us == self.origin_us:
            origin.published_us = self.origin_us
        else:
            self.origin_us = origin.published_us

    def _join_lease(self, queue: Queue, record: Record) -> Record:
        """Let the records of one take share their lease again, and rebuild its group."""
        st, lease = self.state, record.lease
        assert lease is not None
        shared = self.leases.setdefault((queue.uid, lease.serial, lease.until_us), lease)
        if shared == lease:
            record.lease = shared
        name = (lease.serial, lease.until_us)
        group = queue.leases.get(name)
        if group is None:
            group = queue.leases[name] = LeaseGroup([], 0, lease.owner)
            if lease.until_us:
                st.timers.add(lease.until_us, (LEASE_END, queue.uid, *name))
        group.ids.append(record.id)
        group.left += 1
        if not lease.until_us:
            owner = st.owners.setdefault(lease.owner, Owner())
            owner.hold(queue, name, lease.owner, 1)
        return record

    def finish(self) -> Engine:
        st = self.state
        for job in st.jobs.values():
            job.pieces.reverse()  # the blocks have the next one first
        for number in sorted(st.owners):
            if number >> OWNER_TERM_SHIFT < st.term or number in st.owners_gone:
                st.timers.add_soon((OWNER_END, number))
        return Engine(st)
