"""The table of outcomes: what each end of a delivery counts, and what the record is then."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.records import BURIED, DELAYED, LEASED, READY
from penstock.engine.views import RecordView
from tests.engine.driving import START_US, Drive, handles

LEASE_MS = 10_000


class Outcome(NamedTuple):
    """A way in which a delivery may end, and what it must leave behind."""

    end: Callable[[Drive], object]
    counters: tuple[int, int, int, int]
    """Deliveries, failures, releases, timeouts, after one delivery."""
    reason: int
    delayed_ms: int = 0
    bound: bool = False


def returned(how: int, delay_ms: int = 0, reason: int = 0) -> Callable[[Drive], object]:
    def end(drive: Drive) -> object:
        view = drive.record("jobs", 1)
        return drive.do(c.Return("jobs", [(1, view.token)], how, delay_ms, reason))

    return end


def new_term(drive: Drive) -> None:
    drive.new_term()
    drive.tick()


OUTCOMES = {
    "nack": Outcome(returned(c.NACK), (1, 1, 0, 0), j.REASON_NACK),
    "nack with a delay": Outcome(returned(c.NACK, 500), (1, 1, 0, 0), j.REASON_NACK, 500),
    "release": Outcome(returned(c.RELEASE), (1, 0, 1, 0), j.REASON_RELEASE),
    "release with a delay": Outcome(returned(c.RELEASE, 500), (1, 0, 1, 0), j.REASON_RELEASE, 500),
    "ack timeout": Outcome(returned(c.RELEASE, 0, j.REASON_ACK_TIMEOUT), (1, 0, 1, 0), j.REASON_ACK_TIMEOUT),
    "disconnect": Outcome(
        lambda drive: drive.do(c.OwnerGone(drive.owner(1))), (1, 0, 1, 0), j.REASON_DISCONNECT, bound=True
    ),
    "new term": Outcome(new_term, (1, 0, 1, 0), j.REASON_NEW_TERM, bound=True),
    "lease deadline": Outcome(lambda drive: drive.wait(LEASE_MS), (1, 0, 0, 1), j.REASON_LEASE_TIMEOUT),
    "never written to the socket": Outcome(returned(c.UNSENT), (0, 0, 0, 0), j.REASON_UNSENT),
}
every_outcome = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)


def deliver(outcome: Outcome, **settings: object) -> Drive:
    """One record in its first delivery, with two others of its key around it."""
    drive = Drive()
    drive.create("dead")
    drive.create("jobs", **settings)
    drive.put_keys("jobs", [0, 0, 0])
    assert drive.take("jobs", owner=drive.owner(1), lease_ms=0 if outcome.bound else LEASE_MS).records[0].id == 1
    return drive


def counters(record: RecordView) -> tuple[int, int, int, int]:
    return record.deliveries, record.failures, record.releases, record.timeouts


def test_a_take_counts_a_delivery_and_leases() -> None:
    record = deliver(OUTCOMES["nack"]).record("jobs", 1)
    assert (record.state, counters(record)) == (LEASED, (1, 0, 0, 0))
    assert record.lease_until_us == START_US + LEASE_MS * 1000


@every_outcome
def test_an_outcome_counts_and_frees_as_the_table_says(outcome: Outcome) -> None:
    drive = deliver(outcome)
    outcome.end(drive)
    record = drive.record("jobs", 1)
    assert counters(record) == outcome.counters
    assert record.state == (DELAYED if outcome.delayed_ms else READY)
    assert record.available_at_us == (START_US + outcome.delayed_ms * 1000 if outcome.delayed_ms else 0)
    assert (record.lease_until_us, record.token, record.owner) == (0, 0, 0)


@every_outcome
def test_an_outcome_keeps_the_place(outcome: Outcome) -> None:
    drive = deliver(outcome)
    outcome.end(drive)
    drive.wait(outcome.delayed_ms)
    assert drive.ready_ids("jobs") == [1, 2, 3]


@every_outcome
def test_the_journal_says_why_it_came_back(outcome: Outcome) -> None:
    drive = deliver(outcome)
    outcome.end(drive)
    (row,) = [event for event in drive.events() if event.kind == j.RETURNED]
    assert (row.record, row.reason, row.deliveries) == (1, outcome.reason, outcome.counters[0])
    assert row.value == (START_US + outcome.delayed_ms * 1000 if outcome.delayed_ms else 0)


@every_outcome
def test_a_return_at_the_maximum_is_dead_lettered_in_the_same_entry(outcome: Outcome) -> None:
    drive = deliver(outcome, deliveries_max=1, dead_letter="dead")
    outcome.end(drive)
    if not outcome.counters[0]:  # what was never delivered has not reached any maximum
        assert drive.record("jobs", 1).state == READY
        return
    assert [record.id for record in drive.records("jobs")] == [2, 3]
    (letter,) = drive.records("dead")
    assert (letter.id, letter.state, letter.reason, counters(letter)) == (1, READY, outcome.reason, (0, 0, 0, 0))
    assert letter.origin is not None
    origin = letter.origin
    assert (origin.queue, origin.queue_uid, origin.id) == ("jobs", drive.view("jobs").uid, 1)
    assert (origin.published_us, origin.moved_us) == (START_US, letter.published_us)
    assert (origin.deliveries, origin.failures, origin.releases, origin.timeouts) == outcome.counters
    assert origin.reason == outcome.reason
    came, went = [e for e in drive.events() if e.kind in (j.RETURNED, j.DEAD_LETTERED)]
    assert (came.index, came.n) == (went.index, went.n)


@every_outcome
def test_without_a_dead_letter_queue_it_is_buried_with_the_reason(outcome: Outcome) -> None:
    drive = deliver(outcome, deliveries_max=1, dead_letter="absent")
    outcome.end(drive)
    if not outcome.counters[0]:
        return
    record = drive.record("jobs", 1)
    assert (record.state, record.reason, counters(record)) == (BURIED, outcome.reason, outcome.counters)


@every_outcome
def test_the_old_lease_is_worth_nothing_afterwards(outcome: Outcome) -> None:
    drive = deliver(outcome)
    token = drive.record("jobs", 1).token
    outcome.end(drive)
    assert drive.ack("jobs", [(1, token)]).lost == [0]
    drive.wait(outcome.delayed_ms)
    again = drive.take("jobs")
    assert drive.ack("jobs", [(1, token)]).lost == [0]
    assert drive.ack("jobs", handles(again)).count == 1


@every_outcome
def test_a_second_delivery_counts_on(outcome: Outcome) -> None:
    drive = deliver(outcome)
    outcome.end(drive)
    drive.wait(outcome.delayed_ms)
    assert drive.take("jobs").records[0].deliveries == outcome.counters[0] + 1


def test_the_maximum_counts_deliveries_however_they_ended() -> None:
    drive = Drive()
    drive.create("jobs", deliveries_max=3)
    drive.put("jobs")
    for how in (c.NACK, c.UNSENT, c.RELEASE):
        drive.give_back("jobs", handles(drive.take("jobs")), how)
        assert drive.record("jobs", 1).state == READY
    drive.take("jobs", lease_ms=1)
    drive.wait(1)
    record = drive.record("jobs", 1)
    assert (record.state, counters(record)) == (BURIED, (3, 1, 1, 1))
