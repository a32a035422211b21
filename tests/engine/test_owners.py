"""Names of connections: kept while they live, in the journal for good, and equal on every node."""

from __future__ import annotations

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine import owners, reading
from penstock.engine.memory import NAMES
from penstock.engine.views import RecordView
from tests.engine.driving import Drive, events_of


def test_the_holder_of_a_lease_is_shown_by_name_until_its_connection_ends() -> None:
    drive = Drive()
    owner = drive.owner(1)
    drive.create("jobs")
    drive.put("jobs")
    drive.do(c.NameOwner(owner, "worker-7"), owner)
    drive.take("jobs", owner=owner)
    drive.restart()
    held = reading.get(drive.engine.state, "jobs", 1)
    assert isinstance(held, RecordView)
    assert held.holder == "worker-7"
    drive.do(c.OwnerGone(owner))
    assert drive.engine.state.owner_names == {}
    (named,) = [event for event in events_of(drive.rows) if event.kind == j.OWNER_NAMED]
    entry = drive.log[named.payload_index][1]
    assert entry[named.payload_offset : named.payload_offset + named.payload_bytes] == b"worker-7"
    assert named.owner == owner


def gone(drive: Drive) -> list[int]:
    """The owners of the rows that say that a connection ended."""
    return [event.owner for event in events_of(drive.rows) if event.kind == j.OWNER_GONE]


def test_the_journal_says_which_connection_ended_if_it_had_a_name_or_leases() -> None:
    drive = Drive()
    named, holding, other = (drive.owner(number) for number in (1, 2, 3))
    drive.create("jobs")
    drive.put("jobs")
    drive.do(c.NameOwner(named, "worker-7"), named)
    drive.take("jobs", owner=holding, lease_ms=0)
    for owner in (named, holding, other, named):
        drive.do(c.OwnerGone(owner))
    assert gone(drive) == [named, holding]


def test_by_older_rules_the_row_of_an_ended_connection_names_nobody() -> None:
    drive = Drive(rules=c.RULES_OF_NAMES - 1)
    named, holding = drive.owner(1), drive.owner(2)
    drive.create("jobs")
    drive.put("jobs")
    drive.do(c.NameOwner(named, "worker-7"), named)
    drive.take("jobs", owner=holding, lease_ms=0)
    drive.do(c.OwnerGone(named))
    drive.do(c.OwnerGone(holding))
    assert gone(drive) == [0]


def test_a_new_term_begins_without_names() -> None:
    drive = Drive()
    drive.do(c.NameOwner(drive.owner(1), "old"), drive.owner(1))
    drive.new_term()
    assert drive.engine.state.owner_names == {}


def test_names_count_as_memory_and_are_bounded() -> None:
    drive = Drive()
    state = drive.engine.state
    before = state.memory.of(NAMES)
    drive.do(c.NameOwner(drive.owner(1), "x" * 255), drive.owner(1))
    assert state.memory.of(NAMES) > before + 255
    drive.do(c.NameOwner(drive.owner(1), "y"), drive.owner(1))
    drive.do(c.OwnerGone(drive.owner(1)))
    assert state.memory.of(NAMES) == before
    state.owner_names = dict.fromkeys(range(owners.OWNER_NAMES_MAX), "z")
    drive.do(c.NameOwner(drive.owner(1), "one too many"), drive.owner(1))
    assert len(state.owner_names) == owners.OWNER_NAMES_MAX
