"""The table of records against a dictionary, while a snapshot holds on to what it saw."""

from __future__ import annotations

from hypothesis import strategies as s
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.engine.chunks import CHUNK_SLOTS, Chunk, ChunkTable
from penstock.engine.records import Record


def record(record_id: int, key: int = 0) -> Record:
    return Record(record_id, key, b"", record_id, 0)


class TableMachine(RuleBasedStateMachine):
    """Random changes to a table, with freezes in between."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ChunkTable()
        self.there: dict[int, Record] = {}
        self.next_id = CHUNK_SLOTS - 2
        self.frozen: list[tuple[int, Chunk]] = []
        self.seen: list[Record] = []

    @rule(step=s.sampled_from((1, 1, 1, CHUNK_SLOTS)))
    def add(self, step: int) -> None:
        self.next_id += step
        self.there[self.next_id] = record(self.next_id)
        self.table.add(self.there[self.next_id])

    @precondition(lambda self: self.there)
    @rule(data=s.data(), key=s.integers(1, 5))
    def replace(self, data: s.DataObject, key: int) -> None:
        record_id = data.draw(s.sampled_from(sorted(self.there)))
        self.there[record_id] = record(record_id, key)
        self.table.replace(self.there[record_id])

    @precondition(lambda self: self.there)
    @rule(data=s.data())
    def remove(self, data: s.DataObject) -> None:
        record_id = data.draw(s.sampled_from(sorted(self.there)))
        del self.there[record_id]
        self.table.remove(record_id)

    @precondition(lambda self: not self.frozen)
    @rule()
    def freeze(self) -> None:
        self.frozen = self.table.freeze()
        self.seen = [self.there[record_id] for record_id in sorted(self.there)]

    @precondition(lambda self: self.frozen)
    @rule()
    def finish_the_snapshot(self) -> None:
        for _, chunk in self.frozen:
            chunk.frozen = False
        self.frozen = []

    @invariant()
    def the_table_is_as_the_dictionary(self) -> None:
        assert list(self.table.scan(0)) == [self.there[record_id] for record_id in sorted(self.there)]
        for record_id in (*self.there, 0, self.next_id + 1):
            assert self.table.get(record_id) == self.there.get(record_id)
        for first in (CHUNK_SLOTS, self.next_id - 1):
            assert [r.id for r in self.table.scan(first)] == [i for i in sorted(self.there) if i >= first]

    @invariant()
    def the_snapshot_sees_what_it_saw(self) -> None:
        if self.frozen:
            assert [r for _, chunk in self.frozen for r in chunk.slots if r is not None] == self.seen

    @invariant()
    def empty_chunks_go(self) -> None:
        alive = {record_id // CHUNK_SLOTS for record_id in self.there}
        # The one that is being filled may stay.
        assert alive <= set(self.table.chunks) <= alive | {self.next_id // CHUNK_SLOTS}


TestTable = TableMachine.TestCase
