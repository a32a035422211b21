"""Writes the fixture of a format: two small data directories with every kind of state, and what is in them.

Run it on the source of the release whose format is to be kept; README.md says how.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Raw

from penstock.client.events import read_events
from penstock.engine import commands as c
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.journal import DOOR_NATIVE, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.history import HistoryFiles
from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from tests.storage.formats.dumping import dump_event, dump_state

BEGAN_US = 1_700_000_000_000_000
STEP_US = 10_000
CLUSTER_ID = bytes(range(16, 32))
NODE_ID = 0
SEGMENT_BYTES = 16 * 1024
TERM = 1
OWNER = TERM << 32 | 1
PRODUCER = 77


class Writer:
    """A node without a loop: entries go into the log, are applied, and their events into the journal."""

    def __init__(self, path: Path) -> None:
        self.engine = Engine()
        settings = StoreSettings(segment_bytes=SEGMENT_BYTES, reserve_bytes=0)
        self.store, _ = Store.open(
            path, row_bytes=ROW_BYTES, new_cluster_id=CLUSTER_ID, node_id=NODE_ID, settings=settings
        )
        self.store.save_metadata(TERM, NODE_ID)
        self._request = 0
        self.apply(c.NewTerm(NODE_ID, 16 << 20, 10_000))

    def apply(self, *args: Any, producer: int = 0, later_us: int = 0) -> list[Any]:
        """One entry with these commands; returns their answers."""
        st = self.engine.state
        index = st.index + 1
        commands = []
        for each in args:
            self._request += 1
            commands.append(
                Command(c.OPS[type(each)], DOOR_NATIVE, OWNER, producer, self._request, c.encode(each), each)
            )
        stamp_us = max(st.stamp_us, BEGAN_US) + STEP_US + later_us
        data = encode_entry(Entry(stamp_us, commands))
        self.store.append([(index, TERM, data)])
        self.store.sync()
        answers = list(self.engine.apply(index, TERM, decode_entry(data)))
        self.store.journal_append(index, b"".join(st.rows))
        st.rows.clear()
        st.woken.clear()
        st.broadcasts.clear()
        return answers

    def take(self, queue: str, count: int, lease_ms: int | None = None) -> list[tuple[int, int]]:
        """Take records; returns their handles."""
        (taken,) = self.apply(c.Take(queue, count, lease_ms))
        return [(record.id, taken.token) for record in taken.records]

    def snapshot(self) -> None:
        st = self.engine.state
        writer = self.store.begin_snapshot(st.index, st.term)
        for block in engine_snapshot.begin(self.engine):
            writer.write_block(block)
        writer.finish()


def items(count: int, text: str, **options: Any) -> list[c.Item]:
    chosen = c.Options(**options) if options else None
    return [c.Item(number % 5 - 2, f"{text} {number}".encode(), chosen) for number in range(count)]


def make_queues(writer: Writer) -> None:
    make = c.QueueSettings
    writer.apply(
        c.CreateQueue("dead", make()),
        c.CreateQueue("jobs", make(lease_ms=30_000, deliveries_max=2, dead_letter="dead", dedup_window_ms=86_400_000)),
        c.CreateQueue("bounded", make(implementation=c.QA, key_range=(-10, 10), size_max=40, payload_bytes_max=500)),
        c.CreateQueue("falling", make(descending=True, expires_ms=3_600_000, dead_letter="dead")),
        c.CreateQueue("gone", make()),
    )
    writer.apply(c.Put("gone", items(3, "gone")), c.DeleteQueue("gone"))
    writer.apply(c.ChangeQueue("falling", c.QueueChanges(dead_letter_expired=True)), c.Pause("bounded", True))


def make_records(writer: Writer, mark: str) -> None:
    """Records in every state, ended ones too, in each queue."""
    headers = Raw(c.encode({"from": mark}))
    writer.apply(c.Put("jobs", items(30, mark)), c.Put("", items(8, mark)), c.Put("bounded", items(12, mark)))
    writer.apply(c.Put("jobs", items(4, mark, delay_ms=3_600_000)))
    writer.apply(c.Put("jobs", items(4, mark, expires_ms=7_200_000, headers=headers)))
    writer.apply(c.Put("falling", items(6, mark, lease_ms=5_000)), c.Put("falling", items(2, mark, expires_ms=1)))
    for number in range(3):
        writer.apply(c.Put("jobs", items(1, mark, dedup_key=f"{mark} key {number}")))
    writer.apply(c.Put("jobs", items(1, mark, dedup_key=f"{mark} key 0")), producer=PRODUCER)
    writer.apply(c.Take("jobs", 2, 3_600_000), producer=PRODUCER)
    writer.apply(c.Ack("jobs", writer.take("jobs", 5)))
    for _ in range(2):
        writer.apply(c.Return("jobs", writer.take("jobs", 3), c.NACK, 0, 7))
    writer.apply(c.Return("jobs", writer.take("jobs", 2), c.RELEASE))
    writer.apply(c.Bury("jobs", writer.take("jobs", 3)))
    writer.apply(c.Extend("jobs", writer.take("jobs", 4, 60_000), 7_200_000))
    writer.take("", 2, 0)  # bound to the connection
    first = [record.id for record in writer.engine.state.by_name["bounded"].scan(0)][:3]
    writer.apply(c.Edit("bounded", first[0], 9), c.Delete("bounded", first[1:2]), c.Move("bounded", first[2:], ""))
    writer.apply(c.Tick(), later_us=2_000_000)


def make_work(writer: Writer, mark: str, batch: int) -> None:
    """Staged and published parts, jobs under way, bindings and topic messages."""
    writer.apply(c.Stage("query", batch, 0, 5, 0, [("jobs", items(3, mark)), ("", items(1, mark))]))
    writer.apply(c.Stage("query", batch, 1, 6, 0, [("jobs", items(2, mark))]))
    writer.apply(c.Publish("query", batch, [(0, 5), (1, 6)]), producer=PRODUCER)
    writer.apply(c.Stage(f"open-{mark}", 1, 0, 1, 0, [("falling", items(3, mark))]))
    writer.apply(c.Bind(f"binding-{mark}", "spec", "", "falling", 60_000), c.Broadcast(1, b"tag", b"body", "spec", "t"))
    writer.apply(c.Redrive("dead", "bounded", rate_per_s=1, reason=7))


def fill(writer: Writer, rounds: int) -> None:
    """Traffic that ends at once, to seal segments."""
    for number in range(rounds):
        writer.apply(c.Put("", items(20, f"passing {number}")), c.Take("", 18, final=True))
    writer.apply(c.CreateQueue("purged", c.QueueSettings()), c.Put("purged", items(9, "purged")), c.Purge("purged"))


def write(path: Path, *, is_killed: bool) -> None:
    """One data directory: a snapshot amid sealed segments, and as much again after it."""
    writer = Writer(path)
    make_queues(writer)
    make_records(writer, "early")
    make_work(writer, "early", 1)
    fill(writer, 25)
    writer.snapshot()
    make_records(writer, "late")
    make_work(writer, "late", 2)
    for _ in range(15):
        writer.apply(c.Put("jobs", items(1, "last")))
    expected = dump_state(writer.engine)
    if is_killed:
        target = path.with_name(f"{path.name}.files")
        shutil.copytree(path, target)
        writer.store.close()
        shutil.rmtree(path)
        target.rename(path)
        _tear(Layout(path))
    else:
        writer.store.close()
    with HistoryFiles(path) as files:
        reach = files.reach()
        events = [dump_event(event) for event in read_events(files, reach.first_index, reach.applied_index)]
    described = {"state": expected, "history": [reach.first_index, reach.applied_index], "events": events}
    path.with_name(f"{path.name}.json").write_text(json.dumps(described, indent=0), encoding="utf-8")


def _tear(layout: Layout) -> None:
    """Leave the first half of a record behind the last one, as a crash does."""
    with layout.log.open("r+b") as file:
        file.seek(len(file.read().rstrip(b"\0")))
        file.write(b"\x01\0\0\0\x80\0\0\0PNSK half a record")


def main() -> None:
    """Write the fixture to the path that the command line names."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for name in ("stopped", "killed"):
            write(root / name, is_killed=name == "killed")
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for name in ("stopped", "stopped.json", "killed", "killed.json"):
                archive.add(root / name, name, filter=_anonymous)
    print(f"{target}: {target.stat().st_size} bytes")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    main()
