"""The memory of a state counted anew, object by object: what the running account must equal after every entry."""

from __future__ import annotations

from penstock.engine import memory
from penstock.engine.bindings import binding_bytes
from penstock.engine.queue import Queue
from penstock.engine.records import Record
from penstock.engine.state import State


def recount(st: State) -> dict[str, int]:
    """Bytes by kind, from the objects themselves and not from any counter."""
    found = dict.fromkeys(st.memory_by_kind(), 0)
    for queue in (*st.by_uid.values(), *st.leaving.values()):
        _add_queue(found, queue)
    for staged in st.staged.by_serial.values():  # with those that were dropped and are not free yet
        found["staged"] += memory.STAGED_BYTES + memory.text_bytes(staged.query)
        for part in staged.parts.values():
            found["staged"] += memory.PART_BYTES + memory.items_bytes(part.puts)
    for name in (*st.former_names.values(), *st.owner_names.values()):
        found["names"] += memory.NAME_BYTES + memory.text_bytes(name)
    for query in st.published:
        found["names"] += memory.NAME_BYTES + memory.text_bytes(query)
    for job in st.jobs.values():
        found["jobs"] += memory.JOB_BYTES + memory.items_bytes([(piece.queue, piece.items) for piece in job.pieces])
        found["jobs"] += sum(memory.items_bytes(part.puts) for part in job.parts)
    for producer in st.producers.values():
        kept = producer.answers.values()
        found["producers"] += memory.PRODUCER_BYTES + sum(memory.ANSWER_BYTES + len(encoded) for _, encoded in kept)
    found["bindings"] = sum(map(binding_bytes, st.bindings.values()))
    found["shared bodies"] = sum(_bodies(st).values())
    found["timers"] = memory.BUCKET_BYTES * st.timers.buckets
    found["owners"] = memory.OWNER_BYTES * len(st.owners)
    return found


def _add_queue(found: dict[str, int], queue: Queue) -> None:
    layers = [queue.table.chunks, *queue.unswept]
    chunks = [chunk for layer in layers for chunk in layer.values()]
    records = [record for chunk in chunks for record in chunk.slots if record is not None]
    found["queues"] += memory.QUEUE_BYTES + memory.text_bytes(queue.name) + memory.CHUNK_BYTES * len(chunks)
    found["records"] += sum(memory.RECORD_BYTES + len(record.payload) for record in records if not _shared(record))
    found["records"] += memory.RECORD_BYTES * sum(map(_shared, records))
    found["records"] += memory.ORDER_KEY_BYTES * len({record.key for record in queue.order.walk()})
    found["options"] += sum(map(memory.options_bytes, records))
    found["options"] -= sum(len(record.extras.headers) for record in records if record.extras and _shared(record))
    found["leases"] += memory.LEASE_GROUP_BYTES * len(queue.leases)
    found["leases"] += memory.LEASED_BYTES * sum(map(_is_leased, records)) if not _is_leaving(queue) else 0
    found["deduplication"] += sum(memory.DEDUP_KEY_BYTES + memory.text_bytes(key) for key in queue.dedup.ids)


def _shared(record: Record) -> bool:
    return record.extras is not None and record.extras.shared > 0


def _bodies(st: State) -> dict[int, int]:
    """What each shared body costs, by its position."""
    found: dict[int, int] = {}
    for queue in (*st.by_uid.values(), *st.leaving.values()):
        for layer in (queue.table.chunks, *queue.unswept):
            for record in (record for chunk in layer.values() for record in chunk.slots if record is not None):
                if record.extras and record.extras.shared:
                    content_bytes = len(record.payload) + len(record.extras.headers)
                    found[record.extras.shared] = memory.BODY_BYTES + content_bytes
    return found


def _is_leased(record: Record) -> bool:
    return record.lease is not None


def _is_leaving(queue: Queue) -> bool:
    return not any(queue.counts)
