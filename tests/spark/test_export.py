"""Sealed segments as Parquet: all events with their payloads, each file whole or not there, gone with its log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

import penstock
from penstock.cli import parquet
from penstock.engine import commands as c
from penstock.engine.journal import KINDS, PUT, ROW, ROW_BYTES
from penstock.spark.export import SegmentExport
from penstock.spark.schemas import EVENTS, arrow_schema
from penstock.storage.errors import Damaged
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.scan import scan_live
from tests.cli.support import Command, started
from tests.storage.histories import Truth, Writer
from tests.storage.support import FAR_FUTURE_US

PATIENCE_S = 60.0


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Path, Writer]]:
    """A directory that its writer has open, as a node would."""
    writer = Writer(tmp_path / "data", retention_hours=0, retention_bytes=0)
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    writer.fill(30)
    yield tmp_path / "data", writer
    writer.store.close()


def names_of(truth: Truth) -> dict[int, str]:
    return {uid: queue.name for uid, queue in truth.engine.state.by_uid.items()}


def export_all(path: Path, truth: Truth) -> list[Path]:
    export = SegmentExport(path)
    made = [export.write(first, names_of(truth)) for first in export.missing()]
    assert None not in made
    return [each for each in made if each is not None]


def expected_rows(truth: Truth, first: int, last: int) -> list[dict[str, Any]]:
    rows = truth.all_rows(first, last)
    found = []
    for start in range(0, len(rows), ROW_BYTES):
        row = ROW.unpack_from(rows, start)
        payload = truth.entries[row[15]][row[16] : row[16] + row[17]] if row[3] == PUT else None
        found.append(
            {
                "index": row[0],
                "n": row[1],
                "item": row[2],
                "kind": KINDS[row[3]][0],
                "queue_uid": row[9],
                "id": row[10],
                "key": row[11],
                "payload": payload,
            }
        )
    return found


def test_every_sealed_segment_becomes_a_file_with_all_its_events(written: tuple[Path, Writer]) -> None:
    path, writer = written
    layout, truth = Layout(path), writer.truth
    firsts = [first for first in layout.sealed_first_indexes() if layout.sealed_events(first).exists()]
    assert len(firsts) >= 2
    assert export_all(path, truth) == [layout.sealed_parquet(first) for first in firsts]
    for first, following in zip(firsts, [*layout.sealed_first_indexes()[1:], None], strict=False):
        if following is None:
            continue
        table = pq.read_table(layout.sealed_parquet(first))
        assert table.schema.equals(arrow_schema(EVENTS))
        expected = expected_rows(truth, first, following - 1)
        assert table.select(list(expected[0])).to_pylist() == expected
        jobs = [row for row in table.select(["kind", "queue"]).to_pylist() if row["kind"] == "put"]
        assert {row["queue"] for row in jobs} == {"jobs"}


def test_others_cannot_read_the_files(written: tuple[Path, Writer]) -> None:
    path, writer = written
    assert {file.stat().st_mode & 0o007 for file in export_all(path, writer.truth)} == {0}


def test_what_is_there_is_not_written_again_and_what_comes_later_is(written: tuple[Path, Writer]) -> None:
    path, writer = written
    before = {each: each.stat().st_mtime_ns for each in export_all(path, writer.truth)}
    assert SegmentExport(path).missing() == []
    writer.fill(20)
    later = export_all(path, writer.truth)
    assert later
    assert not set(later) & set(before)
    assert {each: each.stat().st_mtime_ns for each in before} == before


def test_what_is_given_up_leaves_nothing_behind(written: tuple[Path, Writer]) -> None:
    path, writer = written
    export = SegmentExport(path)
    export.stop()
    assert export.write(export.missing()[0], names_of(writer.truth)) is None
    assert list(Layout(path).archive.glob("*.parquet")) == list(Layout(path).temp.iterdir()) == []


def test_a_damaged_segment_becomes_no_file(written: tuple[Path, Writer]) -> None:
    path, writer = written
    layout = Layout(path)
    export = SegmentExport(path)
    first = export.missing()[0]
    events = layout.sealed_events(first)
    data = bytearray(events.read_bytes())
    data[len(data) // 2] ^= 1
    events.write_bytes(data)
    with pytest.raises(Damaged) as caught:
        export.write(first, names_of(writer.truth))
    assert caught.value.file == events
    assert first in export.missing()
    assert list(layout.temp.iterdir()) == []


def test_retention_removes_the_file_with_its_segment(written: tuple[Path, Writer]) -> None:
    path, writer = written
    made = export_all(path, writer.truth)
    writer.snapshot()
    writer.snapshot()
    retired = writer.store.run_retention(FAR_FUTURE_US)
    assert retired
    for first in retired:
        assert not Layout(path).sealed_parquet(first).exists()
    assert len([each for each in made if each.exists()]) == len(made) - len(retired)


def test_a_segment_that_goes_on_growing_loses_its_file(tmp_path: Path) -> None:
    """After a power cut in mode `none` the last segment may become the live one again: its file would lack entries."""
    writer = Writer(tmp_path / "run", is_durable=False)
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    writer.fill(30)
    path = tmp_path / "cut off"
    shutil.copytree(tmp_path / "run", path)
    writer.store.close()
    made = export_all(path, writer.truth)
    layout = Layout(path)
    sealed = layout.sealed_first_indexes()
    assert made == [layout.sealed_parquet(first) for first in sealed]
    lose_entries(layout.log)
    Writer(path, writer.truth, is_durable=False).store.close()
    assert layout.sealed_first_indexes() == sealed[:-1]
    assert [each for each in made if each.exists()] == made[:-1]


def lose_entries(log: Path) -> None:
    """Leave zeros where the entries of raft.log were, as a power cut does before they are synced."""
    with FileSource(log) as source:
        first = scan_live(source, log, None, 0).offsets[0]
    data = log.read_bytes()
    log.write_bytes(data[:first] + bytes(len(data) - first))


def test_a_file_without_its_segment_goes_with_the_next_start(written: tuple[Path, Writer]) -> None:
    path, writer = written
    orphan = Layout(path).archive / f"{10**9:020d}.parquet"
    orphan.write_bytes(b"what a crash in retention left")
    writer.store.close()
    Writer(path, writer.truth).store.close()
    assert not orphan.exists()


def test_a_node_writes_them_beside_its_service(tmp_path: Path) -> None:
    flags = ["--taskflux-port", "0", "--no-etzel", "--no-monique", "--storage-parquet"]
    small = ["--storage-segment-bytes", "16KiB", "--storage-reserve-bytes", "0"]
    with started("serve", *flags, *small, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        said = []
        for line in lines:
            said.append(line)
            if "is ready." in line:
                break
        assert any(line.startswith("parquet ") for line in said)
        address = next(line.split()[1] for line in said if line.startswith("taskflux"))
        with penstock.connect_sync(f"penstock://{address}") as client:
            queue = client.queue("jobs")
            queue.create()
            for number in range(20):
                queue.put_many([b"payload %d" % number] * 100)
        archive = Layout(tmp_path / "penstock-data").archive
        give_up_s = time.monotonic() + PATIENCE_S
        while not (made := sorted(archive.glob("*.parquet"))):
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        table = pq.read_table(made[0])
        assert set(table.column("queue").to_pylist()) >= {"jobs"}
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_without_pyarrow_the_start_is_refused_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "find_spec", lambda name: None)
    result = Command()("serve", "--storage-parquet", "--data-dir", str(tmp_path / "data"), code=1)
    assert "pyarrow is not installed; it comes with: pip install 'penstock[spark]'" in result.output
    assert not (tmp_path / "data").exists()
