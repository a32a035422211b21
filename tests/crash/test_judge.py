"""The judge of the crash tests and the soak: what must not be is found, and what may be is not complained of."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from penstock.engine.records import LEASED, READY
from penstock.engine.views import RecordView
from penstock.storage.disk import Disk
from soak import notes as n
from soak.judge import Judge
from soak.memory import Memory
from soak.notes import Note, Notebook
from soak.sites import CALLS, SitePage, WatchedDisk
from soak.workload import key_of, name_of, payload_of

MIB = 1024 * 1024


def sent(count: int) -> Note:
    return Note(n.PUTS_SENT, 0, 0, 0, 0, count)


def put(record_id: int) -> Note:
    return Note(n.PUT, 0, 0, record_id - 1, record_id, 0)


def taken(
    record_id: int, worker: int = 1, deliveries: int = 1, kind: bytes = n.TAKEN, number: int | None = None
) -> Note:
    return Note(kind, worker, 0, record_id - 1 if number is None else number, record_id, deliveries)


def of(kind: bytes, record_id: int = 0, worker: int = 1) -> Note:
    """A note about a record that is held under a lease bound to the connection."""
    return Note(kind, worker, 0, 0, record_id, 1)


def view(record_id: int, number: int | None = None, state: int = READY) -> RecordView:
    number = record_id - 1 if number is None else number
    return RecordView(record_id, key_of(0, number), payload_of(0, number), state, record_id, 0, 0, 0, 0, 0)


def judged(*notes: Note) -> Judge:
    judge = Judge()
    judge.feed([sent(9), *notes])
    return judge


def in_order(*records: RecordView) -> list[RecordView]:
    return sorted(records, key=lambda record: (record.key, record.id))


def survey(judge: Judge, *records: RecordView) -> list[str]:
    judge.survey(records, in_order(*(record for record in records if record.state == READY)))
    return judge.violations


def test_a_whole_life_without_fault_is_not_complained_of() -> None:
    judge = judged(
        *(put(1), put(2), put(3), taken(1), of(n.ACK_SENT, 1), of(n.ACKED, 1)),
        *(taken(2), of(n.RETURN_SENT, 2), of(n.RETURNED, 2), taken(2, worker=2, deliveries=2), of(n.CLOSING, worker=2)),
        *(taken(2, deliveries=3), taken(3), of(n.ACK_SENT, 3), of(n.LIFE_ENDED)),
    )
    assert survey(judge, view(2, state=LEASED), view(7)) == [], "3 was ending, 7 was sent and never answered"
    assert judge.live == {2, 7}
    judge.drained([(record.key, record.id) for record in in_order(view(2), view(7))])
    assert judge.violations == []


def test_an_acknowledgement_that_comes_too_late_says_nothing_about_another() -> None:
    """Connection 1 acknowledges after its lease is over, while connection 2 waits for the answer to its own."""
    late = [taken(1, kind=n.TAKEN_FOR_A_TIME), taken(1, worker=2, deliveries=2), of(n.ACK_SENT, 1, worker=2)]
    judge = judged(put(1), *late, of(n.ACK_SENT, 1), of(n.ACK_LOST, 1), of(n.LIFE_ENDED))
    assert survey(judge) == [], "the second acknowledgement may have been done"


def test_what_was_ending_and_is_still_there_must_stay() -> None:
    judge = judged(put(1), taken(1), of(n.ACK_SENT, 1), of(n.LIFE_ENDED))
    assert survey(judge, view(1)) == []
    assert "record 1 is lost" in survey(judge)[0]


@pytest.mark.parametrize(
    ("told", "notes"),
    [
        ("after its acknowledgement", [put(1), taken(1), of(n.ACK_SENT, 1), of(n.ACKED, 1), taken(1, deliveries=2)]),
        ("acknowledged twice", [put(1), taken(1), of(n.ACKED, 1), of(n.ACKED, 1)]),
        ("while 1 held it", [put(1), taken(1), taken(1, worker=2, deliveries=2)]),
        ("while 1 held it", [put(1), taken(1), taken(1, worker=2, deliveries=2, kind=n.TAKEN_FOR_A_TIME)]),
        ("while 1 held it", [put(1), taken(1), of(n.RETURN_SENT, 1, worker=3), taken(1, worker=2, deliveries=2)]),
        ("and had as many before", [put(1), taken(1), of(n.RETURN_SENT, 1), taken(1)]),
        ("though its connection 1 was open", [put(1), taken(1), of(n.ACK_SENT, 1), of(n.ACK_LOST, 1)]),
        ("a second message", [put(1), taken(1, number=4)]),
        ("is doubled: record 1 and record 2", [put(1), taken(2, number=0)]),
        ("was never sent", [taken(10)]),
    ],
)
def test_each_fault_in_the_notes_is_found(told: str, notes: list[Note]) -> None:
    assert told in judged(*notes).violations[0]


@pytest.mark.parametrize(
    "notes",
    [
        [
            put(1),
            taken(1, kind=n.TAKEN_FOR_A_TIME),
            taken(1, worker=2, deliveries=2),
            of(n.ACK_SENT, 1),
            of(n.ACK_LOST, 1),
        ],
        [put(1), taken(1, worker=2, deliveries=2), of(n.ACKED, 1, worker=2), taken(1, kind=n.TAKEN_FOR_A_TIME)],
        [put(1), taken(1), of(n.LIFE_ENDED), taken(1, worker=2, deliveries=2)],
        [taken(1), of(n.ACK_SENT, 1), of(n.ACKED, 1), put(1)],
        [put(1), sent(9), put(1)],
    ],
    ids=["lease timed out", "noted late", "node was killed", "put answered late", "put repeated"],
)
def test_what_may_happen_is_not_complained_of(notes: list[Note]) -> None:
    assert judged(*notes).violations == []


def test_what_a_survey_finds() -> None:
    assert "record 1 is lost" in survey(judged(put(1), put(2)), view(2))[0]
    ended = judged(put(1), taken(1), of(n.ACKED, 1))
    assert "there again" in survey(ended, view(1))[0]
    assert "listed twice" in survey(judged(), view(1), view(1))[0]
    assert "is doubled" in survey(judged(), view(1), view(2, number=0))[0]
    spoiled = view(1)
    spoiled.payload = b"\0" + spoiled.payload[1:-1] + b"\0"
    assert "is not what was put" in survey(judged(), spoiled)[0]


def test_a_head_out_of_order_is_found() -> None:
    judge = judged()
    first, second = in_order(view(1), view(2))
    judge.survey([first, second], [second, first])
    assert "head of the queue" in judge.violations[0]
    judge.survey([first, second], [])
    assert len(judge.violations) == 2


def test_what_draining_finds() -> None:
    judge = judged(put(1), put(2), put(3))
    judge.drained([(5, 2), (4, 1), (4, 1), (4, 9)])
    told = "\n".join(judge.violations)
    assert "draining: record 1 (key 4) after record 2 (key 5)" in told
    assert "1 of them twice" in told
    assert "record 3 did not come out" in told
    assert "record 9 came out" in told


def test_a_term_that_does_not_rise_is_found() -> None:
    judge = Judge()
    judge.term(1)
    judge.term(2)
    assert judge.violations == []
    judge.term(2)
    assert "did not rise" in judge.violations[0]


def test_a_message_is_known_by_its_bytes_and_by_nothing_else() -> None:
    payload, key = payload_of(3, 422), key_of(3, 422)
    assert len(payload) > 9000
    assert name_of(payload, key) == (3, 422)
    assert name_of(payload, key + 1) is None
    assert name_of(payload[:-1], key) is None
    assert name_of(payload[:50] + b"\xff\xfe" + payload[52:], key) is None
    assert name_of(b"", 0) is None


def test_the_notebook_gives_back_what_was_written(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path / "notes")
    notes = [put(1), taken(2**40, number=2**31), of(n.CLOSING)]
    notebook.write(list(notes[:2]))
    assert list(notebook.unread()) == notes[:2]
    notebook.write(list(notes[2:]))
    assert list(notebook.unread()) == notes[2:]
    notebook.forget_read()
    notebook.write([put(5)])
    assert list(notebook.unread()) == [put(5)]
    notebook.close()


def test_memory_that_grows_is_found() -> None:
    flat, growing, leaking = Memory(), Memory(), Memory()
    for life in range(9):
        for memory, size in ((flat, 40 * MIB), (growing, (40 + 5 * life) * MIB), (leaking, 40 * MIB)):
            memory.sample(5.0, size)
            memory.sample(9.0, size * 2 if memory is leaking else size)
            memory.end_life()
    assert flat.complaints() == []
    assert "from life to life: 45.0 MiB to 75.0 MiB" in growing.complaints()[0]
    assert "within a life: 40.0 MiB to 80.0 MiB" in leaking.complaints()[0]


def test_the_watched_disk_watches_every_call_that_writes(tmp_path: Path) -> None:
    calls = {
        name
        for name, method in inspect.getmembers(Disk, inspect.isfunction)
        if "site" in inspect.signature(method).parameters
    }
    assert {name for name in calls if not name.startswith("_")} - {"before"} == set(CALLS)
    page = SitePage.create(tmp_path / "page")
    disk = WatchedDisk(page)
    disk.before("log.write", tmp_path)
    assert page.where() == ["log.write"]
    disk.mkdir(tmp_path / "made", "made.create")
    assert page.where() == []
    assert page.sites() == ["log.write", "made.create"]
