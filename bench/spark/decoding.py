"""Decoding alone: from bytes in memory to record batches, on one core."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.spark.source.decode import decode_piece
from penstock.storage.history import HistoryFiles


def rate(data_dir: Path, columns: Sequence[str]) -> float:
    """Rows a second over all pieces of a history, which are read into memory first."""
    with HistoryFiles(data_dir) as files:
        reach = files.reach()
        pieces = list(files.pieces(reach.first_index, reach.applied_index))
        names = files.queue_names()
        for piece in pieces[:1]:
            decode_piece(piece, names, columns, files.entries)
        began = time.perf_counter()
        count = sum(decode_piece(piece, names, columns, files.entries).num_rows for piece in pieces)
        return count / (time.perf_counter() - began)
