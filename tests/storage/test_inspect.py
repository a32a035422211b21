"""Files in readable form, and the check of a whole directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.errors import Damaged, NewerVersion, NotADataDirectory, WrongMarker
from penstock.storage.inspect import Explainers, Line, describe
from penstock.storage.journalfile import encode_block, encode_header
from penstock.storage.layout import Layout
from penstock.storage.verify import verify
from tests.storage.support import CLUSTER_ID, all_rows, data_of, files_of, open_store, replay, take_snapshot, write

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "taskflux.json").read_text())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A directory with one of everything."""
    store, _ = open_store(tmp_path)
    write(store, 0, 100)
    take_snapshot(store, 95)
    store.mark()
    store.save_metadata(3, 2)
    store.close()
    return Layout(tmp_path)


def end_of(log: Path) -> int:
    """Where the records of a log end."""
    (end,) = [line.offset for line in describe(log) if line.kind == "end"]
    return end


def kinds(lines: list[Line]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        found[line.kind] = found.get(line.kind, 0) + 1
    return found


def test_the_log_is_listed_entry_by_entry(layout: Layout) -> None:
    lines = list(describe(layout.log))
    assert [lines[0].kind, lines[1].kind, lines[-1].kind] == ["header", "mark", "end"]
    found = [line for line in lines if line.kind == "entry"]
    assert [line.fields["index"] for line in found] == list(range(int(found[0].fields["index"] or 0), 100))
    assert found[-1].fields["data"] == data_of(99)
    assert found[-1].fields["durable"] == 98
    assert lines[-2].fields == {"index": 99, "term": 3, "durable": 99}
    assert str(found[-1]).split()[:3] == [str(found[-1].offset), "entry", "index=99"]
    assert data_of(99)[:48].hex() in str(found[-1])


def test_a_sealed_segment_is_listed(layout: Layout) -> None:
    first = layout.sealed_first_indexes()[0]
    lines = list(describe(layout.sealed_log(first)))
    assert lines[-1] == Line(layout.sealed_log(first).stat().st_size, "end", {"unused_bytes": 0})
    assert kinds(lines)["mark"] == 2


def test_the_metadata_is_listed(layout: Layout) -> None:
    (line,) = describe(layout.metadata)
    assert line.fields == {"version": 2, "term": 3, "vote": 2, "cluster_id": CLUSTER_ID.hex(), "node_id": 7}


def test_the_snapshot_is_listed_with_what_the_caller_makes_of_its_blocks(layout: Layout) -> None:
    lines = list(describe(layout.snapshot, Explainers(block=lambda block: f"{len(block)} bytes")))
    assert lines[0].fields == {"file": "snapshot", "version": 2, "last_index": 95, "last_term": 3}
    assert [line.fields["data"] for line in lines[1:-1]] == ["8 bytes", "300 bytes", "3 bytes"]
    assert lines[-1].fields == {"blocks": 3}
    assert lines[-1].offset + 20 == layout.snapshot.stat().st_size


def test_the_journal_and_its_tail_are_listed(layout: Layout) -> None:
    path = layout.sealed_events(0)
    lines = list(describe(path, Explainers(row=lambda row: f"row {row[8]}")))
    assert lines[0].fields == {"file": "events", "version": 2, "first_index": 0, "row_bytes": 16}
    assert kinds(lines)["row"] == len(all_rows(0, layout.sealed_first_indexes()[1])) // 16
    assert [line.fields["data"] for line in lines if line.fields.get("index") == 1] == ["row 0", "row 1", "row 2"]
    (tail,) = describe(layout.tail)
    assert tail.fields["last_index"] == 99
    assert next(describe(layout.live_events)).kind == "header"


@pytest.mark.parametrize("name", ["raft.log", "raft.snapshot", "raft.metadata", "events/tail", "archive/{}.events"])
def test_a_damaged_file_is_listed_up_to_the_damage(layout: Layout, name: str) -> None:
    path = layout.consensus / name.format("0" * 20)
    data = bytearray(path.read_bytes())
    position = end_of(path) - 1 if name == "raft.log" else len(data) - 1
    data[position] ^= 1
    path.write_bytes(data)
    lines = list(describe(path))
    assert lines[-1].kind == "bad"
    assert lines[-1].fields["reason"]
    assert all(line.kind != "bad" for line in lines[:-1])


def test_a_log_that_ends_inside_a_header_is_listed_as_bad(layout: Layout) -> None:
    end = end_of(layout.log)
    layout.log.write_bytes(layout.log.read_bytes()[:end] + b"\1\2\3")
    lines = list(describe(layout.log))
    assert (lines[-1].kind, lines[-1].offset) == ("bad", end)


def test_files_of_other_names_and_versions_are_refused(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"hello")
    with pytest.raises(WrongMarker):
        list(describe(tmp_path / "notes.txt"))
    layout.log.write_bytes(b"hello there")
    with pytest.raises(WrongMarker):
        list(describe(layout.log))
    layout.metadata.write_bytes(layout.metadata.read_bytes()[:4] + b"\x09\0\0\0")
    with pytest.raises(NewerVersion):
        list(describe(layout.metadata))


VERSION_1 = [vector for vector in VECTORS["vectors"] if vector["dialect"] == "seed002-files"]


@pytest.mark.parametrize("vector", VERSION_1, ids=lambda vector: vector["name"])
def test_files_of_version_1_are_listed_and_verified_too(tmp_path: Path, vector: dict[str, Any]) -> None:
    path = tmp_path / ".".join(vector["name"].split(".")[:2])
    path.write_bytes(bytes.fromhex(vector["hex"]))
    lines = list(describe(path))
    fields = vector["fields"]
    assert lines[0].fields["version"] == 1
    if path.name == "raft.log":
        assert [line.fields["term"] for line in lines[1:]] == [entry["term"] for entry in fields.get("entries", [])]
    elif path.name == "raft.metadata":
        assert (lines[0].fields["term"], lines[0].fields["vote"]) == (fields["term"], fields["voted"])
    else:
        assert lines[0].fields["last_index"] == fields["last_index"]
        assert [line.fields["records"] for line in lines if line.kind == "queue"] == [1, 0]
        assert [line.fields["payload"] for line in lines if line.kind == "record"] == [b"abc"]
    assert verify(path).ok


def test_a_bad_file_of_version_1_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "raft.metadata"
    path.write_bytes(bytes.fromhex("2f0f6f2f 01000000 05"))
    with pytest.raises(Damaged):
        list(describe(path))
    assert not verify(path).ok
    log = tmp_path / "raft.log"
    whole = next(vector["hex"] for vector in VERSION_1 if vector["name"].startswith("raft.log.two"))
    log.write_bytes(bytes.fromhex(whole)[:-3])
    assert list(describe(log))[-1].kind == "bad"
    assert not verify(log).ok


def test_a_good_directory_has_no_problems_and_is_counted(layout: Layout) -> None:
    report = verify(layout.data_dir)
    assert report.problems == []
    assert report.ok
    assert report.entries == 100
    assert verify(layout.consensus) == report
    names = {path.name for path in report.files}
    assert {"raft.log", "raft.metadata", "raft.snapshot", "live.events", "tail"} <= names
    unchecked = {path.name for path in files_of(layout.consensus)} - names
    assert unchecked == {"lock"}
    assert report.bytes == sum(path.stat().st_size for path in report.files)


def test_every_file_can_be_verified_alone(layout: Layout) -> None:
    for path in files_of(layout.consensus):
        if path.name != "lock":
            assert verify(path).problems == []


def test_verifying_changes_nothing_and_needs_no_lock(layout: Layout) -> None:
    store, recovered = open_store(layout.data_dir)
    replay(store, recovered)
    before = {path: path.read_bytes() for path in files_of(layout.consensus)}
    assert verify(layout.data_dir).ok
    assert {path: path.read_bytes() for path in files_of(layout.consensus)} == before
    store.close()


def test_a_missing_segment_is_a_problem(layout: Layout) -> None:
    layout.sealed_log(layout.sealed_first_indexes()[1]).unlink()
    report = verify(layout.data_dir)
    assert not report.ok
    assert any("begins at entry" in problem.reason for problem in report.problems)


def test_missing_files_are_problems(layout: Layout) -> None:
    for path in (layout.metadata, layout.log, layout.live_events):
        data = path.read_bytes()
        path.unlink()
        report = verify(layout.data_dir)
        assert [(problem.file, problem.reason) for problem in report.problems if problem.file == path] == [
            (path, "is missing")
        ]
        path.write_bytes(data)


def test_a_torn_tail_is_told_apart_from_damage(layout: Layout) -> None:
    data = layout.log.read_bytes()
    used = end_of(layout.log)
    layout.log.write_bytes(data[:used] + b"torn" + data[used + 4 :])
    report = verify(layout.data_dir)
    assert report.ok
    (problem,) = report.problems
    assert (problem.file, problem.offset, problem.severity) == (layout.log, used, "torn")
    assert str(problem).startswith("torn: ")
    broken = bytearray(data)
    broken[200] ^= 1
    layout.log.write_bytes(broken)
    report = verify(layout.data_dir)
    assert not report.ok
    assert report.problems[0].severity == "damage"


def test_rows_that_are_lost_before_the_snapshot_are_a_gap(layout: Layout) -> None:
    layout.tail.unlink()
    report = verify(layout.data_dir)
    assert [problem.severity for problem in report.problems] == ["gap"]
    assert not report.ok


def test_rows_of_other_entries_than_the_block_says_are_damage(layout: Layout) -> None:
    layout.live_events.write_bytes(encode_header(5, 16) + encode_block(5, 9, (10).to_bytes(16, "little"), 16))
    assert [problem.offset for problem in verify(layout.live_events).problems] == [24]


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADataDirectory):
        verify(tmp_path)
    with pytest.raises(Damaged):
        list(describe(tmp_path / "raft.log"))
