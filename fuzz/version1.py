"""Targets: the three files of version 1. What was read must be written and read again as the same."""

from __future__ import annotations

from fuzz.runner import Target
from penstock.storage import version1 as v1
from penstock.storage.version1 import Version1Error

_COMMANDS: tuple[v1.LogCommand, ...] = (
    v1.CreateQueue(b"orders", 100),
    v1.Enqueue(b"", 5, b"abc"),
    v1.Enqueue(b"orders", -(2**63), b"x" * 100),
    v1.Dequeue(b""),
    v1.Count(b"orders"),
    v1.DeleteQueue(b"orders"),
)


def _log_corpus() -> list[bytes]:
    entries = [v1.LogEntry(number // 2 + 1, command) for number, command in enumerate(_COMMANDS)]
    logs = [v1.Log([]), v1.Log(entries), v1.Log(entries, "queuename"), v1.Log([v1.LogEntry(1, _COMMANDS[1])])]
    return [v1.encode_log(log) for log in logs]


def _run_log(data: bytes) -> None:
    log = v1.decode_log(data)
    whole = data[: log.torn_at]
    assert v1.encode_log(log) == whole or not data, "the log is written otherwise than it was read"
    for names in ("string", "queuename"):
        try:
            v1.decode_log(data, names)
        except Version1Error:
            assert names != log.names, "the form that was found cannot be read"


def _metadata_corpus() -> list[bytes]:
    return [v1.encode_metadata(metadata) for metadata in (v1.Metadata(), v1.Metadata(3, 1), v1.Metadata(2**31 - 1, 0))]


def _run_metadata(data: bytes) -> None:
    metadata = v1.decode_metadata(data)
    assert v1.decode_metadata(v1.encode_metadata(metadata)) == metadata, "the metadata do not survive"


def _snapshot_corpus() -> list[bytes]:
    items = [(5, b"abc"), (-1, b""), (2**63 - 1, b"x" * 100)]
    queues = [v1.SnapshotQueue(b"", 0, items), v1.SnapshotQueue(b"orders", 100), v1.SnapshotQueue(b"z" * 255, 7, items)]
    snapshots = [v1.Snapshot(-1, 0, []), v1.Snapshot(1, 3, queues[:1]), v1.Snapshot(9, 2, queues)]
    return [v1.encode_snapshot(snapshot) for snapshot in snapshots]


def _run_snapshot(data: bytes) -> None:
    assert v1.encode_snapshot(v1.decode_snapshot(data)) == data, "the snapshot is written otherwise than it was read"


TARGETS = (
    Target("version1-log", _log_corpus, _run_log, (Version1Error,)),
    Target("version1-metadata", _metadata_corpus, _run_metadata, (Version1Error,)),
    Target("version1-snapshot", _snapshot_corpus, _run_snapshot, (Version1Error,)),
)
