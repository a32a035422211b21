"""Making, changing, deleting, pausing and purging queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Created, Done
from penstock.engine.chunks import Chunk, ChunkTable
from penstock.engine.commands import (
    H4,
    QA,
    ChangeQueue,
    CreateQueue,
    DeleteQueue,
    Pause,
    Purge,
    QueueSettings,
)
from penstock.engine.errors import Refusal
from penstock.engine.memory import NAME_BYTES, NAMES, text_bytes
from penstock.engine.names import DEFAULT_QUEUE, is_queue_name
from penstock.engine.order import KeyOrder
from penstock.engine.queue import Queue
from penstock.engine.records import DELAYED, READY
from penstock.engine.state import State
from penstock.engine.timers import LEASE_END


def no_such_queue(name: str) -> Refusal:
    return Refusal(e.NO_SUCH_QUEUE, f"there is no queue {name!r}")


def create_queue(st: State, args: CreateQueue) -> Answer:
    """Make a queue, or find an equal one where that will do."""
    if not is_queue_name(args.name):
        return Refusal(e.BAD_QUEUE_NAME, "a queue's name has 1 to 255 characters between ! and ~")
    present = st.by_name.get(args.name)
    if present is not None:
        if args.if_absent and present.settings == args.settings:
            return Created(present.uid, False)
        hint = " with other settings" if args.if_absent else ""
        return Refusal(e.QUEUE_EXISTS, f"queue {args.name!r} exists already{hint}")
    made = add_queue(st, args.name, args.settings)
    return made if isinstance(made, Refusal) else Created(made.uid, True)


def add_queue(st: State, name: str, settings: QueueSettings) -> Queue | Refusal:
    """Make a queue that is known to be missing."""
    if not is_queue_name(name):
        return Refusal(e.BAD_QUEUE_NAME, "a queue's name has 1 to 255 characters between ! and ~")
    refusal = check_settings(st, name, settings)
    if refusal is not None:
        return refusal
    if len(st.by_name) >= st.queues_max:
        return Refusal(e.TOO_MANY_QUEUES, f"there are {st.queues_max} queues already", (st.queues_max,))
    queue = Queue(st.position, name, settings)
    st.add_queue(queue)
    st.row(j.QUEUE_CREATED, queue.uid, payload=st.locate(name.encode()))
    return queue


def check_settings(st: State, name: str, settings: QueueSettings) -> Refusal | None:
    """What speaks against these settings, if anything."""
    if settings.implementation not in (H4, QA):
        return Refusal(e.BAD_SETTINGS, f"implementation {settings.implementation} is neither H4 (1) nor QA (2)")
    if settings.implementation == QA and settings.key_range is None:
        return Refusal(e.BAD_SETTINGS, "QA needs a key range")
    if settings.key_range is not None and settings.key_range[0] > settings.key_range[1]:
        return Refusal(e.BAD_SETTINGS, "the key range ends before it begins")
    if settings.dead_letter is not None:
        if not is_queue_name(settings.dead_letter):
            return Refusal(e.BAD_QUEUE_NAME, "the dead-letter queue's name is not a queue's name")
        return _dead_letter_cycle(st, name, settings.dead_letter)
    return None


def _dead_letter_cycle(st: State, name: str, target: str | None) -> Refusal | None:
    trail = {name: None}  # in order, and found at once however long it is
    while target is not None:
        if target in trail:
            names = [repr(each) for each in (*trail, target)]
            if len(names) > 10:
                names[5:-4] = ["..."]
            return Refusal(e.DEAD_LETTER_CYCLE, "dead letters would go round: " + " -> ".join(names))
        trail[target] = None
        queue = st.by_name.get(target)
        target = queue.settings.dead_letter if queue is not None else None
    return None


FORMER_NAMES_MAX: Final = 10_000
FREED_PER_STEP: Final = 1_000
"""Records, leases or keys of a purged or deleted queue that are freed in one step."""


def change_queue(st: State, args: ChangeQueue) -> Answer:
    """Change those settings of a queue that may change."""
    queue = st.by_name.get(args.name)
    if queue is None:
        return no_such_queue(args.name)
    changes: dict[str, Any] = {
        field: value for field in args.changes.__struct_fields__ if (value := getattr(args.changes, field)) is not UNSET
    }
    settings = msgspec.structs.replace(queue.settings, **changes)
    refusal = check_settings(st, queue.name, settings)
    if refusal is not None:
        return refusal
    queue.settings = settings
    st.row(j.QUEUE_CHANGED, queue.uid)
    return Done(len(changes))


def delete_queue(st: State, args: DeleteQueue) -> Answer:
    """Delete a queue with all it holds, in one event."""
    queue = st.by_name.get(args.name)
    if queue is None:
        return no_such_queue(args.name)
    if args.name == DEFAULT_QUEUE:
        return Refusal(e.DEFAULT_QUEUE, "the default queue cannot be deleted")
    del st.by_name[queue.name]
    del st.by_uid[queue.uid]
    count = sum(queue.counts)
    queue.dedup.stop(queue.uid, st.timers)
    for number in queue.holders:
        st.owners[number].forget_queue(queue.uid)
        if not st.owners[number].queues:
            del st.owners[number]
    remember_name(st, queue.uid, queue.name)
    st.row(j.QUEUE_DELETED, queue.uid, value=queue.next_id - 1, payload=st.locate(queue.name.encode()))
    st.woken.add(queue.name)  # who waits for its records must be told
    layers = [queue.set_aside(count), *queue.purged]
    queue.counts = [0, 0, 0, 0]
    queue.table = ChunkTable()
    st.leaving[queue.uid] = queue
    for layer in layers:
        st.trash.append(_sweeper(st, queue, layer, keep=False))
    st.trash.append(_freer(st, queue))
    return Done(count)


def _freer(st: State, queue: Queue) -> Callable[[], bool]:
    """Free what a deleted queue holds besides its records, with the timers of its leases."""

    def free() -> bool:
        for _ in range(min(FREED_PER_STEP, len(queue.leases))):
            name, _group = queue.leases.popitem()
            if name[1]:
                st.timers.cancel(name[1], (LEASE_END, queue.uid, *name))
        queue.stale.add(queue)
        parts = (queue.order.free(FREED_PER_STEP), queue.dedup.free(FREED_PER_STEP), queue.buried.free())
        return not queue.leases and all(parts)

    return free


def remember_name(st: State, uid: int, name: str) -> None:
    """Keep the name of a queue that is gone, for readers of old events; the oldest one is forgotten for it."""
    st.former_names[uid] = name
    st.memory.change(NAMES, NAME_BYTES + text_bytes(name))
    if len(st.former_names) > FORMER_NAMES_MAX:
        forgotten = st.former_names.pop(next(iter(st.former_names)))
        st.memory.change(NAMES, -NAME_BYTES - text_bytes(forgotten))


def purge(st: State, args: Purge) -> Answer:
    """End all that waits in a queue, in one event; what is leased or buried stays."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    count = queue.counts[READY] + queue.counts[DELAYED]
    if count:
        layer = queue.set_aside(count)
        if sum(queue.counts) > count:
            queue.purged.append(layer)
        queue.table = ChunkTable()
        st.trash.append(partial(queue.order.free, FREED_PER_STEP))
        queue.order = KeyOrder(queue.settings.descending)
        queue.counts[READY] = queue.counts[DELAYED] = 0
        queue.totals.ended_otherwise += count
        st.trash.append(_sweeper(st, queue, layer, keep=True))
    st.row(j.QUEUE_PURGED, queue.uid, value=queue.next_place - 1)
    return Done(count)


