"""The policies of a queue, exact to the record, the key and the byte; and which names are names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.errors import Refusal
from penstock.engine.names import is_queue_name
from tests.engine.driving import Drive, expect, handles, item


def refused_with(drive: Drive, queue: str, key: int = 0, payload: bytes = b"") -> int | None:
    """The code that a put of this gets, or None if it is accepted."""
    answer = expect(a.PutAnswer, drive.try_put(queue, key, payload))
    return answer.exceptions[0][1] if answer.exceptions else None


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_max", [0, 1, 2, 5])
def test_a_queue_holds_exactly_its_size(size_max: int) -> None:
    drive = Drive()
    drive.create("jobs", size_max=size_max)
    for _ in range(size_max):
        assert refused_with(drive, "jobs") is None
    assert refused_with(drive, "jobs") == e.QUEUE_FULL
    assert drive.view("jobs").ready == size_max


def test_ready_delayed_and_leased_records_count_and_buried_ones_do_not() -> None:
    drive = Drive()
    drive.create("jobs", size_max=3)
    drive.put("jobs", -1)
    drive.put("jobs", delay_ms=1000)
    drive.put("jobs")
    drive.take("jobs")
    assert refused_with(drive, "jobs") == e.QUEUE_FULL
    drive.bury("jobs", 3)
    assert refused_with(drive, "jobs") is None
    assert refused_with(drive, "jobs") == e.QUEUE_FULL


def test_ids_are_drawn_by_accepted_puts_alone() -> None:
    drive = Drive()
    drive.create("jobs", size_max=1)
    first = drive.put("jobs")
    assert refused_with(drive, "jobs") == e.QUEUE_FULL
    drive.do(c.Delete("jobs", [first]))
    assert drive.put("jobs") == first + 1


steps = s.lists(s.sampled_from(("put", "take", "nack", "delay", "time", "bury", "kick", "move")), max_size=40)


@given(steps)
def test_the_size_is_never_exceeded_whatever_comes_back(history: list[str]) -> None:
    """Nacks, timeouts, kicks and moves included. (Dead letters and what was staged come in past the limit.)"""
    drive = Drive()
    drive.create("jobs", size_max=3, lease_ms=50)
    drive.create("other")
    drive.put_keys("other", range(10))
    for step in history:
        if step == "put":
            drive.try_put("jobs")
        elif step == "take":
            drive.take("jobs", 2)
        elif step in ("nack", "delay"):
            held = [(record.id, record.token) for record in drive.records("jobs") if record.token]
            drive.give_back("jobs", held, delay_ms=5 if step == "delay" else 0)
        elif step == "time":
            drive.wait(60)
        elif step == "bury":
            drive.bury("jobs", *[record.id for record in drive.records("jobs")][:2])
        elif step == "kick":
            drive.do(c.Kick("jobs", [], 10))
        elif step == "move":
            drive.do(c.Move("other", [record.id for record in drive.records("other")][:1], "jobs"))
        view = drive.view("jobs")
        assert view.ready + view.delayed + view.leased <= 3


def test_the_count_of_a_queue_is_that_of_its_ready_records() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put_keys("jobs", range(5))
    drive.put("jobs", delay_ms=1000)
    drive.take("jobs")
    drive.bury("jobs", 5)
    view = drive.view("jobs")
    assert (view.ready, view.delayed, view.leased, view.buried) == (3, 1, 1, 1)


# --- keys -------------------------------------------------------------------------------------------------------------

RANGES = [(0, 0), (-5, 5), (c.INT64_MIN, c.INT64_MIN), (c.INT64_MAX, c.INT64_MAX), (c.INT64_MIN, c.INT64_MAX)]


@pytest.mark.parametrize("key_range", RANGES)
@pytest.mark.parametrize("implementation", [c.H4, c.QA])
def test_a_key_range_includes_both_ends_and_nothing_beyond(key_range: tuple[int, int], implementation: int) -> None:
    drive = Drive()
    drive.create("jobs", implementation=implementation, key_range=key_range)
    low, high = key_range
    assert refused_with(drive, "jobs", low) is None
    assert refused_with(drive, "jobs", high) is None
    if low > c.INT64_MIN:
        assert refused_with(drive, "jobs", low - 1) == e.KEY_OUT_OF_RANGE
    if high < c.INT64_MAX:
        assert refused_with(drive, "jobs", high + 1) == e.KEY_OUT_OF_RANGE


def test_a_refused_key_names_the_range() -> None:
    drive = Drive()
    drive.create("jobs", key_range=(-5, 5))
    drive.put("jobs")
    assert expect(Refusal, drive.do(c.Edit("jobs", 1, 6))).figures == (-5, 5)
    assert expect(Refusal, drive.do(c.PutMany([("jobs", [item(0), item(6)])]))).figures == (-5, 5, 1)


# --- payload ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 100])
def test_the_payload_limit_is_exact(limit: int) -> None:
    drive = Drive()
    drive.create("jobs", payload_bytes_max=limit)
    assert refused_with(drive, "jobs", payload=bytes(limit)) is None
    assert refused_with(drive, "jobs", payload=bytes(limit + 1)) == e.PAYLOAD_TOO_LARGE


def test_the_limit_of_the_node_holds_too() -> None:
    drive = Drive()
    drive.engine.state.payload_bytes_max = 10
    drive.create("jobs")
    assert refused_with(drive, "jobs", payload=bytes(10)) is None
    assert refused_with(drive, "jobs", payload=bytes(11)) == e.PAYLOAD_TOO_LARGE


# --- deduplication ----------------------------------------------------------------------------------------------------


def test_the_number_of_deduplication_keys_is_exact_and_refused_beyond() -> None:
    drive = Drive()
    drive.create("jobs", dedup_keys_max=2, dedup_window_ms=1000)
    drive.put("jobs", dedup_key="a")
    drive.put("jobs", dedup_key="b")
    assert expect(a.PutAnswer, drive.try_put("jobs", dedup_key="c")).exceptions == [(0, e.DEDUP_FULL, 2)]
    drive.wait(1000)
    drive.put("jobs", dedup_key="c")


def test_a_repeat_is_recognised_though_every_policy_is_against_it() -> None:
    drive = Drive()
    drive.create("jobs", size_max=1, key_range=(0, 0), payload_bytes_max=1, dedup_keys_max=1)
    drive.put("jobs", dedup_key="k")
    answer = expect(a.PutAnswer, drive.try_put("jobs", 9, b"too long", dedup_key="k"))
    assert answer == a.PutAnswer(2, 0, [(0, 0, 1)], answer.queue_uid)


@pytest.mark.parametrize("ended", ["acked", "deleted", "purged", "expired"])
def test_a_key_is_remembered_after_its_record_ended(ended: str) -> None:
    drive = Drive()
    drive.create("jobs", dedup_window_ms=60_000)
    drive.put("jobs", dedup_key="k", expires_ms=10)
    if ended == "acked":
        drive.ack("jobs", handles(drive.take("jobs")))
    elif ended == "deleted":
        drive.do(c.Delete("jobs", [1]))
    elif ended == "purged":
        drive.do(c.Purge("jobs"))
    drive.wait(10)
    assert not drive.records("jobs")
    assert expect(a.PutAnswer, drive.try_put("jobs", dedup_key="k")).exceptions == [(0, 0, 1)]
    drive.wait(60_000)
    drive.put("jobs", dedup_key="k")


# --- names ------------------------------------------------------------------------------------------------------------

GOOD_NAMES = ["", "!", "~", "a", "jobs/high:1", "x" * 255, "".join(map(chr, range(33, 127)))]
BAD_NAMES = [" ", "a b", "\x7f", "a\n", "\n", "\x00", "ü", "x" * 256]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_good_names(name: str) -> None:
    drive = Drive()
    assert is_queue_name(name)
    if name:
        assert drive.create(name).created
    drive.put(name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names(name: str) -> None:
    drive = Drive()
    assert not is_queue_name(name)
    # 256 characters do not even decode; the others are refused by the engine.
    code = e.BAD_COMMAND if len(name) > 255 else e.BAD_QUEUE_NAME
    assert expect(Refusal, drive.do(c.CreateQueue(name, c.QueueSettings()))).code == code
    assert expect(Refusal, drive.do(c.Put(name, [item()], create=True))).code == code


def test_the_number_of_queues_is_limited() -> None:
    drive = Drive()
    drive.engine.state.queues_max = 2
    drive.create("a")
    answer = expect(Refusal, drive.do(c.CreateQueue("b", c.QueueSettings())))
    assert (answer.code, answer.figures) == (e.TOO_MANY_QUEUES, (2,))
    drive.do(c.DeleteQueue("a"))
    drive.create("b")
