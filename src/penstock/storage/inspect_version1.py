"""Files of version 1 in readable form, for ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.storage import version1
from penstock.storage.errors import Damaged

if TYPE_CHECKING:
    from penstock.storage.inspect import FileKind, Line, Value


def describe_version1(data: bytes, file: Path, kind: FileKind) -> Iterator[Line]:
    """Every item of a file of version 1; raises ``Damaged`` where it cannot be read."""
    try:
        if kind == "metadata":
            yield from _describe_metadata(data)
        elif kind == "log":
            yield from _describe_log(data)
        else:
            yield from _describe_snapshot(data)
    except version1.Version1Error as error:
        raise Damaged(file, error.reason, error.offset) from error


def _describe_metadata(data: bytes) -> Iterator[Line]:
    metadata = version1.decode_metadata(data)
    yield _line(0, "metadata", {"version": 1, "term": metadata.term, "vote": metadata.voted_for})


def _describe_log(data: bytes) -> Iterator[Line]:
    log = version1.decode_log(data)
    names = f"{log.names} (or the other form, both fit)" if log.both_forms_fit else log.names
    yield _line(0, "header", {"file": "log", "version": 1, "names": names})
    for index, entry in enumerate(log.entries):
        fields: dict[str, Value] = {"index": index, "term": entry.term, "command": type(entry.command).__name__}
        yield _line(entry.offset, "entry", fields | msgspec.structs.asdict(entry.command))
    if log.torn_at is not None:
        yield _line(log.torn_at, "bad", {"reason": "the last entry is not whole"})


def _describe_snapshot(data: bytes) -> Iterator[Line]:
    snapshot = version1.decode_snapshot(data)
    fields: dict[str, Value] = {"file": "snapshot", "version": 1}
    fields |= {"last_index": snapshot.last_index, "last_term": snapshot.last_term}
    yield _line(0, "header", fields)
    for queue in snapshot.queues:
        # Version 1 keeps no offsets of its queues; the order is what there is.
        fields = {"name": queue.name.decode("latin-1"), "queue_size_max": queue.queue_size_max}
        yield _line(0, "queue", fields | {"records": len(queue.items)})
        for key, payload in queue.items:
            yield _line(0, "record", {"key": key, "payload": payload})


def _line(offset: int, kind: str, fields: dict[str, Value]) -> Line:
    from penstock.storage.inspect import Line

    return Line(offset, kind, fields)
