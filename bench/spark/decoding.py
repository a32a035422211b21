"""Decoding alone: from bytes in memory, unchecked, to record batches, on one core."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.spark.source.decode import decode_piece
from penstock.spark.source.heads import check_heads
from penstock.storage.history import HistoryFiles
from penstock.wire.native.pieces import check_piece


def rate(path: Path | Sequence[Path], columns: Sequence[str]) -> float:
    """Rows a second over all pieces of a history, which are read into memory first."""
    with HistoryFiles(path, check_heads) as files:
        reach = files.reach()
        pieces = list(files.pieces(reach.first_index, reach.applied_index))
        names = files.queue_names()
        decode_piece(pieces[0], names, columns, files.entries)
        count = 0
        began = time.perf_counter()
        for piece in pieces:
            check_piece(piece, check_heads)
            count += decode_piece(piece, names, columns, files.entries).num_rows
        return count / (time.perf_counter() - began)
