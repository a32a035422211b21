"""Whatever could be put can be taken, looked at, restored, and read as history by every way; at the ends of all limits.

Without a session: the readers are those that the tasks of Spark run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.client.history import HistoryReader
from penstock.settings import LimitsSettings, Settings, StorageSettings, TaskfluxSettings
from penstock.spark.export import SegmentExport
from penstock.spark.source import decode, extents, reading
from penstock.spark.source.history import open_history
from penstock.spark.source.options import read_options
from penstock.spark.source.planning import EntriesPartition
from penstock.spark.source.reading import merge, read_partition
from penstock.storage.export_version1 import read_state, write_version1
from penstock.storage.layout import Layout
from penstock.storage.verify import verify
from penstock.testing import OTHER_DOORS_CLOSED, TestServer

MIB = 1024 * 1024
HEADERS = {"h" * 100: "v" * 60_000}


def server_on(data_dir: Path, payload_bytes: int) -> TestServer:
    settings = Settings(
        data_dir=str(data_dir),
        taskflux=TaskfluxSettings(port=0),
        limits=LimitsSettings(payload_bytes=payload_bytes),
        storage=StorageSettings(segment_bytes=8 * MIB, reserve_bytes=0, snapshot_bytes=20 * MIB),
        **OTHER_DOORS_CLOSED,
    )
    return TestServer(settings, in_memory=False)


def payloads_of(sizes: list[int]) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes)]


def read_puts(last_index: int, cluster: str, *, first_index: int = 0, **place: str) -> list[tuple[bytes, int]]:
    """Payload and length of the headers of every put, as a task of Spark reads them."""
    options = read_options({**place, "columns": "kind,payload,headers"})
    batches = read_partition(options, EntriesPartition(cluster, first_index, last_index))
    rows = [row for batch in batches for row in batch.to_pylist() if row["kind"] == "put"]
    return [(row["payload"], sum(map(len, dict(row["headers"] or []).values()))) for row in rows]


@pytest.mark.parametrize(
    ("payload_bytes", "sizes"),
    [
        (1, [0, 1, 0, 1]),
        (16 * MIB, [0, 1, 64 * 1024, MIB, 16 * MIB, *[73_000] * 40, 16 * MIB, 0, 1]),
        (48 * MIB, [48 * MIB, 0, 64 * 1024, 1, MIB]),
    ],
    ids=["1 byte", "16 MiB", "48 MiB"],
)
def test_what_was_put_comes_back_by_every_way(tmp_path: Path, payload_bytes: int, sizes: list[int]) -> None:
    payloads, data = payloads_of(sizes), tmp_path / "data"
    with server_on(data, payload_bytes) as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        ids = [queue.put(payload, headers=HEADERS).id for payload in payloads]
        assert [record.payload for record in queue.browse()] == payloads
        assert queue.peek()[0].payload == payloads[0]
        assert [queue.get(number).payload for number in ids] == payloads
        with HistoryReader(server.url) as reader:
            reach = reader.reach()
            assert len(reader.entries(list(range(reach.applied_index + 1)))) == reach.applied_index + 1
        expected = [(payload, 60_000) for payload in payloads]
        assert read_puts(reach.applied_index, reach.cluster, endpoint=f"{server.host}:{server.port}") == expected
        with open_history(endpoint=f"{server.host}:{server.port}") as history:
            assert sum(len(block) for block in history.state()[1]) > sum(sizes)
    assert read_puts(reach.applied_index, reach.cluster, path=str(data)) == expected
    assert verify(data).ok
    assert Layout(data).snapshot.exists()
    # Exported as files of version 1, and sealed segments as Parquet.
    state = read_state(data)
    assert write_version1(state.engine, tmp_path / "version1")
    export = SegmentExport(data)
    for first in export.missing():
        assert export.write(first, {}) is not None
    # Taken after a restart from the snapshot.
    with server_on(data, payload_bytes) as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        for payload in payloads:
            message = queue.take()
            assert message is not None
            assert (message.payload, message.headers) == (payload, HEADERS)
            message.ack()


# Batches.


def test_batches_with_long_values_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "JOINED_BYTES_MIN", 10_000)

    def batches() -> Iterator[pa.RecordBatch]:
        for size in [100] * 5 + [9_000] * 4:
            yield pa.record_batch({"value": pa.array([b"x" * size], pa.binary())})

    assert [batch.num_rows for batch in merge(batches())] == [7, 2]


def test_batches_are_cut_by_headers_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decode, "BATCH_BYTES_MAX", 200_000)
    monkeypatch.setattr(reading, "JOINED_BYTES_MIN", 1)
    with server_on(tmp_path / "data", MIB) as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put_many([penstock.Item(b"", headers=HEADERS)] * 10)
        options = read_options({"endpoint": f"{server.host}:{server.port}", "kinds": "put", "columns": "headers"})
        with HistoryReader(server.url) as reader:
            reach = reader.reach()
        batches = list(read_partition(options, EntriesPartition(reach.cluster, 0, reach.applied_index)))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]


def test_older_entries_are_fetched_in_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A published batch refers to the entries that staged it, which may be long."""
    monkeypatch.setattr(extents, "FETCHED_BYTES_MAX", 100_000)
    with server_on(tmp_path / "data", MIB) as server, penstock.connect_sync(server.url) as client:
        client.queue("q").create()
        payloads = payloads_of([60_000] * 7)
        for number, payload in enumerate(payloads):
            client.stage("w", 1, {"q": [payload]}, part=number)
        fetched: list[int] = []
        with HistoryReader(server.url) as reader:
            staged = reader.reach().applied_index
            client.publish("w", 1, [(0, 0)])
            reach = reader.reach()
        original = HistoryReader.entries

        def entries(self: HistoryReader, indexes: list[int]) -> dict[int, bytes]:
            fetched.append(len(indexes))
            return original(self, indexes)

        monkeypatch.setattr(HistoryReader, "entries", entries)
        place = f"{server.host}:{server.port}"
        found = read_puts(reach.applied_index, reach.cluster, first_index=staged + 1, endpoint=place)
        assert [payload for payload, _ in found] == payloads
    assert sum(fetched) == 7
    assert max(fetched) == 2
