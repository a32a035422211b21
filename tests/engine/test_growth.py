# ruff: noqa: E501 (a row of a table is a line)
"""How the cost of every command and every read grows, in steps (``steps``), with each size that it depends on.

Each row of the tables names a size, says how to build a state of that size and what to do with it, and whether the
cost may grow with it. What may not, costs the same for four times the size, except for the steps of a bisection. What
may, costs at most about twice as much for twice the size.

A command or a read that has no row here fails the tests, and so does a row that costs nothing at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.engine import commands as c
from penstock.engine import firing, jobs, reading
from penstock.engine.snapshot import begin
from tests.engine.driving import Asked, Drive, handles, item
from tests.engine.steps import count_steps

BISECTION_STEPS = 500
"""What a size may add through bisections, heaps and numbers of chunks."""


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond a limit is soon reached, so that fewer steps have to be counted."""
    monkeypatch.setattr(firing, "TIMERS_PER_ENTRY_MAX", 100)
    monkeypatch.setattr(firing, "RELEASED_PER_COMMAND_MAX", 100)
    monkeypatch.setattr(jobs, "SCANNED_PER_SLICE", 200)
    monkeypatch.setattr(reading, "SCANNED_PER_PAGE_MAX", 200)


Build = Callable[[int], tuple[Drive, Any]]


class Row(NamedTuple):
    """One size that a command or read depends on."""

    what: Any
    size: str
    grows: bool
    first: int
    build: Build


def queue(count: int, rules: int = c.RULES, **options: Any) -> Drive:
    """A queue ``jobs`` with ``count`` records, and an empty queue ``other``."""
    drive = Drive(rules)
    drive.create("jobs")
    drive.create("other")
    for start in range(0, count, 1000):
        drive.do(c.Put("jobs", [item(0, b"x", **options) for _ in range(min(1000, count - start))]))
    return drive


def leased(count: int, records: int = 0, **more: Any) -> tuple[Drive, list[tuple[int, int]]]:
    """The same, with the first records leased; and their handles."""
    drive = queue(max(count, records))
    held: list[tuple[int, int]] = []
    for start in range(0, count, 1000):
        held += handles(drive.take("jobs", min(1000, count - start), drive.owner(1), **more))
    return drive, held


def queues(count: int) -> Drive:
    drive = queue(5)
    drive.apply(*[Asked(c.CreateQueue(f"q{number}", c.QueueSettings())) for number in range(count)])
    return drive


def staged(attempts: int = 1, parts: int = 1, items: int = 1, query: str = "q") -> Drive:
    drive = queue(0)
    for attempt in range(attempts):
        for part in range(parts):
            drive.do(c.Stage(query, 1, attempt, 0, part, [("jobs", [item()] * items)]))
    return drive


def bound(count: int, spec: str = "s") -> Drive:
    drive = queue(0)
    drive.apply(*[Asked(c.Bind(f"b{number}", spec, "t", "jobs")) for number in range(count)])
    return drive


def bound_apart(count: int) -> Drive:
    """Bindings of which each has a type of its own."""
    drive = queue(0)
    drive.apply(*[Asked(c.Bind(f"b{number}", "s", f"t{number}", "jobs")) for number in range(count)])
    return drive


def with_jobs(count: int) -> Drive:
    drive = queue(5)
    drive.apply(*[Asked(c.Redrive("jobs", "other", key_range=(1, 1), rate_per_s=1)) for _ in range(count)])
    drive.tick()
    return drive


def owners(count: int) -> Drive:
    drive = queue(count)
    for connection in range(count):
        drive.take("jobs", 1, drive.owner(connection + 1), lease_ms=0)
    drive.term += 1
    return drive


def named(count: int) -> Drive:
    drive = queue(5)
    drive.apply(*[Asked(c.NameOwner(drive.owner(number), f"worker {number}")) for number in range(count)])
    drive.term += 1
    return drive


def chain(count: int) -> Drive:
    drive = Drive()
    for number in range(count):
        drive.create(f"q{number}", dead_letter=f"q{number + 1}")
    return drive


def buried(count: int, records: int = 0) -> Drive:
    drive = queue(max(count, records))
    drive.bury("jobs", *range(1, count + 1))
    return drive


def redriving(count: int) -> Drive:
    drive = queue(count)
    drive.do(c.Redrive("jobs", "other", key_range=(1, 1)))
    return drive


def due(count: int) -> Drive:
    drive = queue(count, delay_ms=1)
    drive.now_us += 1_000_000
    return drive


def due_leases(count: int) -> Drive:
    drive, held = leased(count, lease_ms=1)
    drive.do(c.Extend("jobs", held, 10))
    drive.now_us += 1_000_000
    return drive


