"""The history that files of version 1 tell: what importing them does, written down as a segment of ours.

Version 1 keeps no times, so all of it happens at the time of the file. Whoever reads the same files gets the same
history to the byte.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.errors import Damaged
from penstock.storage.import_version1 import Recorder, Version1Files, build_engine, read_version1
from penstock.storage.journal import BLOCK_LOG_BYTES, BLOCK_ROWS
from penstock.storage.journalfile import encode_block, encode_header
from penstock.storage.layout import Layout
from penstock.storage.offsets import encode_offsets
from penstock.storage.records import (
    ENTRY_BYTES_MAX,
    encode_mark,
    encode_record,
    encode_segment_start,
)
from penstock.storage.segmentfiles import Segment, loose_segments


class Version1History:
    """Files of version 1 as one sealed segment, which is written into a folder of the caller's."""

    cluster = ""
    first_index = 0
    snapshot_index = -1

    def __init__(self, directory: Path, folder: Path) -> None:
        self._files = read_version1(directory)
        self._time_us = _time_us(self._files)
        layout = Layout(folder, archive=folder)
        with ExitStack() as stack:
            log = stack.enter_context(layout.sealed_log(0).open("wb"))
            events = stack.enter_context(layout.sealed_events(0).open("wb"))
            writer = _SegmentWriter(self._files.log_path, log, events)
            self._build(writer.add)
            offsets, log_bytes = writer.finish()
        layout.sealed_offsets(0).write_bytes(encode_offsets(0, log_bytes, offsets))
        (self._segment,) = loose_segments([layout.sealed_log(0)])
        self.applied_index = self.saved_index = self.sealed_index = self._segment.last_index

    def segment_of(self, index: int) -> Segment:
        """The one segment."""
        return self._segment

    def snapshot_blocks(self) -> Iterator[bytes]:
        """There is no snapshot: all queues are made in the history."""
        return iter(())

    def engine(self) -> Engine:
        """The state after all of it."""
        return self._build(None)

    def close(self) -> None:
        """Nothing is open."""

    def _build(self, record: Recorder | None) -> Engine:
        return build_engine(self._files, now_us=self._time_us, record=record).engine


class _SegmentWriter:
    """Writes entries and their events as a sealed segment that begins at 0."""

    def __init__(self, origin: Path, log: BinaryIO, events: BinaryIO) -> None:
        self._origin = origin
        self._log = log
        self._events = events
        self._offsets = array("q")
        self._last_index, self._last_term = -1, 0
        self._rows = bytearray()
        self._rows_first = self._log_bytes = 0
        log.write(encode_segment_start(0, 0))
        events.write(encode_header(0, ROW_BYTES))

    def add(self, index: int, term: int, data: bytes, rows: bytes) -> None:
        """Write one entry."""
        if len(data) > ENTRY_BYTES_MAX:
            raise Damaged(self._origin, f"a command of {len(data)} bytes, at most {ENTRY_BYTES_MAX} fit into an entry")
        self._offsets.append(self._log.tell())
        self._log.write(encode_record(index, term, data, self._last_index))
        self._last_index, self._last_term = index, term
        self._rows += rows
        self._log_bytes += len(data)
        if len(self._rows) >= BLOCK_ROWS * ROW_BYTES or self._log_bytes >= BLOCK_LOG_BYTES:
            self._close_block()

    def finish(self) -> tuple[array[int], int]:
        """Close the segment; returns where the entries lie and how long the log is."""
        self._log.write(encode_mark(self._last_index, self._last_term, self._last_index))
        if self._rows_first <= self._last_index:
            self._close_block()
        return self._offsets, self._log.tell()

    def _close_block(self) -> None:
        self._events.write(encode_block(self._rows_first, self._last_index, bytes(self._rows), ROW_BYTES))
        self._rows_first, self._log_bytes = self._last_index + 1, 0
        self._rows.clear()


def _time_us(files: Version1Files) -> int:
    path = files.log_path if files.log is not None else files.directory / "raft.snapshot"
    return path.stat().st_mtime_ns // 1000
