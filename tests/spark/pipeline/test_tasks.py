"""`tasks.fold`: a config and its first answer are one task, with its place in the chain of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipeline.files import PartWriter, Target
from penstock.spark.pipeline.manifest import Table, new_manifest
from penstock.spark.pipeline.slices import Slice
from penstock.spark.schemas import TASKS, TOPICS, arrow_schema
from penstock.wire.monique.bodies import Failure, encode_data
from tests.spark.pipeline.histories import Row, assert_same, frame, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
CHAIN = 30


def said(*messages: Sequence[Any]) -> list[Row]:
    """Topic messages, a second apart: type, id, pid, and a dictionary of what else differs."""
    rows = []
    for index, (kind, own_id, pid, *more) in enumerate(messages):
        row: Row = {"index": index, "n": 0, "item": 0, "time": START + timedelta(seconds=index), "channel": "com"}
        row |= {"type": kind, "spec": "sum", "id": own_id, "pid": pid, "creator": f"by-{own_id}", "encoding": "JSON"}
        row |= {"created_at": START, "data": b"{}", "readable": True, "door": "monique", "owner": 1}
        rows.append({**row, **(more[0] if more else {})})
    return rows


class Folding:
    """Folds topic messages slice by slice, and keeps what ended as the pipeline does."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.open: list[Row] = []
        self.ended: list[Row] = []
        self.asked: list[set[str]] = []

    def find_ended(self, ids: DataFrame) -> DataFrame:
        """(id, depth) of ended tasks; writes down what it was asked for."""
        wanted = {row["id"] for row in ids.toArrow().to_pylist()}
        self.asked.append(wanted)
        found = [row for row in self.ended if row["id"] in wanted]
        return frame(self.spark, found, TASKS).select("id", "depth")

    def fold(self, topics: list[Row]) -> None:
        """One slice."""
        from penstock.spark.pipeline import tasks

        kept = frame(self.spark, topics, TOPICS)
        rows = rows_of(tasks.fold(kept, frame(self.spark, self.open, TASKS), self.find_ended), TASKS, "id")
        self.open = [row for row in rows if row["done"] is None]
        self.ended += [row for row in rows if row["done"] is not None]

    def rows(self) -> list[Row]:
        """All tasks, by id and time."""
        return sorted(self.open + self.ended, key=lambda row: (row["id"], row["started_index"]))


def folded(spark: SparkSession, topics: list[Row], *cuttings: Sequence[int]) -> list[list[Row]]:
    """The table for each of these ways to cut the topic messages into slices.

    All are folded side by side, each in a world of ids of its own, so that many cost little more than one.
    """
    edges = [[0, *cuts, len(topics)] for cuts in cuttings]
    folding = Folding(spark)
    for step in range(max(map(len, edges)) - 1):
        slices = [topics[places[step] : places[step + 1]] if step + 1 < len(places) else [] for places in edges]
        folding.fold([into_world(row, world) for world, part in enumerate(slices) for row in part])
    worlds: list[list[Row]] = [[] for _ in cuttings]
    for row in folding.rows():
        names = {name: row[name] and row[name].partition("/") for name in ("id", "pid")}
        worlds[int(names["id"][0])].append({**row, **{name: parts and parts[2] for name, parts in names.items()}})
    return worlds


def into_world(row: Row, world: int) -> Row:
    """The row with ids and a place in the log that no other world has."""
    return {**row, "n": world, **{name: row[name] and f"{world}/{row[name]}" for name in ("id", "pid")}}


def reference(topics: list[Row]) -> list[Row]:
    """The table as a plain program makes it, one topic message after the other."""
    tasks: list[Row] = []
    for row in topics:
        task_id = row["id"] if row["type"] == "config" else row["pid"]
        if row["channel"] != "com" or row["type"] == "data" or not task_id:
            continue
        latest = {task["id"]: task for task in tasks}
        known = latest.get(task_id)
        is_open = known is not None and known["done"] is None
        if row["type"] == "config" and not is_open:
            parent = latest.get(row["pid"])
            task = {name: row[name] for name in ("id", "spec", "creator", "encoding", "created_at")}
            task |= dict.fromkeys(("done", "done_index", "outcome", "worker", "error_code", "error_message"))
            task |= {"pid": row["pid"] or None, "started": row["time"], "started_index": row["index"]}
            task["depth"] = (parent["depth"] + 1 if parent else 1) if row["pid"] else 0
            tasks.append({**task, "duration_us": None})
        elif row["type"] != "config" and known is not None and is_open:
            known |= {"done": row["time"], "done_index": row["index"], "outcome": row["type"]}
            known |= {"worker": row["creator"]}
            known["duration_us"] = (row["time"] - known["started"]) // timedelta(microseconds=1)
    return sorted(tasks, key=lambda task: (task["id"], task["started_index"]))


