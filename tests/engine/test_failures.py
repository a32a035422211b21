"""The text of a failure: who may give one, what keeps it, and where the journal finds it."""

from __future__ import annotations

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine import reading
from penstock.engine.errors import Refusal
from penstock.engine.memory import OPTIONS
from penstock.engine.views import RecordView
from tests.engine.driving import Drive, events_of, expect


def taken(drive: Drive, queue: str = "jobs") -> tuple[int, int]:
    answer = expect(a.Taken, drive.do(c.Take(queue)))
    return answer.records[0].id, answer.token


def view(drive: Drive, record_id: int, queue: str = "jobs") -> RecordView:
    found = reading.get(drive.engine.state, queue, record_id)
    assert isinstance(found, RecordView)
    return found


def texts(drive: Drive, kind: int) -> list[bytes]:
    """The texts that the rows of a kind point at."""
    found = []
    for event in events_of(drive.rows):
        if event.kind == kind:
            entry = drive.log[event.payload_index][1]
            found.append(entry[event.payload_offset : event.payload_offset + event.payload_bytes])
    return found


def test_a_nack_leaves_its_text_with_the_record_its_next_taker_and_the_journal() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put("jobs")
    handle = taken(drive)
    drive.do(c.Return("jobs", [handle], c.NACK, 0, 0, "ValueError: größer"))
    assert view(drive, handle[0]).failure == "ValueError: größer"
    again = expect(a.Taken, drive.do(c.Take("jobs")))
    assert again.records[0].failure == "ValueError: größer"
    assert texts(drive, j.RETURNED) == ["ValueError: größer".encode()]


def test_the_last_failure_counts_and_a_release_or_timeout_is_none() -> None:
    drive = Drive()
    drive.create("jobs", lease_ms=100)
    drive.put("jobs")
    drive.do(c.Return("jobs", [taken(drive)], c.NACK, 0, 0, "first"))
    drive.do(c.Return("jobs", [taken(drive)], c.RELEASE))
    taken(drive)
    drive.wait(200)
    assert view(drive, 1).failure == "first"
    drive.do(c.Return("jobs", [taken(drive)], c.NACK))
    assert view(drive, 1).failure == "", "the last failure had no text"
    assert texts(drive, j.RETURNED) == [b"first", b"", b"", b""]


def test_a_dead_letter_keeps_the_text_and_a_redrive_forgets_it() -> None:
    drive = Drive()
    drive.create("dead")
    drive.create("parked")
    drive.create("jobs", deliveries_max=1, dead_letter="dead")
    drive.put("jobs")
    drive.do(c.Return("jobs", [taken(drive)], c.NACK, 0, 0, "boom"))
    assert view(drive, 1, "dead").failure == "boom"
    assert texts(drive, j.DEAD_LETTERED) == [b"boom"]
    drive.do(c.Move("dead", [1], "parked"))
    assert view(drive, 1, "parked").failure == "boom"
    drive.do(c.Redrive("parked", "jobs"))
    drive.wait(10)
    assert view(drive, 2).failure == ""
    assert texts(drive, j.MOVED_IN) == [b"boom", b"boom", b""]


def test_the_journal_says_what_had_failed_when_a_later_timeout_makes_a_dead_letter() -> None:
    """The text lies in an earlier entry, and a snapshot keeps where."""
    drive = Drive()
    drive.create("dead")
    drive.create("jobs", deliveries_max=2, dead_letter="dead", lease_ms=100)
    drive.put("jobs")
    drive.do(c.Return("jobs", [taken(drive)], c.NACK, 0, 0, "größer"))
    taken(drive)
    drive.restart()
    drive.wait(200)
    drive.tick()
    assert view(drive, 1, "dead").failure == "größer"
    assert texts(drive, j.MOVED_IN) == ["größer".encode()]


def test_by_older_rules_the_row_of_a_moved_record_has_no_text() -> None:
    drive = Drive(rules=c.RULES_OF_NAMES - 1)
    drive.create("dead")
    drive.create("jobs", deliveries_max=1, dead_letter="dead")
    drive.put("jobs")
    drive.do(c.Return("jobs", [taken(drive)], c.NACK, 0, 0, "boom"))
    drive.rules = c.RULES
    drive.new_term()
    drive.do(c.Move("dead", [1], "jobs"))
    assert view(drive, 2).failure == "boom"
    assert texts(drive, j.MOVED_IN) == [b"", b""]


def test_a_buried_record_keeps_the_text_also_when_it_is_kicked() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put("jobs")
    drive.do(c.Bury("jobs", [taken(drive)], "no such customer"))
    assert view(drive, 1).failure == "no such customer"
    drive.do(c.Kick("jobs", [1]))
    drive.do(c.Bury("jobs", [(1, 0)]))
    assert view(drive, 1).failure == "no such customer"
    assert texts(drive, j.BURIED) == [b"no such customer", b""]


def test_texts_are_bounded_in_bytes_and_belong_to_failures() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put("jobs")
    handle = taken(drive)
    for refused in (
        c.Return("jobs", [handle], c.NACK, 0, 0, "ä" * 513),
        c.Return("jobs", [handle], c.RELEASE, 0, 0, "why"),
        c.Bury("jobs", [handle], "ä" * 513),
    ):
        assert expect(Refusal, drive.do(refused)).code == e.BAD_COMMAND
    assert expect(a.Handled, drive.do(c.Return("jobs", [handle], c.NACK, 0, 0, "ä" * 512))).count == 1


def test_texts_count_as_memory() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put("jobs")
    state = drive.engine.state
    before = state.memory_bytes()
    drive.do(c.Return("jobs", [taken(drive)], c.NACK, 0, 0, "x" * 1000))
    grown = state.memory_bytes() - before
    assert 1000 < grown < 1400
    drive.do(c.Ack("jobs", [taken(drive)]))
    state.memory_bytes()
    assert state.memory.of(OPTIONS) == 0
