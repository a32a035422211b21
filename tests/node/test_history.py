"""The search for one message: in turns, with bounded memory, and given up when its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.node import history as searching
from tests.engine.driving import Drive


def failing(times: int) -> Drive:
    """A message that a connection with a name takes and gives back some times, among others."""
    drive = Drive()
    owner = drive.owner(1)
    drive.create("jobs")
    drive.put("jobs")
    drive.put("jobs", key=9)
    drive.do(c.NameOwner(owner, "größer"), owner)
    for number in range(times):
        taken = drive.take("jobs", owner=owner)
        handles = [(record.id, taken.token) for record in taken.records]
        drive.do(c.Return("jobs", handles, c.NACK, 0, 0, f"try {number}"), owner)
    return drive


class Stub:
    """As much of a node as a search needs: the journal in blocks of one row, and turns that are counted."""

    def __init__(self, drive: Drive) -> None:
        self.engine = drive.engine
        self.store = SimpleNamespace(journal_rows=self.blocks, entries=lambda: self.read)
        self.feeding = self
        self.turns = self.blocks_read = self.entries_read = 0
        self.on_turn: Callable[[], None] = lambda: None
        self._drive = drive

    def blocks(self, first_index: int, last_index: int) -> Iterator[bytes]:
        for row in self._drive.rows:
            self.blocks_read += 1
            yield row

    def read(self, index: int) -> bytes | None:
        self.entries_read += 1
        return self._drive.log[index][1]

    async def in_turn(self, work: Callable[[], Any]) -> Any:
        self.turns += 1
        self.on_turn()
        await asyncio.sleep(0)
        return work()


def search(stub: Any) -> Any:
    return asyncio.run(searching.history(stub, "jobs", 1))


def test_a_search_reads_the_journal_once_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SLICE_BYTES", 10 * j.ROW_BYTES)
    drive = failing(50)
    stub = Stub(drive)
    events = search(stub)
    assert [event.kind_name for event in events] == ["put", *["taken", "returned"] * 50]
    assert {event.owner_name for event in events} == {"", "größer"}
    assert [event.text for event in events if event.text] == [f"try {number}" for number in range(50)]
    assert stub.blocks_read == len(drive.rows)
    assert stub.turns >= len(drive.rows) // 10 + stub.entries_read


def test_only_the_last_events_texts_and_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "EVENTS_MAX", 20)
    monkeypatch.setattr(searching, "TEXTS_MAX", 5)
    stub = Stub(failing(50))
    events = search(stub)
    assert [event.text for event in events if event.kind == j.RETURNED] == [
        *[""] * 5,
        *[f"try {number}" for number in range(45, 50)],
    ]
    assert len(events) == 20
    assert stub.entries_read == 6, "five texts and a name"


def test_names_of_connections_that_ended_are_not_kept() -> None:
    drive = failing(1)
    drive.do(c.OwnerGone(drive.owner(1)))
    found = searching.Search(drive.engine.state.by_name["jobs"].uid, 1)
    assert not found.look_through(iter(drive.rows))
    assert not found._names
    assert len(found._named) == 1


def test_purges_and_the_end_of_the_queue_are_told_while_the_message_lives() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.do(c.Purge("jobs"))
    drive.put("jobs")
    drive.do(c.Purge("jobs"))
    assert [event.kind_name for event in search(Stub(drive))] == ["put", "queue purged"]


def test_a_search_ends_when_its_client_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SLICE_BYTES", 1)
    stub = Stub(failing(50))

    async def main() -> None:
        task = asyncio.ensure_future(searching.history(stub, "jobs", 1))  # type: ignore[arg-type]
        stub.on_turn = lambda: (task.cancel() if stub.turns == 3 else None) and None
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert stub.blocks_read == 2
