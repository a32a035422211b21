"""Damaged log entries, applied: apply is total, and what it changes can be saved and restored."""

from __future__ import annotations

from fuzz.runner import Target
from penstock.engine import Engine, snapshot
from penstock.engine import commands as c
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry

_STAMP_US = 1_700_000_000_000_000


def _command(args: object, producer: int = 0) -> Command:
    op = c.OPS[type(args)]
    return Command(op, 2, 1 << 32 | 7, producer, 1, c.encode(args), args)


_HISTORY: list[list[Command]] = [
    [_command(c.NewTerm(0))],
    [_command(c.CreateQueue("q", c.QueueSettings(deliveries_max=1, dead_letter="dead")))],
    [_command(c.CreateQueue("dead", c.QueueSettings()))],
    [_command(c.Put("q", [c.Item(1, b"one"), c.Item(2, b"two", c.Options(1000, 5000, dedup_key="k"))]), producer=5)],
    [_command(c.Take("q", 2))],
    [_command(c.Return("q", [(1, 4 << 16)], c.NACK))],
    [_command(c.Redrive("dead"))],
    [_command(c.Stage("w", 1, 0, 0, 0, [("q", [c.Item(1, b"staged")])])), _command(c.Publish("w", 1, [(0, 0)]))],
    [_command(c.Purge("q")), _command(c.DeleteQueue("q"))],
]
_ENTRIES = [encode_entry(Entry(_STAMP_US + 1000 * index, commands)) for index, commands in enumerate(_HISTORY)]


def _apply(data: bytes) -> None:
    """Apply the good history with one entry damaged, then save and restore."""
    engine = Engine()
    damaged = len(data) % len(_ENTRIES)
    for index, entry in enumerate([*_ENTRIES[:damaged], data, *_ENTRIES[damaged:]]):
        engine.apply(index, 1, decode_entry(entry))
        engine.state.rows.clear()
    blocks = list(snapshot.begin(engine))
    assert list(snapshot.begin(snapshot.restore(blocks))) == blocks


def _snapshot() -> list[bytes]:
    engine = Engine()
    for index, entry in enumerate(_ENTRIES[:8]):
        engine.apply(index, 1, decode_entry(entry))
    return list(snapshot.begin(engine))


def _restore(data: bytes) -> None:
    """One block of a snapshot is damaged: the first of its kind, or the head."""
    blocks = _snapshot_blocks[:]
    kinds = [block[1:2] for block in blocks]
    blocks[kinds.index(data[1:2]) if data[1:2] in kinds else 0] = data
    snapshot.restore(blocks)


_snapshot_blocks = _snapshot()

TARGETS = (
    Target("engine-entries", lambda: list(_ENTRIES), _apply, ()),
    Target("engine-snapshot", _snapshot, _restore, (snapshot.SnapshotError,)),
)
