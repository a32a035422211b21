"""Headers are limited, and count wherever the size of an answer or of a snapshot's block is limited."""

from __future__ import annotations

import pytest

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import reading, snapshot
from penstock.engine.errors import Refusal
from penstock.engine.views import Page
from tests.engine.driving import Drive, expect, handles, item

MIB = 1024 * 1024
LONG = {"h": "x" * c.HEADERS_BYTES_MAX}


def old_queue(count: int, headers_bytes: int) -> Drive:
    """Records of a log whose rules had no limit for headers, under the rules of today."""
    drive = Drive(rules=1)
    for number in range(count):
        drive.put("", 0, b"%d" % number, headers={"h": "x" * headers_bytes})
    drive.rules = c.RULES
    drive.new_term()
    return drive


def test_headers_beyond_the_limit_are_refused_with_a_code_of_their_own() -> None:
    drive = Drive()
    longest = {"h": "x" * (c.HEADERS_BYTES_MAX - 6)}
    assert len(c.encode(longest)) == c.HEADERS_BYTES_MAX
    drive.put("", headers=longest)
    limit = c.HEADERS_BYTES_MAX
    assert drive.do(c.Put("", [item(headers=LONG)])).exceptions == [(0, e.HEADERS_TOO_LARGE, limit)]
    for args in (
        c.PutMany([("", [item(), item(headers=LONG)])]),
        c.Stage("q", 1, 0, 0, 0, [("", [item(), item(headers=LONG)])]),
    ):
        refusal = expect(Refusal, drive.do(args))
        assert (refusal.code, refusal.figures) == (e.HEADERS_TOO_LARGE, (limit, 1))


def test_a_copy_of_a_topic_message_has_limited_headers_too() -> None:
    drive = Drive()
    drive.do(c.Bind("b", "", "", "jobs"))
    refusal = expect(Refusal, drive.do(c.Broadcast(1, b"t" * c.HEADERS_BYTES_MAX, b"body")))
    assert refusal.code == e.HEADERS_TOO_LARGE
    assert drive.view("jobs").ready == 0


def test_a_log_without_the_limit_is_replayed_as_it_was_applied() -> None:
    """The records were acknowledged, and a take gave them all: its acks follow in the log."""
    drive = Drive(rules=1)
    for _ in range(12):
        drive.put("", headers={"h": "x" * MIB})
    taken = drive.take("", 12)
    assert len(taken.records) == 12
    assert drive.ack("", handles(taken)).count == 12


@pytest.mark.parametrize("final", [False, True])
def test_a_take_counts_headers(final: bool) -> None:
    drive = old_queue(20, MIB)
    counts = []
    while records := drive.take("", 20, final=final).records:
        counts.append(len(records))
    assert counts == [7, 7, 6]


def test_one_record_is_served_however_long_its_headers_are() -> None:
    drive = old_queue(3, c.BYTES_PER_ANSWER_MAX)
    assert [len(drive.take("", 3).records) for _ in range(4)] == [1, 1, 1, 0]


def test_peek_and_browse_count_headers() -> None:
    drive = old_queue(20, MIB)
    st = drive.engine.state
    peeked = reading.peek(st, "", 20)
    assert not isinstance(peeked, Refusal)
    assert len(peeked) == 7
    sizes, cursor = [], 0
    while True:
        page = expect(Page, reading.browse(st, "", None, None, cursor, 20))
        sizes.append(len(page.records))
        cursor = page.cursor
        if not cursor:
            break
    assert sizes == [7, 7, 6]


def test_a_block_of_a_snapshot_counts_headers() -> None:
    drive = old_queue(20, MIB)
    blocks = drive.snapshot()
    assert max(map(len, blocks)) < snapshot.BLOCK_BYTES_MAX + MIB
    drive.restart()
    assert drive.snapshot() == blocks
    assert drive.view("").ready == 20


def test_the_number_of_remembered_keys_is_shown_and_its_limit_named() -> None:
    drive = Drive()
    drive.create("jobs", dedup_keys_max=2)
    drive.put("jobs", dedup_key="a")
    drive.put("jobs", dedup_key="b")
    drive.do(c.Purge("jobs"))
    assert (drive.view("jobs").ready, drive.view("jobs").dedup_keys) == (0, 2)
    refusal = expect(Refusal, drive.do(c.PutMany([("jobs", [item(dedup_key="c")])])))
    assert refusal.code == e.DEDUP_FULL
    assert "dedup_keys_max" in refusal.detail
    drive.change("jobs", dedup_keys_max=3)
    drive.put("jobs", dedup_key="c")
    assert drive.view("jobs").dedup_keys == 3
