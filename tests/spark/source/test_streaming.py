"""The stream reader itself, without Spark around it: where batches end, what they hold, what is noticed."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

import penstock
from penstock.client.errors import ConnectionLost
from penstock.client.history import HistoryReader
from penstock.spark.errors import AnotherCluster
from penstock.spark.source import streaming
from penstock.spark.source.options import read_options
from penstock.spark.source.streaming import EntriesStreamReader
from tests.spark.source.making import OnDisk, expected_events
from tests.spark.source.test_decode import as_rows


def stream(**given: Any) -> EntriesStreamReader:
    return EntriesStreamReader(read_options({name: str(value) for name, value in given.items()}))


def batches(
    reader: EntriesStreamReader, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
) -> list[list[dict[str, Any]]]:
    """All batches of what is there, as Spark would run them."""
    task = pickle.loads(pickle.dumps(reader))  # Spark sends it to the tasks before it is used
    reader.prepareForTriggerAvailableNow()
    start = start or reader.initialOffset()
    found = []
    while (end := reader.latestOffset(start, limit or reader.getDefaultReadLimit())) != start:
        parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions(start, end)]
        found.append([row for part in parts for batch in task.read(part) for row in as_rows(batch)])
        start = end
    reader.stop()
    return found


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"maxRowsPerBatch": 1},
        {"maxRowsPerBatch": 70},
        {"maxRowsPerBatch": 10**9},
        {"maxBytesPerBatch": 1},
        {"maxBytesPerBatch": 30_000, "minPartitions": 4},
        {"maxRowsPerBatch": 200, "maxBytesPerBatch": 1},
    ],
)
@pytest.mark.parametrize("place", ["endpoint", "path"])
def test_any_limit_gives_every_event_once(
    node: OnDisk, data_dir: Path, reader: HistoryReader, limits: dict[str, int], place: str
) -> None:
    given = {"endpoint": node.endpoint} if place == "endpoint" else {"path": data_dir}
    found = batches(stream(**given, **limits))
    last = reader.reach().applied_index - (place == "path")
    assert [row for batch in found for row in batch] == expected_events(reader, 0, last)
    smallest = min(limits.get("maxRowsPerBatch", 10**9), limits.get("maxBytesPerBatch", 10**9))
    assert (len(found) > 1) == (smallest < 10**9)
    if "maxRowsPerBatch" in limits:
        blocks = max(map(len, batches(stream(**given, maxRowsPerBatch=1))))
        assert max(map(len, found)) <= max(limits["maxRowsPerBatch"], blocks), "a batch has more than one block"


def test_the_limit_that_spark_gives_rules(node: OnDisk) -> None:
    """A trigger that wants everything overrules the options."""
    assert stream(endpoint=node.endpoint).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(endpoint=node.endpoint, maxBytesPerBatch=5).getDefaultReadLimit() == ReadMaxBytes(5)
    limited = stream(endpoint=node.endpoint, maxRowsPerBatch=5, maxBytesPerBatch=7)
    assert limited.getDefaultReadLimit() == ReadMaxRows(5)
    assert len(batches(limited, limit=ReadAllAvailable())) == 1


def test_what_comes_after_the_query_began_is_left_for_the_next(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "data") as server, penstock.connect_sync(server.url) as client:
        client.queue("jobs").create()
        follower = stream(endpoint=server.endpoint)
        start = follower.initialOffset()
        follower.prepareForTriggerAvailableNow()
        client.queue("jobs").put(b"too late")
        end = follower.latestOffset(start, ReadAllAvailable())
        assert follower.latestOffset(end, ReadAllAvailable()) == end
        reported = follower.reportLatestOffset()
        assert reported is not None
        assert reported["index"] == end["index"] + 1, "the lag is shown all the same"
        ((row,),) = batches(stream(endpoint=server.endpoint), end)
        assert row["payload"] == b"too late"


def test_a_poll_waits_for_something_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "WAIT_SECONDS", 30.0)
    with OnDisk(tmp_path / "data") as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("jobs")
        queue.create()
        follower = stream(endpoint=server.endpoint)
        at = follower.latestOffset(follower.initialOffset(), ReadAllAvailable())
        later = threading.Timer(0.05, lambda: queue.put(b"news"))
        later.start()
        assert follower.latestOffset(at, ReadAllAvailable())["index"] == at["index"] + 1
        later.join()


def test_the_range_of_the_options_holds_for_streams(node: OnDisk, reader: HistoryReader) -> None:
    bounded = stream(endpoint=node.endpoint, startingIndex=4, endingIndex=11, maxRowsPerBatch=5)
    found = batches(bounded)
    assert [row for batch in found for row in batch] == expected_events(reader, 4, 11)
    assert batches(stream(endpoint=node.endpoint, endingIndex=3), {"cluster": reader.reach().cluster, "index": 4}) == []


def test_another_cluster_is_noticed_in_every_step(node: OnDisk) -> None:
    follower = stream(endpoint=node.endpoint, minPartitions=2)
    start = follower.initialOffset()
    end = follower.latestOffset(start, ReadAllAvailable())
    (part, *_) = follower.partitions(start, end)
    other = {**start, "cluster": "00ff"}
    with pytest.raises(AnotherCluster):
        follower.latestOffset(other, ReadAllAvailable())
    with pytest.raises(AnotherCluster):
        follower.partitions(other, end)
    part.cluster = "00ff"
    with pytest.raises(AnotherCluster):
        list(follower.read(part))


def test_a_node_that_is_behind_is_waited_for(node: OnDisk, reader: HistoryReader) -> None:
    """Any node may answer, also one that has not applied yet what another has told."""
    reach = reader.reach()
    ahead = {"cluster": reach.cluster, "index": reach.applied_index + 50}
    follower = stream(endpoint=node.endpoint)
    follower.prepareForTriggerAvailableNow()
    assert follower.latestOffset(ahead, ReadAllAvailable()) == ahead


def test_a_node_that_is_away_is_told_after_the_time_given(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "data") as server:
        follower = stream(endpoint=server.endpoint, timeoutSeconds=0.2)
        start = follower.initialOffset()
    with pytest.raises(ConnectionLost, match=server.endpoint):
        follower.latestOffset(start, ReadAllAvailable())
