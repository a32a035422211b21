"""On a full disk only commands that free space are taken, and none once the reserve for them is used."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.entries import Command, Entry
from penstock.engine.journal import DOOR_NATIVE
from penstock.engine.machine import Engine
from penstock.node.freeing import refuse_on_full_disk


def command(args: Any) -> Command:
    return Command(c.OPS[type(args)], DOOR_NATIVE, 1, 0, 0, c.encode(args), args)


@pytest.fixture
def engine() -> Engine:
    """Ten records in the queue "jobs", of which ids 1 to 4 are held."""
    engine = Engine()
    items = [c.Item(0, b"payload") for _ in range(10)]
    entry = Entry(1, [command(c.CreateQueue("jobs", c.QueueSettings())), command(c.Put("jobs", items))])
    engine.apply(0, 1, Entry(0, []))  # the default queue has the number that the first command of all would give
    engine.apply(1, 1, entry)
    engine.apply(2, 1, Entry(2, [command(c.Take("jobs", 4, 60_000))]))
    return engine


def held_handles(engine: Engine) -> list[tuple[int, int]]:
    records = engine.state.by_name["jobs"].scan(0)
    return [(record.id, record.lease.token) for record in records if record.lease is not None]


def is_taken(engine: Engine, args: Any, *, is_spent: bool = False) -> bool:
    refusal = refuse_on_full_disk(engine.state, command(args), is_spent)
    assert refusal is None or refusal.code == e.DISK_FULL
    return refusal is None


def test_commands_that_end_at_least_half_of_what_they_name_are_taken(engine: Engine) -> None:
    handles = held_handles(engine)
    assert len(handles) == 4
    junk = [(900 + number, 5) for number in range(5)]
    uid = engine.state.by_name["jobs"].uid
    for useful in (
        c.Take("jobs"),
        c.Ack("jobs", handles),
        c.Ack("jobs", handles + junk[:4]),
        c.AckTake("jobs", handles),
        c.Delete("jobs", [handles[0][0]]),
        c.Delete("another", [handles[0][0]], uid=uid),
        c.Purge("jobs"),
        c.DeleteQueue("jobs"),
    ):
        assert is_taken(engine, useful), useful
        assert not is_taken(engine, useful, is_spent=True), "the last part is for the node's own work"
    for useless in (
        c.Ack("jobs", handles + junk),
        c.Ack("jobs", [(handles[0][0], 7)]),
        c.AckTake("jobs", junk),
        c.Ack("not there", handles),
        c.Delete("jobs", [900]),
        c.Delete("jobs", [handles[0][0]], uid=900),
        c.Purge(""),
        c.Purge("not there"),
        c.DeleteQueue("not there"),
    ):
        assert not is_taken(engine, useless), useless


def test_commands_that_free_nothing_are_refused(engine: Engine) -> None:
    handles = held_handles(engine)
    freeing = (c.Take, c.Ack, c.AckTake, c.Delete, c.Purge, c.DeleteQueue, c.Abort)
    for args in (
        c.Put("jobs", [c.Item(0, b"")]),
        c.Return("jobs", handles),
        c.Extend("jobs", handles, 1000),
        c.Bury("jobs", handles),
        c.Kick("jobs", [], 1),
        c.Edit("jobs", handles[0][0], 1),
        c.Move("jobs", [handles[0][0]], ""),
        c.Redrive("jobs", ""),
        c.Pause("jobs", True),
        c.Publish("query", 1, []),
    ):
        assert not isinstance(args, freeing)
        assert not is_taken(engine, args), args
