"""What is staged: attempts by (query, batch), so that a decision about a batch never looks at another one.

A batch that is published or dropped leaves in one step, whatever it holds: it is detached here, and ``staging`` frees
it a little at a time. ``by_serial`` and the calendar of timers may name a detached attempt until then; ``live`` knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.engine.commands import Item
from penstock.engine.memory import PART_BYTES, items_bytes
from penstock.engine.records import Location


class Part(Struct, array_like=True, gc=False):
    """What one Stage command brought."""

    number: int
    index: int
    """The entry that holds the payloads."""
    puts: list[tuple[str, list[Item]]]
    locations: list[list[Location]]
    """Where each item lies in that entry."""

    def memory_bytes(self) -> int:
        """What it costs in memory."""
        return PART_BYTES + items_bytes(self.puts)

    def records(self) -> int:
        """How many records it has."""
        return sum(len(items) for _, items in self.puts)


class Staged(Struct, array_like=True):
    """All that one attempt at a partition has staged."""

    serial: int
    query: str
    batch: int
    partition: int
    attempt: int
    ends_us: int
    parts: dict[int, Part]
    records: int = 0
    parts_bytes: int = 0
    """What the parts cost in memory."""
    began_us: int = 0
    """When its first part came; 0 where an earlier version staged it."""

    @property
    def name(self) -> tuple[str, int, int, int]:
        """What it is found by."""
        return self.query, self.batch, self.partition, self.attempt


class StagedName(Struct, array_like=True, gc=False):
    """What a snapshot has of an attempt besides its parts."""

    serial: int
    query: str
    batch: int
    partition: int
    attempt: int
    ends_us: int
    began_us: int = 0


class Batch:
    """The attempts of one batch of one query, by (partition, attempt)."""

    __slots__ = ("attempts", "parts")

    def __init__(self) -> None:
        self.attempts: dict[tuple[int, int], Staged] = {}
        self.parts = 0


class StagedBatches:
    """All batches that are staged."""

    __slots__ = ("_count", "by_serial", "queries")

    def __init__(self) -> None:
        self.queries: dict[str, dict[int, Batch]] = {}
        self.by_serial: dict[int, Staged] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many attempts are staged."""
        return self._count

    def batch(self, query: str, number: int) -> Batch | None:
        """What is staged for a batch."""
        batches = self.queries.get(query)
        return None if batches is None else batches.get(number)

    def live(self, serial: int) -> Staged | None:
        """The attempt with this serial, unless it was detached."""
        staged = self.by_serial.get(serial)
        if staged is None:
            return None
        batch = self.batch(staged.query, staged.batch)
        if batch is None or batch.attempts.get((staged.partition, staged.attempt)) is not staged:
            return None
        return staged

    def add(self, staged: Staged) -> None:
        """A new attempt, which has no parts yet."""
        batch = self.queries.setdefault(staged.query, {}).setdefault(staged.batch, Batch())
        batch.attempts[staged.partition, staged.attempt] = staged
        self.by_serial[staged.serial] = staged
        self._count += 1

    def add_part(self, staged: Staged, part: Part) -> int:
        """Another part of an attempt; returns what it costs in memory."""
        size_bytes = part.memory_bytes()
        staged.parts[part.number] = part
        staged.records += part.records()
        staged.parts_bytes += size_bytes
        self.queries[staged.query][staged.batch].parts += 1
        return size_bytes

    def detach_batch(self, query: str, number: int) -> Batch | None:
        """Take a whole batch out, in one step; what it leaves in ``by_serial`` is for the caller to free."""
        batches = self.queries.get(query)
        batch = None if batches is None else batches.pop(number, None)
        if batches is not None and not batches:
            del self.queries[query]
        if batch is not None:
            self._count -= len(batch.attempts)
        return batch

    def detach(self, staged: Staged) -> None:
        """Take one attempt out, in one step."""
        batches = self.queries[staged.query]
        batch = batches[staged.batch]
        del batch.attempts[staged.partition, staged.attempt]
        batch.parts -= len(staged.parts)
        self._count -= 1
        if not batch.attempts:
            del batches[staged.batch]
            if not batches:
                del self.queries[staged.query]

    def in_order(self) -> Iterator[Batch]:
        """The batches in the order of their names."""
        for _, batches in sorted(self.queries.items()):
            for _, batch in sorted(batches.items()):
                yield batch