def attempts_of(drive: Drive) -> list[tuple[int, int]]:
    (batch,) = drive.engine.state.staged.queries["q"].values()
    return list(batch.attempts)


def with_handles(make: Callable[[list[tuple[int, int]]], Any], **more: Any) -> Build:
    def build(count: int) -> tuple[Drive, Any]:
        drive, held = leased(count, **more)
        return drive, make(held)

    return build


def beside(make: Callable[[list[tuple[int, int]]], Any]) -> Build:
    """Ten leases of a queue with many records and many other leases."""

    def build(count: int) -> tuple[Drive, Any]:
        drive, held = leased(count, 2 * count)
        return drive, make(held[:10])

    return build


def ids(count: int) -> list[int]:
    return list(range(1, count + 1))


ITEM = [item(0, b"x")]
ON_HANDLES: dict[type[Any], Callable[[list[tuple[int, int]]], Any]] = {
    c.Ack: lambda held: c.Ack("jobs", held),
    c.AckTake: lambda held: c.AckTake("jobs", held, 1),
    c.Return: lambda held: c.Return("jobs", held),
    c.Extend: lambda held: c.Extend("jobs", held, 1000),
    c.Bury: lambda held: c.Bury("jobs", held),
}

COMMANDS: list[Row] = [
    *[Row(kind, "handles", True, 100, with_handles(make)) for kind, make in ON_HANDLES.items()],
    *[Row(kind, "other records and leases", False, 1000, beside(make)) for kind, make in ON_HANDLES.items()],
    Row(c.NewTerm, "owners", True, 100, lambda n: (owners(n), c.NewTerm(1, rules=c.RULES))),
    Row(c.NewTerm, "queues", False, 100, lambda n: (queues(n), c.NewTerm(1, rules=c.RULES))),
    Row(c.Tick, "due timers", True, 20, lambda n: (due(n), c.Tick())),
    Row(c.Tick, "due timers, beyond the limit", False, 200, lambda n: (due(n), c.Tick())),
    Row(c.Tick, "leases that end, beyond the limit", False, 200, lambda n: (due_leases(n), c.Tick())),
    Row(c.Tick, "scanned by a redrive, beyond the limit", False, 1000, lambda n: (redriving(n), c.Tick())),
    Row(c.OwnerGone, "leases", True, 20, lambda n: ((d := leased(n, lease_ms=0)[0]), c.OwnerGone(d.owner(1)))),
    Row(c.OwnerGone, "beyond the limit", False, 200, lambda n: ((d := leased(n, lease_ms=0)[0]), c.OwnerGone(d.owner(1)))),
    Row(c.NameOwner, "names", False, 100, lambda n: (named(n), c.NameOwner(7, "new"))),
    Row(c.NewTerm, "names", True, 100, lambda n: (named(n), c.NewTerm(1, rules=c.RULES))),
    Row(c.CreateQueue, "queues", False, 100, lambda n: (queues(n), c.CreateQueue("new", c.QueueSettings()))),
    Row(c.CreateQueue, "chain of dead letters", True, 100, lambda n: (chain(n), c.CreateQueue("x", c.QueueSettings(dead_letter="q0")))),
    Row(c.ChangeQueue, "queues", False, 100, lambda n: (queues(n), c.ChangeQueue("jobs", c.QueueChanges(size_max=9)))),
    Row(c.DeleteQueue, "records", False, 1000, lambda n: (queue(n), c.DeleteQueue("jobs"))),
    Row(c.DeleteQueue, "leases", False, 1000, lambda n: (leased(n)[0], c.DeleteQueue("jobs"))),
    Row(c.DeleteQueue, "owners", True, 100, lambda n: (owners(n), c.DeleteQueue("jobs"))),
    Row(c.Put, "items", True, 100, lambda n: (queue(0), c.Put("jobs", ITEM * n))),
    Row(c.Put, "items with options", True, 100, lambda n: (queue(0), c.Put("jobs", [item(0, b"x", delay_ms=5)] * n))),
    Row(c.Put, "items with keys", True, 100, lambda n: (queue(0), c.Put("jobs", [item(dedup_key=f"{i}") for i in range(n)]))),
    Row(c.Put, "records", False, 1000, lambda n: (queue(n), c.Put("jobs", ITEM))),
    Row(c.Put, "delayed records", False, 1000, lambda n: (queue(n, delay_ms=5), c.Put("jobs", [item(delay_ms=5)]))),
    Row(c.PutMany, "items", True, 100, lambda n: (queue(0), c.PutMany([("jobs", ITEM * n)]))),
    Row(c.PutMany, "groups", True, 100, lambda n: (queue(0), c.PutMany([("jobs", ITEM)] * n))),
    Row(c.PutMany, "records", False, 1000, lambda n: (queue(n), c.PutMany([("jobs", ITEM)]))),
    Row(c.Take, "count", True, 100, lambda n: (queue(n), c.Take("jobs", n))),
    Row(c.Take, "count, final", True, 100, lambda n: (queue(n), c.Take("jobs", n, final=True))),
    Row(c.Take, "records", False, 1000, lambda n: (queue(n), c.Take("jobs", 10))),
    Row(c.Take, "leased records before", False, 1000, lambda n: (leased(n, n + 10)[0], c.Take("jobs", 10))),
    Row(c.Kick, "ids", True, 100, lambda n: (buried(n), c.Kick("jobs", ids(n)))),
    Row(c.Kick, "count", True, 100, lambda n: (buried(n), c.Kick("jobs", [], n))),
    Row(c.Kick, "records", False, 1000, lambda n: ((d := queue(n), d.bury("jobs", n))[0], c.Kick("jobs", [], 1))),
    Row(c.Kick, "buried records", False, 1000, lambda n: (buried(n), c.Kick("jobs", [], 10))),
    Row(c.Edit, "records", False, 1000, lambda n: (queue(n), c.Edit("jobs", n // 2, 5))),
    Row(c.Delete, "ids", True, 100, lambda n: (queue(n), c.Delete("jobs", ids(n)))),
    Row(c.Delete, "records", False, 1000, lambda n: (queue(n), c.Delete("jobs", ids(10)))),
    Row(c.Move, "ids", True, 100, lambda n: (queue(n), c.Move("jobs", ids(n), "other"))),
    Row(c.Move, "records", False, 1000, lambda n: (queue(n), c.Move("jobs", ids(10), "other"))),
    Row(c.Redrive, "jobs", True, 25, lambda n: (with_jobs(n), c.Redrive("jobs", "other"))),
    Row(c.Redrive, "records", False, 1000, lambda n: (queue(n), c.Redrive("jobs", "other"))),
    Row(c.CancelJob, "jobs", True, 25, lambda n: ((d := with_jobs(n)), c.CancelJob(next(iter(d.engine.state.jobs))))),
    Row(c.Purge, "records", False, 1000, lambda n: (queue(n), c.Purge("jobs"))),
    Row(c.Purge, "leased records", False, 1000, lambda n: (leased(n, n + 10)[0], c.Purge("jobs"))),
    Row(c.Pause, "records", False, 1000, lambda n: (queue(n), c.Pause("jobs", True))),
    Row(c.Stage, "items", True, 100, lambda n: (queue(0), c.Stage("q", 1, 0, 0, 0, [("jobs", ITEM * n)]))),
    Row(c.Stage, "groups", True, 100, lambda n: (queue(0), c.Stage("q", 1, 0, 0, 0, [("jobs", ITEM)] * n))),
    Row(c.Stage, "attempts", False, 100, lambda n: (staged(n), c.Stage("q", 1, 0, 0, 1, [("jobs", ITEM)]))),
    Row(c.Stage, "parts", False, 100, lambda n: (staged(1, n), c.Stage("q", 1, 0, 0, n, [("jobs", ITEM)]))),
    Row(c.Publish, "records", True, 100, lambda n: (staged(1, 1, n), c.Publish("q", 1, [(0, 0)]))),
    Row(c.Publish, "attempts", True, 100, lambda n: ((d := staged(n)), c.Publish("q", 1, attempts_of(d)))),
    Row(c.Publish, "parts", True, 100, lambda n: (staged(1, n), c.Publish("q", 1, [(0, 0)]))),
    Row(c.Publish, "other attempts", False, 100, lambda n: (staged(n), c.Publish("q", 1, [(0, 0)]))),
    Row(c.Abort, "records", False, 100, lambda n: (staged(1, 1, n), c.Abort("q", 1))),
    Row(c.Abort, "attempts of others", False, 100, lambda n: (staged(n, query="r"), c.Abort("q", 1))),
    Row(c.Broadcast, "bindings that match", True, 100, lambda n: (bound(n), c.Broadcast(0, b"t", b"x", "s", "t"))),
    Row(c.Broadcast, "other bindings", False, 100, lambda n: (bound(n, "u"), c.Broadcast(0, b"t", b"x", "s", "t"))),
    Row(c.Bind, "bindings", False, 100, lambda n: (bound(n), c.Bind("new", "s", "t", "jobs"))),
    Row(c.Bind, "pairs, for any type", True, 100, lambda n: (bound_apart(n), c.Bind("new", "s", "", "jobs"))),
    Row(c.Unbind, "bindings", False, 100, lambda n: (bound(n), c.Unbind("b1"))),
]  # fmt: skip


def looked_at(drive: Drive) -> Drive:
    """After a first look, which remembers where nothing waits."""
    drive.view("jobs")
    return drive


READS: list[Row] = [
    Row("list_queues", "queues", True, 100, lambda n: ((d := queues(n)), lambda: list(reading.list_queues(d.engine.state)))),
    Row("show_queue", "records", False, 1000, lambda n: ((d := queue(n)), lambda: d.view("jobs"))),
    Row("show_queue", "leased records before", False, 2000, lambda n: ((d := looked_at(leased(n, n + 1)[0])), lambda: d.view("jobs"))),
    Row("view_queue", "leased records before", False, 2000, lambda n: ((d := looked_at(leased(n, n + 1)[0])), lambda: reading.view_queue(d.engine.state.by_name["jobs"]))),
    Row("view_record", "records", False, 1000, lambda n: ((d := queue(n)), lambda: d.record("jobs", n))),
    Row("get", "records", False, 1000, lambda n: ((d := queue(n)), lambda: d.record("jobs", n))),
    Row("peek", "count", True, 100, lambda n: ((d := queue(n)), lambda: reading.peek(d.engine.state, "jobs", n))),
    Row("peek", "records", False, 1000, lambda n: ((d := queue(n)), lambda: reading.peek(d.engine.state, "jobs", 10))),
    Row("browse", "count", True, 100, lambda n: ((d := queue(n)), lambda: reading.browse(d.engine.state, "jobs", None, None, 0, n))),
    Row("browse", "records, beyond a page", False, 1000, lambda n: ((d := queue(n), d.bury("jobs", n))[0], lambda: reading.browse(d.engine.state, "jobs", None, (1, 1), 0, 10))),
    Row("browse", "no record in the state", False, 1000, lambda n: ((d := queue(n)), lambda: reading.browse(d.engine.state, "jobs", 3, None, 0, 10))),
    Row("list_jobs", "jobs", True, 25, lambda n: ((d := with_jobs(n)), lambda: reading.list_jobs(d.engine.state))),
    Row("list_staged", "attempts", True, 100, lambda n: ((d := staged(n)), lambda: list(reading.list_staged(d.engine.state)))),
    Row("list_bindings", "bindings", True, 100, lambda n: ((d := bound(n)), lambda: list(reading.list_bindings(d.engine.state)))),
    Row("the account", "queues", False, 100, lambda n: ((d := queues(n), d.engine.state.memory_bytes())[0], lambda: d.engine.state.memory_bytes())),
    Row("the next timer", "timers", False, 1000, lambda n: ((d := queue(n, delay_ms=5)), lambda: d.engine.next_due_us())),
    Row("a snapshot's start", "records", False, 1000, lambda n: ((d := queue(n)), lambda: begin(d.engine).close())),
    Row("a snapshot's start", "queues", True, 100, lambda n: ((d := queues(n)), lambda: begin(d.engine).close())),
    Row("a step of the sweep", "purged records", False, 5000, lambda n: ((d := queue(n), d.do(c.Purge("jobs")))[0], lambda: d.engine.sweep())),
]  # fmt: skip


def steps_of(row: Row) -> Iterator[int]:
    for size in (row.first, 2 * row.first, 4 * row.first):
        drive, what = row.build(size)
        if callable(what):
            yield count_steps(what)
            continue
        yield count_steps(lambda: drive.do(what))  # noqa: B023


@pytest.mark.parametrize(
    "row", [*COMMANDS, *READS], ids=lambda row: f"{getattr(row.what, '__name__', row.what)}: {row.size}"
)
def test_the_cost_grows_no_faster_than_it_may(row: Row) -> None:
    small, middle, large = steps_of(row)
    assert small > 0, "nothing was counted"
    if row.grows:
        assert middle > small, "it does not grow: the row should say so"
        assert large - middle <= 2.4 * (middle - small)
    else:
        assert large <= small + BISECTION_STEPS + small // 10


def test_every_command_has_a_row() -> None:
    assert {row.what for row in COMMANDS} == set(c.TYPES.values())


def test_every_read_has_a_row() -> None:
    reads = {
        name
        for name, function in inspect.getmembers(reading, inspect.isfunction)
        if function.__module__ == reading.__name__ and not name.startswith("_")
    }
    assert reads <= {row.what for row in READS}


def test_quadratic_work_is_counted_as_such() -> None:
    """The counter itself: work inside the interpreter, copies among it, must not be missed."""
    made: dict[str, Any] = {}
    source = """
def looking(rows):
    while rows:
        rest = rows[1:]
        rows = rest
def sorting(rows):
    for _ in rows:
        sorted(rows)
"""
    exec(compile(source, reading.__file__, "exec"), vars(reading), made)
    for name in ("looking", "sorting"):
        steps = [count_steps(lambda: made[name](list(range(size)))) for size in (100, 200, 400)]  # noqa: B023
        assert steps[2] - steps[1] > 3 * (steps[1] - steps[0]), (name, steps)
