"""The history out of files of version 1: that of their import."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage import version1 as v1
from penstock.storage.errors import Damaged
from penstock.storage.history import HistoryFiles
from penstock.storage.import_version1 import build_engine, read_version1
from tests.storage.comparing import assert_is_true, fingerprint, snapshot_of
from tests.storage.histories import Truth


def version1(path: Path) -> Path:
    path.mkdir()
    items = [(number % 5, b"old %d" % number) for number in range(1_500)]
    snapshot = v1.Snapshot(10, 3, [v1.SnapshotQueue(b"", v1.UNLIMITED, items), v1.SnapshotQueue(b"mail")])
    entries = [v1.LogEntry(3, v1.Enqueue(b"mail", number, b"new %d" % number)) for number in range(40)]
    entries += [v1.LogEntry(4, v1.Dequeue(b"mail")), v1.LogEntry(4, v1.CreateQueue(b"more", 7))]
    (path / "raft.snapshot").write_bytes(v1.encode_snapshot(snapshot))
    (path / "raft.log").write_bytes(v1.encode_log(v1.Log(entries)))
    (path / "raft.metadata").write_bytes(v1.encode_metadata(v1.Metadata(5)))
    os.utime(path / "raft.log", (1_600_000_000, 1_600_000_000))
    return path


def as_directory(path: Path) -> Path:
    return path


def as_log(path: Path) -> Path:
    return path / "raft.log"


def as_consensus_of_another(path: Path) -> Path:
    path.rename(path.parent / "consensus")
    return path.parent


@pytest.mark.parametrize("place", [as_directory, as_log, as_consensus_of_another])
def test_files_of_version_1_have_the_history_of_their_import(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    (tmp_path / "files").mkdir()
    path = place(version1(tmp_path / "files" / "version1"))
    rows: list[bytes] = []
    entries: list[bytes] = []
    source = path.parent if path.is_file() else path
    imported = build_engine(
        read_version1(source),
        now_us=1_600_000_000_000_000,
        record=lambda _index, _term, data, found: (entries.append(data), rows.append(found))[0],
    )
    before = fingerprint(source)
    with HistoryFiles(path) as history:
        truth = Truth(entries, rows, imported.engine)
        assert_is_true(history, truth)
        reach = history.reach()
        assert (reach.cluster, reach.first_index, reach.log_time_us) == ("", 0, 1_600_000_000_000_000)
        assert set(history.queue_names().values()) == {"", "mail", "more"}
        index, blocks = history.state()
        assert (index, list(blocks)) == (reach.applied_index, snapshot_of(imported.engine))
        folder = Path(history._temporary.name) if history._temporary is not None else None
    assert folder is not None
    assert not folder.exists()
    assert fingerprint(source) == before


def test_damaged_files_of_version_1_are_refused(tmp_path: Path) -> None:
    path = version1(tmp_path / "version1")
    log = path / "raft.log"
    log.write_bytes(log.read_bytes()[:200] + b"\xff" * 64 + log.read_bytes()[264:])
    with pytest.raises(Damaged) as caught:
        HistoryFiles(path)
    assert caught.value.file == log
    assert caught.value.offset is not None
