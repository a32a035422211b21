"""The tasks of one spec: where they wait, and which record stands for which task.

A binding of the engine copies every `config` message of the spec into a queue. The queue and the binding have the same
name, made from the spec, so that they are found again after a restart and by an operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.doors.monique.publishing import PACKED, TECH
from penstock.engine.commands import RECORDS_PER_COMMAND_MAX, Bind, Delete
from penstock.engine.names import is_queue_name
from penstock.engine.records import Record
from penstock.engine.state import State
from penstock.wire.monique.bodies import peek_tag
from penstock.wire.monique.errors import MoniqueError
from penstock.wire.monique.tags import Dialect, pack_tag_frame, parse_tag

PREFIX: Final = "monique/"
"""What the names of all queues and bindings of the controller begin with."""
TASK_TYPE: Final = "config"
_SPARE: Final = 1000
_SLICE_COST: Final = 2000
"""What `TaskIndex.catch_up` does at a time, a few milliseconds: 1 for a record, and 1 for each KiB of its payload."""
_COST_BYTES: Final = 1024

_headers_decoder: Final = msgspec.msgpack.Decoder(dict[str, str])


def queue_name(spec: str) -> str | None:
    """The name of the queue and the binding of a spec; None where it would be too long to be one."""
    plain = "".join(
        chr(byte) if 33 <= byte <= 126 and byte != ord("%") else f"%{byte:02X}" for byte in spec.encode("utf-8")
    )
    name = PREFIX + plain
    return name if spec and is_queue_name(name) else None


def wanted_bindings(specs: Iterable[str], timeout_ms: int, state: State) -> list[Bind]:
    """What has to be bound, changed or paused so that these specs are bound and no others of ours are."""
    wanted: dict[str, Bind] = {}
    for spec in specs:
        name = queue_name(spec)
        if name is not None:
            wanted[name] = Bind(name, spec, TASK_TYPE, name, timeout_ms, False)
    for view in state.bindings.values():
        if view.name.startswith(PREFIX) and view.name not in wanted:
            wanted[view.name] = Bind(view.name, view.spec, view.type, view.queue, view.timeout_ms, True)
    return [bind for bind in wanted.values() if not _is_set(bind, state)]


def _is_set(bind: Bind, state: State) -> bool:
    view = state.bindings.get(bind.name)
    return (
        view is not None
        and bind.queue in state.by_name
        and (view.spec, view.type, view.queue) == (bind.spec, bind.type, bind.queue)
        and (view.timeout_ms, view.paused) == (bind.timeout_ms, bind.paused)
    )


class Task(NamedTuple):
    """A task as a worker gets it."""

    id: str
    tag_frame: bytes
    """The first frame of the message, in the form in which it came."""
    on_com: bool = True
    """What was published on the technical channel is copied too, but is not for workers."""


def task_of(headers: bytes, payload: bytes) -> Task | None:
    """The task that a record holds: by the headers of the binding, else, put by another door, by the body itself.

    None where it is neither.
    """
    try:
        found = _headers_decoder.decode(headers) if headers else {}
        if "tag" not in found:
            named, dialect = peek_tag(payload)
            return Task(named.id, pack_tag_frame(named.encode(), dialect))
        tag, channel = found["tag"].encode("latin-1"), int(found.get("channel", "0"))
        frame = pack_tag_frame(tag, Dialect.LEGACY if channel & PACKED else Dialect.CURRENT)
        return Task(parse_tag(tag).id, frame, not channel & TECH)
    except (ValueError, MoniqueError):
        return None


class TaskIndex:
    """Finds the records of a queue by the ids of their tasks.

    Records are read in slices, so that a queue of any length does not hold up the event loop.
    """

    def __init__(self, state: State, queue: str) -> None:
        self._state = state
        self._queue = queue
        self._queue_uid = 0
        self._next_record = 1
        self._unread: Iterator[Record | None] = iter(())
        """Those before `_next_record` that are still to be read."""
        self._records: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def catch_up(self) -> bool:
        """Read a slice of the records that have come since the last time; true when there are no more."""
        queue = self._state.by_name.get(self._queue)
        if queue is None:
            return True
        if queue.uid != self._queue_uid:  # the first time, or it was deleted and made again
            self._queue_uid = queue.uid
            self._records.clear()
            self._next_record = queue.next_id
            self._unread = _before(queue.next_id, queue.scan(1))
        cost = 0
        while True:
            for record in self._unread:
                cost += 1 + (self._note(record) if record is not None else 0)
                if cost >= _SLICE_COST:
                    return False
            if self._next_record == queue.next_id:
                break
            self._unread = map(queue.get, range(self._next_record, queue.next_id))
            self._next_record = queue.next_id
        if len(self._records) > 2 * sum(queue.counts) + _SPARE:
            self._forget_ended()
        return True

    def _note(self, record: Record) -> int:
        """Remember the task of a record; returns what reading its payload cost at most."""
        task = task_of(record.extras.headers if record.extras is not None else b"", record.payload)
        if task is not None and task.id and task.on_com:
            self._records.setdefault(task.id, []).append(record.id)
        return len(record.payload) // _COST_BYTES

    def _forget_ended(self) -> None:
        """Records also end without a result: they expire, or an operator deletes them."""
        queue = self._state.by_name[self._queue]
        living = {task: [each for each in ids if queue.get(each)] for task, ids in self._records.items()}
        self._records = {task: ids for task, ids in living.items() if ids}

    def ends(self, task_id: str) -> list[Delete]:
        """What ends the records of a task that is done, in whatever state they are; they are not looked for again."""
        ids = self._records.pop(task_id, [])
        return [
            Delete(self._queue, ids[at : at + RECORDS_PER_COMMAND_MAX], True, self._queue_uid)
            for at in range(0, len(ids), RECORDS_PER_COMMAND_MAX)
        ]


def _before(end_id: int, records: Iterable[Record]) -> Iterator[Record]:
    """Those of the records whose ids are below this one: later ones may come while the others are read."""
    return (record for record in records if record.id < end_id)
