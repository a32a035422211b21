"""Saving the whole state as blocks, and restoring it.

``begin`` marks the state as it is at this index and returns the blocks lazily: each is encoded when it is asked for, in
a step of well under a millisecond, while commands go on being applied. What those change meanwhile works on copies
(``chunks``), so the blocks show the state at the index where they began, and equal logs give equal bytes.

Only what cannot be derived is saved: the order of ready records, lease groups, owners and timers are rebuilt.
A block is a MessagePack array whose first element says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from penstock.engine.chunks import Chunk
from penstock.engine.commands import QueueSettings, encode
from penstock.engine.jobs import Job, Slice
from penstock.engine.machine import Engine
from penstock.engine.producers import Kept, Producer
from penstock.engine.queue import LeaseGroup, Queue, Totals
from penstock.engine.records import DELAYED, LEASED, READY, Lease, Record
from penstock.engine.staging import Part, Staged
from penstock.engine.state import OWNER_TERM_SHIFT, Owner, State
from penstock.engine.timers import (
    DELAY_END,
    EXPIRY,
    JOB_STEP,
    LEASE_END,
    OWNER_END,
    STAGE_END,
)
from penstock.engine.views import BindingView

VERSION: Final = 1

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

BLOCK_BYTES_MAX: Final = 8 * 1024 * 1024
"""A block of records holds no more payload than this, but at least one record."""

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
    while engine.sweep():
        pass  # purged records are no part of the state; what is left of them is freed first
    head = (HEAD, VERSION, st.index, st.term, st.stamp_us, st.payload_bytes_max, st.queues_max)
    blocks: list[Blocks] = [_ready(encode(head))]
    frozen: list[Chunk] = []
    for _, queue in sorted(st.by_uid.items()):
        blocks.append(_ready(_encode_queue(queue)))
        for _, chunk in queue.table.freeze():
            frozen.append(chunk)
            blocks.append(_records_blocks(queue.uid, chunk))
        blocks += [_later((DEDUP, queue.uid, entries)) for entries in queue.dedup.freeze()]
    for number, producer in st.producers.items():
        blocks.append(_later((PRODUCER, number, producer.heard_us, list(producer.answers.items()))))
    for _, staged in sorted(st.staged.items()):
        name = (staged.serial, staged.query, staged.batch, staged.partition, staged.attempt, staged.ends_us)
        blocks += [_later((STAGED, name, part)) for _, part in sorted(staged.parts.items())]
    blocks.append(_ready(encode((FORMER_NAMES, list(st.former_names.items())))))
    blocks.append(_ready(encode((PUBLISHED, sorted(st.published.items())))))
    blocks += [_ready(encode((BINDING, st.bindings[name]))) for name in sorted(st.bindings)]
    for _, job in sorted(st.jobs.items()):
        blocks.append(_ready(encode((JOB, msgspec.structs.replace(job, pieces=[])))))
        blocks += [_later((PIECE, job.id, piece)) for piece in job.pieces]
    return _run(blocks, frozen)


def _run(blocks: list[Blocks], frozen: list[Chunk]) -> Iterator[bytes]:
    try:
        for block in blocks:
            yield from block()
    finally:
        for chunk in frozen:
            chunk.frozen = False


def _ready(data: bytes) -> Blocks:
    return lambda: (data,)


def _later(value: Any) -> Blocks:
    return lambda: (encode(value),)


def _records_blocks(uid: int, chunk: Chunk) -> Blocks:
    def blocks() -> Iterator[bytes]:
        records = [record for record in chunk.slots if record is not None]
        chunk.frozen = False  # the list above is the copy now
        start = size = 0
        for position, record in enumerate(records):
            size += len(record.payload)
            if size > BLOCK_BYTES_MAX and position > start:
                yield encode((RECORDS, uid, records[start:position]))
                start, size = position, len(record.payload)
        yield encode((RECORDS, uid, records[start:]))

    return blocks


def _encode_queue(queue: Queue) -> bytes:
    return encode(
        (QUEUE, queue.uid, queue.name, queue.settings, queue.paused, queue.next_id, queue.next_place, queue.totals)
    )


_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    HEAD: msgspec.msgpack.Decoder(list[int]),  # whatever its length, so that another version is told as such
    QUEUE: msgspec.msgpack.Decoder(tuple[int, int, str, QueueSettings, bool, int, int, Totals]),
    RECORDS: msgspec.msgpack.Decoder(tuple[int, int, list[Record]]),
    DEDUP: msgspec.msgpack.Decoder(tuple[int, int, list[tuple[int, str, int]]]),
    PRODUCER: msgspec.msgpack.Decoder(tuple[int, int, int, list[tuple[int, Kept]]]),
    STAGED: msgspec.msgpack.Decoder(tuple[int, tuple[int, str, int, int, int, int], Part]),
    PUBLISHED: msgspec.msgpack.Decoder(tuple[int, list[tuple[str, int]]]),
    BINDING: msgspec.msgpack.Decoder(tuple[int, BindingView]),
    JOB: msgspec.msgpack.Decoder(tuple[int, Job]),
    PIECE: msgspec.msgpack.Decoder(tuple[int, int, Slice]),
    FORMER_NAMES: msgspec.msgpack.Decoder(tuple[int, list[tuple[int, str]]]),
}


def decode_block(number: int, block: bytes) -> tuple[int, Any]:
    """The kind of a block, counted from 0, and its values. Raises ``SnapshotError`` for what it cannot read."""
    try:
        # Every block is an array of at most 15 elements, whose first is a small number: two bytes tell its kind.
        kind = block[1]
        values = _DECODERS[kind].decode(block)
        if (number == 0) != (kind == HEAD):
            raise SnapshotError(number, "the head is not where it belongs")
        if kind == HEAD and values[1] != VERSION:
            raise SnapshotError(number, f"version {values[1]} is not known here")
    except (LookupError, ValueError, RecursionError) as problem:
        raise SnapshotError(number, f"{problem.__class__.__name__}: {problem}") from problem
    return kind, values


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

    def load(self, kind: int, values: Any) -> None:
        st = self.state
        if kind == HEAD:
            _, _, st.index, st.term, st.stamp_us, st.payload_bytes_max, st.queues_max = values
        elif kind == QUEUE:
            _, uid, name, settings, paused, next_id, next_place, totals = values
            queue = Queue(uid, name, settings)
            queue.paused, queue.next_id, queue.next_place, queue.totals = paused, next_id, next_place, totals
            st.add_queue(queue)
        elif kind == RECORDS:
            self._load_records(st.by_uid[values[1]], values[2])
        elif kind == DEDUP:
            for expires_us, key, record_id in values[2]:
                st.by_uid[values[1]].dedup.remember(key, record_id, expires_us, values[1], st.timers)
        elif kind == PRODUCER:
            producer = Producer(values[2])
            producer.answers = dict(values[3])
            st.producers[values[1]] = producer
        elif kind == STAGED:
            serial, query, batch, partition, attempt, ends_us = values[1]
            staged = Staged(serial, query, batch, partition, attempt, ends_us, {})
            staged = st.staged.setdefault(staged.name, staged)
            staged.parts[values[2].number] = values[2]
            st.staged_bytes += values[2].payload_bytes()
            st.timers.add(staged.ends_us, (STAGE_END, staged.serial))
        elif kind == PUBLISHED:
            st.published = dict(values[1])
        elif kind == FORMER_NAMES:
            st.former_names = dict(values[1])
        elif kind == BINDING:
            st.bindings[values[1].name] = values[1]
        elif kind == PIECE:
            st.jobs[values[1]].pieces.append(values[2])
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
        append = queue.order.append
        published_us = 0
        for record in records:
            if record.lease is not None:
                record = self._join_lease(queue, record)
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
            queue.payload_bytes += len(record.payload)
            if state == READY:
                if record.place > last_place:
                    last_place = record.place
                    append(record)
                else:
                    queue.order.insert(record)
            extras = record.extras
            if extras is not None:
                if state == DELAYED:
                    timers.add(extras.available_at_us, (DELAY_END, uid, record.id))
                if extras.expires_at_us and state in (READY, DELAYED, LEASED):
                    timers.add(extras.expires_at_us, (EXPIRY, uid, record.id))
        self.last_place[queue.uid] = last_place

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
            owner.leases += 1
            owner.groups.add((queue.uid, name))
        return record

    def finish(self) -> Engine:
        st = self.state
        for number in sorted(st.owners):
            if number >> OWNER_TERM_SHIFT < st.term:
                st.timers.add_soon((OWNER_END, number))
        return Engine(st)
