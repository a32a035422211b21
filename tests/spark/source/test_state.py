"""The tables `records` and `queues` say what the queues themselves say, at one index, by endpoint and by path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition

import penstock
from penstock.client.history import HistoryReader
from penstock.engine import commands as c
from penstock.spark.source.options import read_options
from penstock.spark.source.reading import EntriesReader
from penstock.spark.source.state import StateReader
from penstock.storage import version1 as v1
from penstock.storage.history import HistoryFiles
from tests.spark.source.making import OnDisk, a_bit_of_everything, making, options
from tests.spark.source.test_decode import as_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LONG_MS = 3_000_000_000_000
"""The history is made in the past, and a node lives now: what must not run out lasts a lifetime."""


@pytest.fixture(scope="module")
def filled_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records in every state, with all that a record can have."""
    path = tmp_path_factory.mktemp("filled") / "data"
    with making(path) as made:
        a_bit_of_everything(made)
        rich = options(headers={"a": "b"}, dedup_key="d", expires_ms=LONG_MS)
        made.do(c.CreateQueue("state", c.QueueSettings(size_max=5_000, dead_letter="letters", deliveries_max=3)))
        made.do(c.Put("state", [c.Item(-1, b"leased"), c.Item(0, b"held"), c.Item(1, b"ready"), c.Item(2, b"", rich)]))
        made.do(c.Put("state", [c.Item(3, b"delayed", options(delay_ms=LONG_MS)), c.Item(4, b"buried")]))
        made.do(c.Bury("state", [(6, 0)]), c.Take("state", 1, LONG_MS))
        made.do(c.Take("state", 1, 0))
        made.do(c.Put("letters", [c.Item(1, b"moved")]))
        letters = made.engine.state.by_name["letters"]
        made.do(c.Move("letters", [letters.next_id - 1], "state"))
        made.do(c.Put("state", [c.Item(9, b"%d" % number) for number in range(2_000)]))
        made.do(c.Pause("state", True))
    return path


@pytest.fixture(scope="module")
def filled_node(filled_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDisk]:
    copy = tmp_path_factory.mktemp("filled_node") / "data"
    shutil.copytree(filled_dir, copy)
    with OnDisk(copy) as server:
        yield server


def read(**given: str) -> list[dict[str, Any]]:
    reader = StateReader(read_options(given))
    (partition,) = reader.partitions()
    assert type(partition) is InputPartition
    return [row for batch in reader.read(partition) for row in as_rows(batch)]


@pytest.fixture(params=["endpoint", "path"])
def place(request: pytest.FixtureRequest, filled_node: OnDisk, filled_dir: Path) -> dict[str, str]:
    return {"endpoint": filled_node.endpoint} if request.param == "endpoint" else {"path": str(filled_dir)}


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def test_records_are_what_browsing_shows(place: dict[str, str], filled_node: OnDisk) -> None:
    found = read(**place, table="records")
    with penstock.connect_sync(filled_node.url) as client, HistoryReader(filled_node.url) as reader:
        expected = [(queue.name, record) for queue in client.queues() for record in client.queue(queue.name).browse()]
        applied = reader.reach().applied_index
    if "path" in place:
        with HistoryFiles(place["path"]) as files:
            applied = files.reach().applied_index
    assert {row["index"] for row in found} == {applied}
    shown = [(row["queue"], row["id"], row["key"], row["payload"], row["headers"] or {}) for row in found]
    assert shown == [(queue, each.id, each.key, each.payload, each.headers) for queue, each in expected]
    times = [(row["state"], row["published"], row["expires_at"], row["dedup_key"]) for row in found]
    assert times == [
        (each.state, micros(each.published_at), micros(each.expires_at), each.dedup_key) for _, each in expected
    ]