def _sweeper(st: State, queue: Queue, layer: dict[int, Chunk], keep: bool) -> Any:
    """Free the records of a purged or deleted queue's chunks, one chunk a step."""

    def sweep() -> bool:
        if layer:
            _, chunk = layer.popitem()
            queue.unswept_chunks -= 1
            for record in chunk.slots:
                if record is None:
                    continue
                if not keep or record.state in (READY, DELAYED):
                    st.forget_timers(queue.uid, record)
                    queue.count_out(record)
                    queue.unswept_records -= 1
                else:
                    queue.table.add(record)
        if not layer:
            queue.purged = [other for other in queue.purged if other is not layer]
            queue.unswept = [other for other in queue.unswept if other is not layer]
        queue.stale.add(queue)
        if not queue.unswept and st.leaving.pop(queue.uid, None) is not None:
            st.memory.forget(queue)
        return not layer

    return sweep


def pause(st: State, args: Pause) -> Answer:
    """Stop or resume takes."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        return no_such_queue(args.queue)
    changed = queue.paused != args.paused
    queue.paused = args.paused
    if changed:
        st.row(j.QUEUE_PAUSED if args.paused else j.QUEUE_RESUMED, queue.uid)
        if not args.paused:
            st.woken.add(queue.name)
    return Done(int(changed))
