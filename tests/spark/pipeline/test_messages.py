"""`messages.fold`: one row per message, whatever happened to it and wherever the log is cut."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as s

from penstock.spark.schemas import MESSAGES
from tests.spark.pipeline.histories import Row, assert_same, busy_history, frame, rows_of, told
from tests.spark.pipeline.reference import fold_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_MIN = 1500
WORLD = 2**40
UIDS = ("queue_uid", "other_queue_uid", "origin_queue_uid", "target_queue_uid", "owner", "owner_in", "owner_out")
HISTORY = busy_history(20, 120)


def fold(
    spark: SparkSession, events: list[Row], known: list[Row] | None = None, named: dict[int, str] | None = None
) -> list[Row]:
    from penstock.spark.pipeline import messages

    result = messages.fold(frame(spark, events), frame(spark, known or [], MESSAGES), named or {})
    return rows_of(result, MESSAGES, "queue_uid", "id")


def fold_in_slices(spark: SparkSession, events: list[Row], *cuttings: Sequence[int]) -> list[list[Row]]:
    """The table for each of these ways to cut the events into slices; what is open goes on from one slice to the next.

    All are folded side by side, each in a world of queues of its own, so that many cost little more than one.
    """
    from penstock.spark.pipeline.workers import named_after

    edges = [[0, *sorted(cuts), len(events)] for cuts in cuttings]
    ended: list[Row] = []
    known: list[Row] = []
    named: dict[int, str] = {}
    for step in range(max(map(len, edges)) - 1):
        slices = [events[places[step] : places[step + 1]] if step + 1 < len(places) else [] for places in edges]
        moved = [into_world(row, world) for world, part in enumerate(slices) for row in part]
        rows = fold(spark, moved, known, named)
        named = named_after(frame(spark, moved), named)
        known = [row for row in rows if row["state"] != "ended"]
        ended += [row for row in rows if row["state"] == "ended"]
    worlds: list[list[Row]] = [[] for _ in cuttings]
    for row in sorted(ended + known, key=lambda row: (row["queue_uid"], row["id"])):
        world = row["queue_uid"] // WORLD
        worlds[world].append(into_world(row, -world))
    return worlds


def into_world(row: Row, world: int) -> Row:
    """The row as if its queues were those of another world."""
    moved = {name: row[name] + world * WORLD for name in UIDS if row.get(name) is not None}
    return {**row, **moved}


def only(spark: SparkSession, *events: Any) -> Row:
    """The one message that these events are about."""
    (row,) = fold(spark, told(*events))
    return row


def has(row: Row, **expected: Any) -> None:
    """The row has these values."""
    assert {name: row[name] for name in expected} == expected


def test_a_busy_history_has_all_that_can_happen() -> None:
    """What the tests below compare is worth comparing."""
    kinds = {event["kind"] for event in HISTORY}
    assert len(HISTORY) > EVENTS_MIN
    assert kinds >= {"put", "duplicate", "available", "taken", "acked", "returned", "extended", "buried", "kicked"}
    assert kinds >= {"edited", "expired", "dead-lettered", "deleted", "moved out", "moved in"}
    outcomes = {row["outcome"] for row in fold_messages(HISTORY)}
    assert outcomes == {
        *("acked", "expired", "dead-lettered", "deleted", "moved", "purged", "queue-deleted", None),
    }


def test_the_fold_of_a_whole_history_is_that_of_a_plain_program(spark: SparkSession) -> None:
    assert_same(fold(spark, HISTORY[::-1]), fold_messages(HISTORY))


@settings(max_examples=1, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(cuttings=s.lists(s.lists(s.integers(0, len(HISTORY)), min_size=1, max_size=3), min_size=16, max_size=16))
def test_any_cut_gives_the_same_table(spark: SparkSession, cuttings: list[list[int]]) -> None:
    expected = fold_messages(HISTORY)
    for table in fold_in_slices(spark, HISTORY, *cuttings):
        assert_same(table, expected)


def test_all_cuts_of_one_life_give_the_same_row(spark: SparkSession) -> None:
    """All ways to cut it in four."""
    start = told((0, "put", 1))[0]["time"]
    events = told(
        (0, "put", 1, {"until": start + timedelta(seconds=5), "owner": 9, "door": "etzel"}),
        (5, "available", 1),
        (7, "taken", 1, {"deliveries": 1}),
        (9, "extended", 1, {"deliveries": 1}),
        (10, "returned", 1, {"deliveries": 1, "reason": "nack", "until": start + timedelta(seconds=20), "text": "no"}),
        (12, "edited", 1, {"deliveries": 1, "key": 77}),
        (13, "taken", 1, {"deliveries": 2, "key": 77, "owner": 4, "door": "taskflux"}),
        (14, "extended", 1, {"deliveries": 2, "key": 77}),
        (15, "extended", 1, {"deliveries": 2, "key": 77}),
        (19, "acked", 1, {"deliveries": 2, "key": 77, "owner": 5}),
    )
    expected = fold_messages(events)
    for table in fold_in_slices(spark, events, *combinations(range(1, len(events)), 3)):
        assert_same(table, expected)
    (row,) = expected
    has(row, state="ended", outcome="acked", key=77, failures=1, waited_us=2_000_000, worked_us=9_000_000)
    has(row, door_in="etzel", owner_in=9, door_out="taskflux", owner_out=4, reason="nack", deliveries=2, failure="no")


def test_the_worker_is_who_got_the_last_delivery_by_the_name_it_had_then(spark: SparkSession) -> None:
    """Wherever the log is cut. A connection without a name leaves none, and a name ends with its connection."""
    first, second, third = (1 << 32 | number for number in (1, 2, 3))

    def takes(second: int, record: int, deliveries: int, owner: int) -> tuple[Any, ...]:
        return (second, "taken", record, {"deliveries": deliveries, "owner": owner})

    events = told(
        *((0, "put", record) for record in (1, 2, 3, 4, 5)),
        (1, "owner named", 0, {"owner": first, "text": "größer"}),
        (1, "owner named", 0, {"owner": second, "text": "zweite"}),
        takes(2, 1, 1, first),
        takes(2, 2, 1, first),
        (3, "returned", 2, {"reason": "release", "deliveries": 1}),
        takes(4, 2, 2, third),
        (5, "owner named", 0, {"owner": first, "text": "renamed"}),
        takes(6, 3, 1, first),
        (7, "owner gone", 0, {"owner": first}),
        takes(8, 4, 1, first),
        takes(9, 5, 1, second),
    )
    expected = fold_messages(events)
    assert [row["worker"] for row in expected] == ["größer", None, "renamed", None, "zweite"]
    for table in fold_in_slices(spark, events, [], [6, 9, 11], *([place] for place in range(1, len(events)))):
        assert_same(table, expected)


def test_a_name_ends_with_its_term(spark: SparkSession) -> None:
    owner = 1 << 32 | 1
    events = told(
        (0, "put", 1),
        (1, "owner named", 0, {"owner": owner, "text": "old"}),
        (2, "new term", 0, {"owner": 0, "term": 2}),
        (3, "taken", 1, {"deliveries": 1, "owner": owner, "term": 2}),
    )
    for cuts in ([], [2], [3]):  # one after the other: worlds side by side would share their terms
        (table,) = fold_in_slices(spark, events, cuts)
        assert [row["worker"] for row in table] == [None]


def test_names_are_forgotten_with_their_connections(spark: SparkSession) -> None:
    """So what is kept between two steps does not grow with the history."""
    from penstock.spark.pipeline.workers import named_after

    old, new = 1 << 32, 2 << 32
    named = {old | 1: "a", old | 2: "b", old | 3: "c"}
    gone = told((1, "owner gone", 0, {"owner": old | 1}), (2, "owner named", 0, {"owner": old | 4, "text": "d"}))
    after = named_after(frame(spark, gone), named)
    assert after == {old | 2: "b", old | 3: "c", old | 4: "d"}
    restart = told(
        (3, "new term", 0, {"owner": 0, "term": 2}), (4, "owner named", 0, {"owner": new, "text": "e", "term": 2})
    )
    assert named_after(frame(spark, restart), after) == {new: "e"}
    assert named_after(frame(spark, told((5, "put", 1))), {new: "e"}) == {new: "e"}


def test_what_lies_before_the_history_is_null(spark: SparkSession) -> None:
    row = only(
        spark,
        (1, "extended", 3, {"deliveries": 2}),
        (2, "returned", 3, {"deliveries": 2, "reason": "nack"}),
        (3, "taken", 3, {"deliveries": 3, "owner": 8}),
        (4, "acked", 3, {"deliveries": 3}),
    )
    unknown = ("published", "published_index", "payload_bytes", "door_in", "owner_in", "first_available")
    counters = ("first_delivered", "waited_us", "worked_us", "failures", "releases", "timeouts")
    has(row, **dict.fromkeys(unknown + counters), state="ended", outcome="acked", deliveries=3, owner_out=8)


def test_what_was_not_known_stays_so_over_a_cut(spark: SparkSession) -> None:
    events = told(
        (1, "available", 3), (2, "taken", 3, {"deliveries": 1}), (3, "returned", 3, {"deliveries": 1, "reason": "nack"})
    )
    whole, *cut = fold_in_slices(spark, events, [], [1], [2], [1, 2])
    assert cut == [whole] * 3
    has(whole[0], state="ready", failures=None, worked_us=None, first_available=None, first_delivered=events[1]["time"])


def test_a_final_take_works_no_time(spark: SparkSession) -> None:
    row = only(spark, (0, "put", 1), (4, "taken", 1, {"deliveries": 1}), (4, "acked", 1, {"deliveries": 1}))
    has(row, worked_us=0, waited_us=4_000_000, outcome="acked", leased_since=None)


def test_an_unsent_delivery_counts_for_nothing_but_the_time(spark: SparkSession) -> None:
    row = only(
        spark,
        (0, "put", 1),
        (1, "taken", 1, {"deliveries": 1}),
        (3, "returned", 1, {"deliveries": 0, "reason": "unsent"}),
        (6, "taken", 1, {"deliveries": 1}),
    )
    has(row, deliveries=1, failures=0, releases=0, timeouts=0, worked_us=2_000_000, waited_us=1_000_000, state="leased")
    assert row["leased_since"] == row["last_delivered"] == row["first_delivered"] + timedelta(seconds=5)


def test_a_purge_ends_what_waits_at_that_moment(spark: SparkSession) -> None:
    """Also what is delayed; neither what is held or set aside, nor what comes later or waits in another queue."""
    purge = {"door": "taskflux", "owner": 6, "key": 0}
    events = told(
        (0, "put", 1),
        (0, "put", 2, {"until": told((60, "put", 1))[0]["time"]}),
        (0, "put", 3),
        (0, "put", 4),
        (0, "put", 1, {"queue_uid": 8, "queue": "other"}),
        (1, "taken", 3, {"deliveries": 1}),
        (2, "buried", 4),
        (3, "queue purged", 0, purge),
        (4, "put", 5),
        (5, "returned", 3, {"deliveries": 1, "reason": "release"}),
        (6, "queue purged", 0, purge),
    )
    rows = fold_messages(events)
    for table in fold_in_slices(spark, events, [], [3, 6, 8], *([place] for place in range(1, len(events)))):
        assert_same(table, rows)
    done = {(row["queue_uid"], row["id"]): (row["outcome"], row["done_index"]) for row in rows}
    first, second = ("purged", 7), ("purged", 10)
    never = (None, None)
    assert done == {(7, 1): first, (7, 2): first, (7, 3): second, (7, 4): never, (7, 5): second, (8, 1): never}
    has(rows[0], door_out="taskflux", owner_out=None, last_index=7, state="ended")


def test_a_deleted_queue_ends_all_that_it_holds(spark: SparkSession) -> None:
    """The time that a lease had lasted is counted; a purge before it takes precedence where both cover a message."""
    events = told(
        (0, "put", 1),
        (0, "put", 2),
        (0, "put", 3),
        (0, "put", 4),
        (1, "taken", 2, {"deliveries": 1, "owner": 3}),
        (2, "buried", 3),
        (3, "queue purged", 0),
        (4, "put", 5),
        (8, "queue deleted", 0, {"owner": 6, "door": "http"}),
    )
    rows = fold_messages(events)
    for table in fold_in_slices(spark, events, [], *([place] for place in range(1, len(events)))):
        assert_same(table, rows)
    assert [row["outcome"] for row in rows] == ["purged", "queue-deleted", "queue-deleted", "purged", "queue-deleted"]
    has(rows[1], worked_us=7_000_000, leased_since=None, door_out="native", owner_out=3)
    has(rows[4], door_out="http", owner_out=None, worked_us=0)


def test_a_dead_letter_ends_here_and_begins_anew_there(spark: SparkSession) -> None:
    ends = {"deliveries": 1, "reason": "nack"}
    here, there = fold(
        spark,
        told(
            (0, "put", 1),
            (1, "taken", 1, {"deliveries": 1}),
            (2, "returned", 1, ends),
            (2, "dead-lettered", 1, {**ends, "other_queue_uid": 9, "other_id": 40}),
            (2, "moved in", 40, {"queue_uid": 9, "queue": "dead", "other_queue_uid": 7, "other_id": 1}),
        ),
    )
    has(here, outcome="dead-lettered", reason="nack", target_queue_uid=9, target_id=40, origin_id=None, failures=1)
    has(
        there,
        published=here["done"],
        origin_queue_uid=7,
        origin_id=1,
        target_id=None,
        state="ready",
        payload_bytes=None,
    )


def test_duplicates_and_open_messages_that_nothing_happens_to(spark: SparkSession) -> None:
    (known,) = fold(spark, told((0, "put", 1), (1, "taken", 1, {"deliveries": 1})))
    assert fold(spark, told((5, "duplicate", 0, {"other_id": 1})), [known]) == [known]
    assert fold(spark, []) == []
