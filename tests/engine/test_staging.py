"""The cost of staging: what one attempt, batch or query does never depends on what others have staged."""

from __future__ import annotations

import pytest

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import staging
from penstock.engine.errors import Refusal
from penstock.engine.firing import TIMERS_PER_ENTRY_MAX
from penstock.engine.state import STAGED_FOR_US
from tests.engine.driving import Drive, expect, item
from tests.engine.steps import count_steps

EMPTY_GROUPS = [("", [])] * 8000
DAY_US = STAGED_FOR_US


def staged(attempts: int, *, query: str = "q", rules: int = c.RULES) -> Drive:
    drive = Drive(rules)
    for partition in range(attempts):
        drive.do(c.Stage(query, 1, partition, 0, 0, [("", [item(0, b"x")])]))
    return drive


@pytest.mark.parametrize("command", [c.Stage("q", 1, 0, 0, 0, EMPTY_GROUPS), c.PutMany(EMPTY_GROUPS)])
def test_a_group_without_records_is_refused(command: c.Stage | c.PutMany) -> None:
    refusal = expect(Refusal, Drive().do(command))
    assert (refusal.code, "group 0" in refusal.detail) == (e.BAD_COMMAND, True)


@pytest.mark.parametrize("rules", [0, c.RULES])
def test_a_list_of_groups_has_a_maximum_also_at_replay(rules: int) -> None:
    drive = Drive(rules)
    puts = [("", [item()])] * (c.RECORDS_PER_COMMAND_MAX + 1)
    assert expect(Refusal, drive.do(c.PutMany(puts))).code == e.BAD_COMMAND
    assert expect(Refusal, drive.do(c.Stage("q", 1, 0, 0, 0, puts))).code == e.BAD_COMMAND


def test_empty_groups_in_an_old_log_cost_what_their_number_says() -> None:
    """They were accepted once, so replay accepts them; a publication takes each off its list and copies none."""
    steps = []
    for count in (1000, 2000, 4000):
        drive = Drive(rules=0)
        assert drive.do(c.Stage("q", 1, 0, 0, 0, [("", [])] * count)) == a.Done(0)
        steps.append(count_steps(lambda: drive.do(c.Publish("q", 1, [(0, 0)]))))  # noqa: B023
        assert drive.engine.state.jobs == {}
    assert steps[2] - steps[1] <= 2.2 * (steps[1] - steps[0])


def test_a_large_publication_is_the_same_after_a_restart_in_the_middle_of_a_piece() -> None:
    plain, restarted = Drive(), Drive()
    for drive in (plain, restarted):
        drive.create("jobs")
        for part in range(3):
            drive.do(c.Stage("q", 1, 0, 0, part, [("", [item(part)] * 3500), ("jobs", [item(9)] * 1200)]))
        assert drive.do(c.Publish("q", 1, [(0, 0)])) == a.Published(14_100, True)
    for _ in range(5):
        restarted.restart()
        assert restarted.snapshot() == plain.snapshot()
        plain.tick()
        restarted.tick()
    assert restarted.snapshot() == plain.snapshot()
    assert plain.rows == restarted.rows
    assert (plain.view("").ready, plain.view("jobs").ready, plain.engine.state.jobs) == (10_500, 3600, {})


def test_attempts_that_end_together_end_a_limited_number_at_a_time() -> None:
    drive = staged(TIMERS_PER_ENTRY_MAX + 500)
    drive.now_us += DAY_US + 1_000_000
    left = []
    for _ in range(3):
        drive.tick()
        left.append(len(drive.engine.state.staged))
    assert left == [500, 0, 0]
    while drive.engine.sweep():
        pass
    assert drive.engine.state.staged.by_serial == {}
    assert drive.engine.state.memory_by_kind()["staged"] == 0
    assert drive.engine.next_due_us() is None


def test_by_the_first_rules_all_attempts_end_in_one_entry() -> None:
    drive = staged(TIMERS_PER_ENTRY_MAX + 500, rules=0)
    drive.now_us += DAY_US + 1_000_000
    drive.tick()
    assert len(drive.engine.state.staged) == 0


@pytest.mark.parametrize(
    "command",
    [c.Abort("a", 1), c.Publish("a", 1, [(0, 0)]), c.Stage("a", 1, 1, 0, 0, [("", [item()])])],
    ids=lambda command: type(command).__name__,
)
def test_what_others_have_staged_costs_nothing(command: c.Abort | c.Publish | c.Stage) -> None:
    steps = []
    for others in (10, 1000):
        drive = staged(others)
        drive.do(c.Stage("a", 1, 0, 0, 0, [("", [item()])]))
        steps.append(count_steps(lambda: drive.do(command)))  # noqa: B023
    assert steps[1] <= steps[0] + 200


@pytest.mark.parametrize("how", ["abort", "publish another", "time"])
def test_a_large_attempt_is_dropped_at_once_and_freed_in_small_steps(how: str) -> None:
    drive = Drive()
    drive.do(c.Stage("q", 2, 0, 0, 0, [("", [item(0, b"x")])]))
    for part in range(5):
        drive.do(c.Stage("q", 1, 0, 0, part, [("", [item(0, b"x")] * 1000)]))
    ends = {"abort": c.Abort("q", 1), "publish another": c.Publish("q", 2, [(0, 0)]), "time": c.Tick()}
    drive.now_us += 2 * DAY_US if how == "time" else 0
    assert count_steps(lambda: drive.do(ends[how])) < 2000
    assert drive.engine.state.staged.live(2 << 16) is None
    counted = [drive.engine.state.memory_by_kind()["staged"]]
    while drive.engine.sweep():
        counted.append(drive.engine.state.memory_by_kind()["staged"])
    assert len(counted) >= 5
    assert counted == sorted(counted, reverse=True)
    assert bool(drive.engine.state.memory_by_kind()["staged"]) == (how == "abort")


def test_a_query_has_a_limited_number_of_staged_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "BATCHES_PER_QUERY_MAX", 2)
    drive = Drive()
    stages = [drive.do(c.Stage("q", batch, 0, 0, 0, [("", [item()])])) for batch in (1, 2, 3)]
    assert stages[:2] == [a.Done(1)] * 2
    assert (stages[2].code, stages[2].figures) == (e.STAGE_FULL, (2,))
    assert drive.do(c.Stage("q", 2, 1, 0, 0, [("", [item()])])) == a.Done(1)
    drive.do(c.Abort("q", 1))
    assert drive.do(c.Stage("q", 3, 0, 0, 0, [("", [item()])])) == a.Done(1)


def test_a_batch_has_a_limited_number_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PARTS_PER_BATCH_MAX", 2)
    drive = Drive()
    stages = [drive.do(c.Stage("q", 1, 0, 0, part, [("", [item()])])) for part in (0, 1, 2)]
    assert stages[:2] == [a.Done(1)] * 2
    assert (stages[2].code, stages[2].figures) == (e.STAGE_FULL, (2,))
    assert drive.do(c.Stage("q", 1, 0, 0, 1, [("", [item()])])) == a.Done(0), "a repeat is recognised"
    drive.restart()
    assert drive.do(c.Stage("q", 1, 1, 0, 0, [("", [item()])])).code == e.STAGE_FULL
