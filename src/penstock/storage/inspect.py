"""The files of a data directory in readable form: what ``penstock storage inspect`` prints.

Nothing is changed and no lock is taken, so that the files of a running node, or copies of them, can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from crc32c import crc32c

from penstock.storage import journalfile, snapshot
from penstock.storage.errors import Damaged, UnreadableData, WrongMarker
from penstock.storage.layout import FILE_HEADER, FILE_HEADER_BYTES, MARKER, VERSION, check_version
from penstock.storage.metadata import METADATA_BYTES, decode_metadata
from penstock.storage.offsets import read_offsets
from penstock.storage.reading import FileSource, Source, WindowSource
from penstock.storage.records import ENVELOPE_BYTES, LENGTH_MAX, MAGIC, RECORD, RECORD_HEADER_BYTES
from penstock.storage.segmenthead import LOG_VERSION, read_segment_head
from penstock.storage.skipped import decode_skipped
from penstock.storage.sums import read_sums

FileKind = Literal["log", "metadata", "snapshot", "events", "tail", "offsets", "sums", "skipped"]
Value = int | str | bytes | None
Explain = Callable[[bytes], str]

_SHOWN_BYTES_MAX: Final = 48


@dataclass(frozen=True, slots=True)
class Line:
    """One item of a file: where it lies, what it is, and its fields. ``str`` is a line for people."""

    offset: int
    kind: str
    fields: dict[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        fields = " ".join(f"{name}={_shown(value)}" for name, value in self.fields.items())
        return f"{self.offset:>10}  {self.kind:<8}  {fields}".rstrip()


@dataclass(frozen=True, slots=True)
class Explainers:
    """How to put into words what storage does not understand; without them bytes are shown as hexadecimal digits."""

    entry: Explain | None = None
    row: Explain | None = None
    block: Explain | None = None


def kind_of(path: Path) -> FileKind:
    """What a file is, by its name."""
    name = path.name
    if name.startswith(("raft.snapshot", "snapshot.new")):
        return "snapshot"
    if name.endswith(".log") or name == "log.new":
        return "log"
    if name == "raft.metadata":
        return "metadata"
    if name == "skipped":
        return "skipped"
    if name.endswith(".events"):
        return "events"
    if name == "tail":
        return "tail"
    if name.endswith(".offsets"):
        return "offsets"
    if name.endswith(".sums"):
        return "sums"
    names = "raft.log, raft.metadata, raft.snapshot, *.log, *.events, *.offsets, *.sums, tail, skipped"
    raise WrongMarker(path, f"is none of {names}, by its name")


def version_of(source: Source, file: Path, kind: FileKind) -> int:
    """The version of a file, from 1 to the newest that we read; raises if it is none of these."""
    head = source.read(0, FILE_HEADER_BYTES)
    if len(head) < FILE_HEADER_BYTES or head[: len(MARKER)] != MARKER:
        raise WrongMarker(file, "does not begin with the marker", 0)
    version: int = FILE_HEADER.unpack(head)[1]
    if kind == "snapshot":
        return 1 if version >= -1 else 2
    if version == 1 and kind in ("log", "metadata"):
        return 1
    return check_version(version, file, LOG_VERSION if kind == "log" else VERSION)


def describe(path: Path, explainers: Explainers | None = None) -> Iterator[Line]:
    """Every item of one file in order, of any version; a bad one ends the list with a line of kind "bad"."""
    kind = kind_of(path)
    with FileSource(path) as source:
        if version_of(source, path, kind) == 1:
            # Only here: files of version 1 are rare, and their reader brings the protocol's types with it.
            from penstock.storage.inspect_version1 import describe_version1

            yield from describe_version1(source.read(0, source.size_bytes), path, kind)
            return
        try:
            yield from _DESCRIBERS[kind](source, path, explainers or Explainers())
        except UnreadableData as error:
            yield Line(error.offset or 0, "bad", {"reason": error.reason})


def _describe_log(source: Source, path: Path, explainers: Explainers) -> Iterator[Line]:
    head = read_segment_head(source, path)
    described: dict[str, Value] = {"file": "log", "version": head.version}
    if head.cluster_id is not None:
        described["cluster_id"] = head.cluster_id.hex()
    yield Line(0, "header", described)
    window, offset, size = WindowSource(source), head.size_bytes, source.size_bytes
    while offset < size:
        header = window.read(offset, RECORD_HEADER_BYTES)
        if not any(header[:8]):
            yield Line(offset, "end", {"unused_bytes": size - offset})
            return
        if len(header) < RECORD_HEADER_BYTES:
            raise Damaged(path, "the file ends inside a record's header", offset)
        term, length, magic, checksum, index, proof = RECORD.unpack(header)
        if magic != MAGIC or not ENVELOPE_BYTES <= length <= LENGTH_MAX or offset + 8 + length > size:
            raise Damaged(path, "no record begins here", offset)
        body = window.read(offset + 16, length - 8)
        if crc32c(body, crc32c(header[:12], head.seed)) != checksum:
            raise Damaged(path, f"wrong checksum of a record that calls itself index {index}", offset)
        fields: dict[str, Value] = {"index": index, "term": term, "durable": head.durable(index, proof)}
        if length > ENVELOPE_BYTES:
            fields["bytes"] = length - ENVELOPE_BYTES
            fields["data"] = _explained(body[16:], explainers.entry)
        yield Line(offset, "mark" if length == ENVELOPE_BYTES else "entry", fields)
        offset += 8 + length
    yield Line(offset, "end", {"unused_bytes": 0})


def _describe_metadata(source: Source, path: Path, _explainers: Explainers) -> Iterator[Line]:
    metadata = decode_metadata(source.read(0, METADATA_BYTES + 1), path)
    fields: dict[str, Value] = {
        "version": 2,
        "term": metadata.term,
        "vote": metadata.vote,
        "cluster_id": metadata.cluster_id.hex(),
        "node_id": metadata.node_id,
    }
    yield Line(0, "metadata", fields)


def _describe_skipped(source: Source, path: Path, _explainers: Explainers) -> Iterator[Line]:
    skipped = decode_skipped(source.read(0, source.size_bytes), path)
    yield Line(0, "header", {"file": "skipped", "version": 2, "entries": len(skipped.checksums)})
    for index, checksum in sorted(skipped.checksums.items()):
        yield Line(0, "entry", {"index": index, "checksum": checksum})


def _describe_snapshot(source: Source, path: Path, explainers: Explainers) -> Iterator[Line]:
    last_index, last_term = snapshot.decode_header(source.read(0, snapshot.HEADER_BYTES), path)
    yield Line(0, "header", {"file": "snapshot", "version": 2, "last_index": last_index, "last_term": last_term})
    count, end = 0, snapshot.HEADER_BYTES
    for offset, block in snapshot.iterate_blocks(source, path):
        yield Line(offset, "block", {"bytes": len(block), "data": _explained(block, explainers.block)})
        count, end = count + 1, offset + snapshot.BLOCK_HEADER_BYTES + len(block)
    yield Line(end, "end", {"blocks": count})


def _describe_events(source: Source, path: Path, explainers: Explainers) -> Iterator[Line]:
    first_index, row_bytes = journalfile.decode_header(source.read(0, journalfile.HEADER_BYTES), path)
    yield Line(0, "header", {"file": "events", "version": 2, "first_index": first_index, "row_bytes": row_bytes})
    for block in journalfile.iterate_blocks(source, path):
        fields: dict[str, Value] = {
            "first_index": block.first_index,
            "last_index": block.last_index,
            "rows": block.row_count,
        }
        yield Line(block.offset, "block", fields)
        rows = journalfile.read_block_rows(source, block)
        if rows is None:
            raise Damaged(path, "wrong checksum of a block", block.offset)
        yield from _describe_rows(rows, row_bytes, block.offset + journalfile.BLOCK_HEADER_BYTES, explainers)


def _describe_tail(source: Source, path: Path, explainers: Explainers) -> Iterator[Line]:
    # The side file does not say how long its rows are; a length of 1 fits any.
    tail = journalfile.decode_tail(source.read(0, source.size_bytes), path, 1)
    fields: dict[str, Value] = {
        "file": "tail",
        "version": 2,
        "first_index": tail.first_index,
        "last_index": tail.last_index,
        "bytes": len(tail.rows),
        "data": _explained(tail.rows, explainers.row),
    }
    yield Line(0, "header", fields)


def _describe_offsets(source: Source, path: Path, _explainers: Explainers) -> Iterator[Line]:
    first_index, log_bytes, offsets = read_offsets(source.read(0, source.size_bytes), path)
    fields: dict[str, Value] = {
        "file": "offsets",
        "version": 2,
        "first_index": first_index,
        "log_bytes": log_bytes,
        "entries": len(offsets),
    }
    yield Line(0, "header", fields)


def _describe_sums(source: Source, path: Path, _explainers: Explainers) -> Iterator[Line]:
    first_index, log_bytes, sums = read_sums(source.read(0, source.size_bytes), path)
    fields: dict[str, Value] = {
        "file": "sums",
        "version": 2,
        "first_index": first_index,
        "log_bytes": log_bytes,
        "chunks": len(sums),
        "unknown": sums.count(0),
    }
    yield Line(0, "header", fields)


def _describe_rows(rows: bytes, row_bytes: int, offset: int, explainers: Explainers) -> Iterator[Line]:
    for start in range(0, len(rows), row_bytes):
        row = rows[start : start + row_bytes]
        fields: dict[str, Value] = {
            "index": int.from_bytes(row[:8], "little"),
            "data": _explained(row[8:] if explainers.row is None else row, explainers.row),
        }
        yield Line(offset + start, "row", fields)


_DESCRIBERS: Final[dict[FileKind, Callable[[Source, Path, Explainers], Iterator[Line]]]] = {
    "log": _describe_log,
    "metadata": _describe_metadata,
    "skipped": _describe_skipped,
    "snapshot": _describe_snapshot,
    "events": _describe_events,
    "tail": _describe_tail,
    "offsets": _describe_offsets,
    "sums": _describe_sums,
}


def _explained(data: bytes, explain: Explain | None) -> Value:
    return data if explain is None else explain(data)


def _shown(value: Value) -> str:
    if value is None:
        return "none"
    if not isinstance(value, bytes):
        return str(value)
    dots = "..." if len(value) > _SHOWN_BYTES_MAX else ""
    return value[:_SHOWN_BYTES_MAX].hex() + dots
