"""The journal: every row has a name, says what it promises, and points at the payload in the log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine import machine
from tests.engine.busy import BusyMoment
from tests.engine.comparing import EngineMachine
from tests.engine.driving import Asked, Drive, Event, events_of, handles, item

ENGINE = Path(machine.__file__).parent


def busy_machine(seed: int) -> tuple[list[Event], list[bytes]]:
    """A busy history: its journal, and its entries in their log form."""
    log: list[bytes] = []

    class Recorder(EngineMachine):
        def applied(self, data: bytes) -> None:
            log.append(data)

    recorder = Recorder()
    for name in ("jobs", "small", "dead", "other"):
        recorder.ask(c.CreateQueue(name, c.QueueSettings(deliveries_max=2, dead_letter=None)))
    for moment in range(25):
        BusyMoment(recorder, seed * 1000 + moment).run()
    return events_of(recorder.rows), log


@pytest.mark.parametrize("seed", range(3))
def test_events_are_named_once_and_in_rising_order(seed: int) -> None:
    events, _ = busy_machine(seed)
    names = [(event.index, event.n, event.item) for event in events]
    assert names == sorted(set(names))
    items: dict[tuple[int, int], list[int]] = {}
    for event in events:
        items.setdefault((event.index, event.n), []).append(event.item)
    assert all(numbers == list(range(len(numbers))) for numbers in items.values())


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_and_reason_is_documented(seed: int) -> None:
    events, _ = busy_machine(seed)
    assert {event.kind for event in events} <= set(j.KINDS)
    assert {event.reason for event in events} <= set(j.REASONS)
    assert len({event.kind for event in events}) > 15


def test_every_kind_is_written_somewhere() -> None:
    source = "".join(path.read_text("utf-8") for path in ENGINE.glob("*.py") if path.name != "journal.py")
    numbers = {name: value for name, value in vars(j).items() if isinstance(value, int) and value in j.KINDS}
    kinds = [name for name in numbers if name.isupper() and not name.startswith(("REASON", "DOOR", "ROW"))]
    assert len(kinds) == len(j.KINDS)
    assert [name for name in kinds if not re.search(rf"\bj\.{name}\b", source)] == []


def pieces(log: list[bytes], event: Event) -> tuple[bytes, bytes]:
    """The payload and the headers that a row points at."""
    data = log[event.payload_index]
    payload = data[event.payload_offset : event.payload_offset + event.payload_bytes]
    return payload, data[event.headers_offset : event.headers_offset + event.headers_bytes]


def located(drive: Drive, kind: int = j.PUT) -> list[tuple[int, bytes, bytes]]:
    """(record, payload, headers) of each row of a kind, read from the log."""
    log = [data for _, data in drive.log]
    return [(event.record, *pieces(log, event)) for event in drive.events() if event.kind == kind]


HEADERS = {"x": "y" * 60}


@pytest.mark.parametrize("limits", [{}, {"size_max": 1000}], ids=["plain", "limited"])
def test_put_rows_point_at_payload_and_headers(limits: dict[str, int]) -> None:
    """Also where payloads are equal, empty, parts of one another, or look like the encoding around them."""
    drive = Drive()
    drive.create("jobs", **limits)
    payloads = [b"", b"a", b"aa", b"a", b"jobs", b"\x92\x00\xc4", b"x" * 300, b"x" * 299, b"y" * 70_000, b"", b"a"]
    drive.do(c.Put("jobs", [item(0, payload) for payload in payloads]))
    drive.do(c.Put("jobs", [item(0, payload, headers=HEADERS, delay_ms=1) for payload in payloads]))
    drive.do(c.PutMany([("jobs", [item(0, payload)]) for payload in payloads]))
    headers = c.encode(HEADERS)
    expected = [(p, b"") for p in payloads] + [(p, headers) for p in payloads] + [(p, b"") for p in payloads]
    assert located(drive) == [(n + 1, *pair) for n, pair in enumerate(expected)]


def test_rows_of_later_commands_of_an_entry_point_into_their_own_bodies() -> None:
    drive = Drive()
    drive.apply(*(Asked(c.Put("", [item(0, payload)])) for payload in (b"first", b"second", b"third")))
    assert [payload for _, payload, _ in located(drive)] == [b"first", b"second", b"third"]


def test_published_records_point_into_the_entries_that_staged_them() -> None:
    drive = Drive()
    drive.do(c.Stage("q", 1, 0, 0, 0, [("", [item(0, b"one"), item(0, b"two", headers=HEADERS)])]))
    drive.do(c.Stage("q", 1, 0, 0, 1, [("", [item(0, b"three")])]))
    drive.restart()
    drive.do(c.Publish("q", 1, [(0, 0)]))
    assert located(drive) == [(1, b"one", b""), (2, b"two", c.encode(HEADERS)), (3, b"three", b"")]


def test_a_large_publication_points_right_in_every_slice() -> None:
    drive = Drive()
    for part in range(3):
        drive.do(c.Stage("q", 1, 0, 0, part, [("", [item(0, b"%d.%d" % (part, n)) for n in range(5000)])]))
    drive.do(c.Publish("q", 1, [(0, 0)]))
    while drive.engine.next_due_us() == 0:
        drive.tick()
    assert [payload for _, payload, _ in located(drive)] == [b"%d.%d" % (n // 5000, n % 5000) for n in range(15_000)]


def test_copies_of_a_topic_message_point_at_its_body_and_at_no_headers() -> None:
    """Their headers are made by the engine and stand in no entry."""
    drive = Drive()
    drive.do(c.Bind("b", "", "", "inbox"))
    drive.do(c.Broadcast(1, b"tag", b"body"))
    assert located(drive) == [(1, b"body", b"")]
    assert located(drive, j.BROADCAST) == [(0, b"body", b"tag")]
    assert drive.records("inbox")[0].headers == c.encode({"tag": "tag", "channel": "1"})


def test_rows_that_tell_a_name_point_at_it() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.do(c.Put("made-by-put", [item()], create=True))
    drive.do(c.Bind("binding", "", "", "made-by-bind"))
    drive.do(c.Unbind("binding"))
    names = [payload for _, payload, _ in located(drive, j.QUEUE_CREATED)]
    assert names == [b"jobs", b"made-by-put", b"made-by-bind"]
    assert [payload for kind in (j.BOUND, j.UNBOUND) for _, payload, _ in located(drive, kind)] == [b"binding"] * 2


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_busy_history_never_point_outside_their_entry(seed: int) -> None:
    events, log = busy_machine(seed)
    for event in events:
        end = max(event.payload_offset + event.payload_bytes, event.headers_offset + event.headers_bytes)
        assert event.payload_index <= event.index
        assert end <= len(log[event.payload_index])


def test_a_duplicate_is_written_down_with_the_first() -> None:
    drive = Drive()
    drive.put("", dedup_key="k")
    drive.try_put("", 5, dedup_key="k")
    drive.do(c.PutMany([("", [item(6, dedup_key="k")])]))
    rows = [event for event in drive.events() if event.kind == j.DUPLICATE]
    assert [(row.queue, row.record, row.key, row.other_queue, row.other_record) for row in rows] == [
        (0, 0, 5, 0, 1),
        (0, 0, 6, 0, 1),
    ]


def test_values_are_what_the_table_of_kinds_says() -> None:
    drive = Drive()
    start_us = drive.now_us
    drive.create("jobs")
    drive.put("jobs", delay_ms=10)
    drive.put("jobs", -1)
    taken = drive.take("jobs", lease_ms=20)
    drive.do(c.Extend("jobs", handles(taken), 30))
    drive.give_back("jobs", handles(taken), delay_ms=40)
    drive.do(c.Edit("jobs", 2, None, 50))
    drive.take("jobs", owner=drive.owner(1), lease_ms=0)
    drive.do(c.Purge("jobs"))
    drive.do(c.DeleteQueue("jobs"))
    values = [(event.name, event.value and event.value - start_us) for event in drive.events()[2:-2]]
    assert values == [
        ("put", 10_000),
        ("put", 0),
        ("taken", 20_000),
        ("extended", 30_000),
        ("returned", 40_000),
        ("edited", 50_000),
    ]
    purged, deleted = drive.events()[-2:]
    assert (purged.name, purged.value, deleted.name, deleted.value) == ("queue purged", 2, "queue deleted", 2)


def test_a_row_says_through_which_door_and_for_whom() -> None:
    drive = Drive()
    drive.do(c.Put("", [item()]), owner=drive.owner(9), door=j.DOOR_ETZEL)
    row = drive.events()[-1]
    assert (row.door, row.owner, row.time_us) == (j.DOOR_ETZEL, drive.owner(9), drive.now_us)