def test_the_life_of_tasks(spark: SparkSession) -> None:
    """First answers count, others are ignored: late ones, those of nobody's task, those on the other channel."""
    topics = said(
        ("result", "r0", "t1"),
        ("config", "t1", ""),
        ("config", "t1", "", {"spec": "repeated", "creator": "other"}),
        ("data", "d1", "t1"),
        ("error", "r1", "t1", {"channel": "tech"}),
        ("config", "t2", None, {"encoding": "MSGPACK"}),
        ("result", "r2", "t1"),
        ("error", "r3", "t1", {"data": b'{"code": 1, "message": "too late"}'}),
        ("result", "r4", "nobody"),
        ("config", "", "t1"),
        ("config", None, "t1", {"readable": False}),
        ("config", "t3", "t2"),
        ("config", "t9", "", {"channel": "tech"}),
    )
    (rows,) = folded(spark, topics, [])
    assert_same(rows, reference(topics))
    t1, t2, t3 = rows
    assert (t1["spec"], t1["creator"], t1["outcome"], t1["worker"]) == ("sum", "by-t1", "result", "by-r2")
    assert (t1["started_index"], t1["done_index"], t1["duration_us"]) == (1, 6, 5_000_000)
    assert (t2["done"], t2["pid"], t2["encoding"], t3["depth"]) == (None, None, "MSGPACK", 1)


def test_chains_of_any_length_in_one_slice(spark: SparkSession) -> None:
    """Chains of 1 to 30 tasks at once, the parents of some ended, of others open."""
    chains = [(length, step) for step in range(CHAIN) for length in range(1, CHAIN + 1) if step < length]
    topics = said(*(("config", f"{n}-{step}", f"{n}-{step - 1}" if step else "") for n, step in chains))
    (rows,) = folded(spark, topics, [])
    assert {row["id"]: row["depth"] for row in rows} == {f"{n}-{step}": step for n, step in chains}


@pytest.mark.long
def test_in_one_plan_depths_are_the_same_up_to_a_limit(spark: SparkSession) -> None:
    """Chains to beyond the limit, the parents of some ended; an unknown parent, and one that comes later."""
    from penstock.spark.pipeline import tasks

    steps = [("config", f"t{step}", f"t{step - 1}" if step else "") for step in range(tasks.DEPTH_IN_ONE_PLAN_MAX + 3)]
    more = [("config", "a", "lost"), ("config", "b", "a"), ("config", "c", "d"), ("config", "d", "b")]
    topics = said(*steps[:5], ("result", "r", "t3"), ("error", "e", "t4"), *steps[5:], *more)
    made = tasks.fold_in_one_plan(frame(spark, topics, TOPICS), frame(spark, [], TASKS))
    expected = reference(topics)
    for row in expected:
        row["depth"] = row["depth"] if row["depth"] <= tasks.DEPTH_IN_ONE_PLAN_MAX else None
    assert_same(rows_of(made, TASKS, "id"), expected)
    assert sum(row["depth"] is None for row in expected) == 2


def test_a_chain_that_is_cut_anywhere(spark: SparkSession) -> None:
    """Each task but the last has ended when its child comes, so that a parent may have to be looked for."""
    steps = [("config", f"t{step}", f"t{step - 1}" if step else "") for step in range(9)]
    topics = said(*(message for step in steps for message in (step, ("result", f"r-{step[1]}", step[1]))))
    for table in folded(spark, topics, *combinations(range(1, len(topics)), 2)):
        assert_same(table, reference(topics))


def test_ended_tasks_are_asked_for_only_if_a_parent_is_found_nowhere_else(spark: SparkSession) -> None:
    folding = Folding(spark)
    folding.fold(said(("config", "a", ""), ("config", "b", "a"), ("config", "c", ""), ("result", "r", "a")))
    assert folding.asked == []
    late = said(*[("data", "x", "")] * 4, ("config", "d", "c"), ("config", "e", "d"))
    folding.fold(late)
    assert folding.asked == []
    more = said(*[("data", "x", "")] * 6, ("config", "f", "a"), ("config", "g", "b"), ("config", "h", "lost"))
    folding.fold(more)
    assert folding.asked == [{"a", "lost"}]
    depths = {row["id"]: row["depth"] for row in folding.rows()}
    assert depths == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 2, "f": 1, "g": 2, "h": 1}


def test_only_what_began_before_is_a_parent(spark: SparkSession) -> None:
    """Neither a task itself nor one that comes later; so no chain can bite its tail."""
    topics = said(("config", "a", "a"), ("config", "b", "c"), ("config", "c", "b"), ("config", "d", "c"))
    for rows in folded(spark, topics, [], [1], [2], [3], [1, 3]):
        assert_same(rows, reference(topics))
    assert [row["depth"] for row in rows] == [1, 1, 2, 3]


