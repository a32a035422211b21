"""Histories written by the real engine and storage, without a node, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.engine import commands as c
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.journal import DOOR_NATIVE, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.disk import Disk
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import CLUSTER_ID, NODE_ID, FastDisk

SEGMENT_BYTES = 24 * 1024
BEGAN_US = 1_700_000_000_000_000


@dataclass
class Truth:
    """What was written: the entries, the events of each, and the state after all."""

    entries: list[bytes] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    engine: Engine = field(default_factory=Engine)

    def all_rows(self, first: int = 0, last: int = 10**9) -> bytes:
        return b"".join(self.rows[first : last + 1])


class Writer:
    """A node without a loop: entries go into the log, are applied, and their events into the journal."""

    def __init__(self, path: Path, truth: Truth | None = None, disk: Disk | None = None, **settings: int) -> None:
        self.truth = truth or Truth()
        chosen = StoreSettings(segment_bytes=SEGMENT_BYTES, reserve_bytes=0, **settings)
        self.store, recovered = Store.open(
            path,
            row_bytes=ROW_BYTES,
            new_cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            settings=chosen,
            disk=disk or FastDisk(),
        )
        for index, _, data in recovered.entries:
            self.store.journal_append(index, self.truth.rows[index], len(data))
        if not self.truth.entries:
            self.apply(c.Tick())  # a node's first entry makes no queue: 0 is the default queue's number

    def apply(self, *args: object) -> None:
        engine, index = self.truth.engine, self.truth.engine.state.index + 1
        commands = [Command(c.OPS[type(each)], DOOR_NATIVE, 1, 0, 0, c.encode(each), each) for each in args]
        data = encode_entry(Entry(BEGAN_US + index * 1_000_000, commands))
        self.store.append([(index, 1, data)])
        self.store.sync()
        engine.apply(index, 1, decode_entry(data))
        rows = b"".join(engine.state.rows)
        engine.state.rows.clear()
        engine.state.woken.clear()
        self.truth.entries.append(data)
        self.truth.rows.append(rows)
        self.store.journal_append(index, rows, len(data))

    def fill(self, rounds: int) -> None:
        """Puts large and small, takes that end at once, entries without events."""
        for number in range(rounds):
            items = [c.Item(place % 7, b"payload %d.%d" % (number, place)) for place in range(number % 5 * 40 + 1)]
            self.apply(c.Put("jobs", items))
            self.apply(c.Take("jobs", 20, final=True))
            self.apply(c.Tick())

    def snapshot(self) -> None:
        st = self.truth.engine.state
        writer = self.store.begin_snapshot(st.index, st.term)
        for block in engine_snapshot.begin(self.truth.engine):
            writer.write_block(block)
        writer.finish()
