"""Histories to read: a data directory with so many events, made by the real engine and storage without a node.

Messages of 100 bytes of JSON go through eight queues: put, taken a little later, acknowledged. One in twenty is left
lying, so that there is a backlog too. Log time is made up: a million events take half an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from penstock.engine.answers import Answer, Taken
from penstock.engine.commands import Ack, CreateQueue, Item, NewTerm, Put, PutMany, QueueSettings, Take, encode
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.journal import DOOR_ETZEL, DOOR_MONIQUE, DOOR_NATIVE, DOOR_TASKFLUX, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from penstock.wire.native.messages import CODES

PAYLOAD_BYTES = 100
QUEUES = tuple(f"work-{number}" for number in range(8))
_DOORS = (DOOR_NATIVE, DOOR_TASKFLUX, DOOR_ETZEL, DOOR_MONIQUE)
_MESSAGES = 1_000
"""Messages of an entry, and of a command."""
_LEFT_LYING = 20
_BEGIN_US = 1_767_225_600_000_000
_ENTRY_US = 1_800_000
"""A million events are 3,000 per three entries: each entry stands for so much time."""
_SYNC_EVERY = 64
_SHORT_SEGMENT_BYTES = 8 * 1024 * 1024


@dataclass
class History:
    """A data directory that is being made."""

    store: Store
    engine: Engine
    stamp_us: int
    events: int = 0
    messages: int = 0

    def grow(self, events: int) -> None:
        """Add so many events, or a few more."""
        goal = self.events + events
        if self.engine.state.index < 0:
            self._begin()
        while self.events < goal:
            self._round()
        self.store.sync()

    def grow_singly(self, events: int) -> None:
        """Add puts of one message each, one per entry, as a single client on a fast disk makes them."""
        if self.engine.state.index < 0:
            self._begin()
        for _ in range(events):
            self._apply([Put(QUEUES[0], [Item(0, make_payload(self.messages))])])
            self.messages += 1
        self.store.sync()

    def _begin(self) -> None:
        settings = QueueSettings()
        self._apply([NewTerm(1), *(CreateQueue(name, settings) for name in QUEUES)])

    def _round(self) -> None:
        """One entry each that puts, takes and acknowledges."""
        number = self.messages // _MESSAGES
        queue, door = QUEUES[number % len(QUEUES)], _DOORS[number % len(_DOORS)]
        items = [Item(position % 10 * 100, make_payload(self.messages + position)) for position in range(_MESSAGES)]
        self._apply([PutMany([(queue, items)])], door)
        wanted = _MESSAGES - _MESSAGES // _LEFT_LYING
        (taken,) = self._apply([Take(queue, wanted, 60_000)], door)
        assert isinstance(taken, Taken)
        self._apply([Ack(queue, [(record.id, taken.token) for record in taken.records])], door)
        self.messages += _MESSAGES

    def _apply(self, commands: list[object], door: int = DOOR_NATIVE) -> list[Answer]:
        self.stamp_us += _ENTRY_US
        owner = 1 << 32 | door
        made = [Command(CODES[type(each)], door, owner, 0, 0, encode(each), each) for each in commands]
        entry = Entry(self.stamp_us, made)
        st = self.engine.state
        index = st.index + 1
        data = encode_entry(entry)
        self.store.append([(index, 1, data)])
        answers = self.engine.apply(index, 1, entry)
        self.events += len(st.rows)
        self.store.journal_append(index, b"".join(st.rows), len(data))
        for leftovers in (st.rows, st.woken, st.broadcasts):
            leftovers.clear()
        if index % _SYNC_EVERY == 0:
            self.store.sync()
        return answers


def make_payload(number: int) -> bytes:
    """A small order in JSON. Half of it is as good as random, so that it shrinks as messages do, and not to nothing."""
    drawn = blake2b(number.to_bytes(8, "little"), digest_size=28).hexdigest()
    payload = f'{{"order":{number},"customer":"{drawn[:16]}","cart":"{drawn[16:]}"}}'
    return payload.ljust(PAYLOAD_BYTES).encode()


@contextmanager
def growing(data_dir: Path, segment_bytes: int = StoreSettings().segment_bytes) -> Iterator[History]:
    """A history in this directory: a new one, or one that was made before and goes on."""
    settings = StoreSettings(segment_bytes=segment_bytes, reserve_bytes=0, retention_bytes=1 << 60)
    store, recovered = Store.open(
        data_dir, row_bytes=ROW_BYTES, new_cluster_id=bytes(range(16)), node_id=0, settings=settings
    )
    try:
        engine = Engine()
        history = History(store, engine, _BEGIN_US)
        for index, term, data in recovered.entries:
            entry = decode_entry(data)
            assert entry is not None, "the history was not made here"
            engine.apply(index, term, entry)
            history.events += len(engine.state.rows)
            history.messages += _MESSAGES if entry.commands[0].op == CODES[PutMany] else 0
            history.stamp_us = entry.stamp_us
            if index > recovered.journal_last_index:
                store.journal_append(index, b"".join(engine.state.rows), len(data))
            for leftovers in (engine.state.rows, engine.state.woken, engine.state.broadcasts):
                leftovers.clear()
        yield history
    finally:
        store.close()


def make_single_history(data_dir: Path, events: int) -> list[Path]:
    """Make a history with one event per entry; returns the logs of its sealed segments."""
    with growing(data_dir, _SHORT_SEGMENT_BYTES) as history:
        history.grow_singly(events)
    layout = Layout(data_dir)
    return [layout.sealed_log(first) for first in layout.sealed_first_indexes()]


def make_history(data_dir: Path, events: int) -> int:
    """Make a history with so many events, or a few more; tells how many."""
    with growing(data_dir) as history:
        history.grow(events)
        return history.events