def test_a_config_that_comes_again_after_the_answer_is_another_task(spark: SparkSession) -> None:
    """Only the open tasks tell what a message means, so a cut between the two changes nothing."""
    topics = said(
        ("config", "a", ""), ("result", "r1", "a"), ("config", "a", ""), ("config", "b", "a"), ("error", "r2", "a")
    )
    for rows in folded(spark, topics, [], [1], [2], [3], [4], [1, 3]):
        assert_same(rows, reference(topics))
    assert [(row["id"], row["outcome"], row["duration_us"]) for row in rows] == [
        ("a", "result", 1_000_000),
        ("a", "error", 2_000_000),
        ("b", None, None),
    ]


def test_what_an_error_says(spark: SparkSession) -> None:
    """Code and message of a JSON error; null where there is no such thing, never a failure."""
    wrong = [b"", b"\xff\xfe{", b"[1, 2]", b"17", b"null", b'{"code": ', b'{"other": 1}']
    kinds = [
        *((data, {}, (None, None)) for data in wrong),
        (encode_data(Failure(301, "task killed, ¡ay!")), {}, (301, "task killed, ¡ay!")),
        (b'{"code":1,"message":"x"}', {"encoding": "MSGPACK"}, (None, None)),
        (b'{"code":1,"message":"x"}', {"encoding": None}, (None, None)),
        (b'{"code":1,"message":"x"}', {"type": "result"}, (None, None)),
        (b'{"code":99999999999999,"message":"x"}', {}, (None, "x")),
        (b'{"code":"many","message":"x"}', {}, (None, "x")),
        (b'{"message":"x"}', {}, (None, "x")),
        (b'{"code":5}', {}, (5, None)),
        (None, {}, (None, None)),
    ]
    topics = said(
        *(("config", f"t{n:02}", "") for n in range(len(kinds))),
        *(("error", "r", f"t{n:02}", {"data": data, **more}) for n, (data, more, _) in enumerate(kinds)),
    )
    (rows,) = folded(spark, topics, [])
    assert [(row["error_code"], row["error_message"]) for row in rows] == [expected for _, _, expected in kinds]


def test_any_cut_gives_the_same_table(spark: SparkSession) -> None:
    """Random talk about few tasks, so that all that can meet does."""
    random = Random(4)
    names = [f"t{n}" for n in range(25)]
    talk = [
        (
            random.choice(("config", "config", "result", "error", "data")),
            random.choice(names),
            random.choice([*names, ""]),
        )
        for _ in range(250)
    ]
    # An id that is used again has the same parent again; else no table without order tells which was the last.
    parents = {name: random.choice([*names[:place], ""]) for place, name in enumerate(names)}
    topics = said(*((kind, name, parents[name] if kind == "config" else pid) for kind, name, pid in talk))
    expected = reference(topics)
    assert max(row["depth"] for row in expected) > 3
    cuttings = [sorted(random.sample(range(len(topics)), random.randint(0, 3))) for _ in range(12)]
    for table in folded(spark, topics, *cuttings):
        assert_same(table, expected)


def test_the_depth_of_a_parent_that_was_sent_again_is_that_of_its_last_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both have ended, and lie in files of different days."""
    from penstock.spark.pipeline import silver

    writer = PartWriter(Target(tmp_path, silver.TASKS, 20))
    for day, (started_index, depth) in {"2024-04-29": (3, 7), "2024-04-30": (12, 2)}.items():
        ended = {"id": "a", "started_index": started_index, "done": START, "done_index": started_index + 1}
        batch = pa.RecordBatch.from_pylist([{**ended, "depth": depth}], schema=arrow_schema(TASKS))
        writer.write(batch, day)
    manifest = new_manifest("c", 0, format="parquet", buckets=4)
    manifest.tables[silver.TASKS] = Table(20, 1, tuple(writer.close()))
    heard = frame(spark, said(("config", "b", "a", {"index": 30})), TOPICS)
    table = silver._fold_heard(spark, tmp_path, manifest, Slice(20, 30, 1, 1, ()), heard)
    (opened,) = (file for file in table.files if file.is_open)
    assert pq.read_table(tmp_path / opened.path).select(["id", "depth"]).to_pylist() == [{"id": "b", "depth": 3}]


def test_a_config_that_comes_again_finds_its_open_task_in_any_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """Alone in its slice, without an answer that would name the task by its pid."""
    from penstock.spark.pipeline import silver

    manifest = new_manifest("c", 0, format="parquet", buckets=64)
    for index in (1, 2):
        heard = frame(spark, said(("config", "a", "", {"index": index})), TOPICS)
        table = silver._fold_heard(spark, tmp_path, manifest, Slice(index - 1, index, 1, 1, ()), heard)
        manifest.tables[silver.TASKS] = table
    (file,) = table.files
    assert pq.read_table(tmp_path / file.path).select(["id", "started_index"]).to_pylist() == [
        {"id": "a", "started_index": 1}
    ]