def test_every_column_of_a_record_is_told(filled_dir: Path) -> None:
    found = {row["payload"]: row for row in read(path=str(filled_dir), table="records", queues="state")}
    assert {row["state"] for row in found.values()} == {"ready", "delayed", "leased", "buried"}
    assert len(found) == 2_007
    leased, held = found[b"leased"], found[b"held"]
    assert leased["leased_until"] > leased["published"]
    assert held["leased_until"] is None
    assert (leased["deliveries"], leased["failures"], leased["releases"], leased["timeouts"]) == (1, 0, 0, 0)
    assert found[b"delayed"]["available_at"] == found[b"delayed"]["published"] + LONG_MS * 1_000
    assert found[b"buried"]["reason"] == "operator"
    rich = found[b""]
    assert (rich["headers"], rich["dedup_key"]) == ({"a": "b"}, "d")
    assert rich["expires_at"] == rich["published"] + LONG_MS * 1_000
    moved = found[b"moved"]
    assert moved["origin_queue"] == "letters"
    assert moved["origin_id"] > 0
    assert found[b"ready"]["origin_queue"] is None
    assert found[b"ready"]["place"] == 3


def test_columns_and_payloads_can_be_left_out(filled_dir: Path) -> None:
    rows = read(path=str(filled_dir), table="records", queues="state", columns="payload,id", payload="false")
    assert len(rows) == 2_007
    assert set(rows[0]) == {"payload", "id"}
    assert {row["payload"] for row in rows} == {None}


def test_queues_are_what_the_node_shows(place: dict[str, str], filled_node: OnDisk) -> None:
    found = {row["queue"]: row for row in read(**place, table="queues")}
    with penstock.connect_sync(filled_node.url) as client:
        shown = {queue.name: queue for queue in client.queues()}
    assert set(found) == set(shown)
    for name, queue in shown.items():
        row, settings = found[name], queue.settings
        assert (row["queue_uid"], row["paused"], row["size_max"]) == (queue.uid, queue.paused, settings.size_max)
        assert (row["lease_ms"], row["dead_letter"]) == (settings.lease_ms, settings.dead_letter)
        assert row["delayed"] == queue.delayed
        assert row["buried"] == queue.buried
        assert row["ready"] + row["leased"] == queue.ready + queue.leased
    assert found["state"]["deliveries_max"] == 3
    assert found["state"]["paused"]
    assert found["jobs"]["size_max"] is None
    assert [row["queue"] for row in read(**place, table="queues", queues="state,nowhere")] == ["state"]


def test_spark_reads_both(spark: SparkSession, filled_node: OnDisk, filled_dir: Path) -> None:
    source = spark.read.format("penstock")
    records = source.option("table", "records").option("endpoint", filled_node.endpoint).load()
    assert records.where("queue = 'state'").count() == 2_007
    queues = spark.read.format("penstock").option("table", "queues").load(str(filled_dir))
    (row,) = queues.where("queue = 'state'").collect()
    assert (row.leased, row.delayed, row.buried, row.ready) == (2, 1, 1, 2_003)


def test_files_of_version_1_are_read_like_any_other(tmp_path: Path) -> None:
    puts = [v1.LogEntry(3, v1.Enqueue(b"mail", number, b"new %d" % number)) for number in range(40)]
    entries = [*puts, v1.LogEntry(4, v1.Dequeue(b"mail"))]
    snapshot = v1.Snapshot(10, 3, [v1.SnapshotQueue(b""), v1.SnapshotQueue(b"mail")])
    (tmp_path / "raft.snapshot").write_bytes(v1.encode_snapshot(snapshot))
    (tmp_path / "raft.log").write_bytes(v1.encode_log(v1.Log(entries)))
    (tmp_path / "raft.metadata").write_bytes(v1.encode_metadata(v1.Metadata(5)))
    reader = EntriesReader(read_options({"path": str(tmp_path), "kinds": "put,acked"}))
    events = [row for part in reader.partitions() for batch in reader.read(part) for row in as_rows(batch)]
    assert [row["payload"] for row in events if row["kind"] == "put"] == [b"new %d" % number for number in range(40)]
    assert {(row["queue"], row["door"]) for row in events} == {("mail", "import")}
    assert len(read(path=str(tmp_path), table="records", queues="mail")) == 39
