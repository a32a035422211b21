"""Sealed segments as Parquet: the events of each beside its log, in the columns of the table `events`.

For programs that read Parquet and nothing else. Files appear whole: each is written in temp/, synced, and gets its name
at the end. What is there is not written again, so this goes on where it was after a restart; retention removes a file
together with its segment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from penstock.spark.schemas import EVENTS, arrow_schema
from penstock.spark.source.decode import decode_batches
from penstock.spark.source.heads import check_heads
from penstock.spark.source.rows import read_rows
from penstock.storage.history import HistoryFiles
from penstock.storage.layout import Layout
from penstock.storage.modes import create_file

_COLUMNS: Final = tuple(EVENTS)
_COMPRESSION: Final = "zstd"


class SegmentExport:
    """Writes the sealed segments of a data directory as Parquet, also while its node runs. For one thread at a time."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._layout = Layout(data_dir)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Give up what is being written; may be called from another thread."""
        self._stopping.set()

    def missing(self) -> list[int]:
        """The first index of each segment that is sealed with its journal and has no Parquet file yet."""
        layout = self._layout
        return [
            first_index
            for first_index in layout.sealed_first_indexes()
            if layout.sealed_events(first_index).exists() and not layout.sealed_parquet(first_index).exists()
        ]

    def write(self, first_index: int, names: Mapping[int, str]) -> Path | None:
        """Write one segment with these names of queues by uid; None if it was given up or the segment is gone.

        Raises ``StorageError`` where the segment cannot be read, ``OSError`` where the file cannot be written.
        """
        layout = self._layout
        temporary, target = layout.temp / layout.sealed_parquet(first_index).name, layout.sealed_parquet(first_index)
        try:
            if not self._write_to(temporary, first_index, names):
                return None
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        if not layout.sealed_log(first_index).exists():
            target.unlink(missing_ok=True)  # retention was quicker
            return None
        return target

    def _write_to(self, path: Path, first_index: int, names: Mapping[int, str]) -> bool:
        create_file(path)
        with HistoryFiles(self._data_dir, check_heads) as history, path.open("wb") as file:
            last_index = history.segment_end(first_index)
            with pq.ParquetWriter(file, arrow_schema(EVENTS), compression=_COMPRESSION) as writer:
                for piece in history.pieces(first_index, last_index):
                    if self._stopping.is_set():
                        return False
                    rows, _ = read_rows(piece)
                    for batch in decode_batches(piece, rows, names, _COLUMNS, history.entries):
                        writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        return True
