"""What a history out of files holds, held against what was written."""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.engine import snapshot as engine_snapshot
from penstock.engine.journal import ROW, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.history import HistoryFiles
from penstock.storage.journalfile import BLOCK, BLOCK_HEADER_BYTES
from penstock.storage.records import RECORD_HEADER_BYTES
from penstock.wire.native.messages import PIECE_BYTES_MAX, JournalPiece
from tests.storage.histories import Truth
from tests.storage.support import files_of


def rows_of(piece: JournalPiece) -> bytes:
    rows, at = [], 0
    while at < len(piece.blocks):
        _, _, first, last, count, _ = BLOCK.unpack_from(piece.blocks, at)
        block = piece.blocks[at + BLOCK_HEADER_BYTES : at + BLOCK_HEADER_BYTES + count * ROW_BYTES]
        at += BLOCK_HEADER_BYTES + len(block)
        if piece.first_index <= first and last <= piece.last_index:
            rows.append(block)
            continue
        each = [block[start : start + ROW_BYTES] for start in range(0, len(block), ROW_BYTES)]
        rows += [row for row in each if piece.first_index <= ROW.unpack(row)[0] <= piece.last_index]
    return b"".join(rows)


def entries_of(piece: JournalPiece) -> list[bytes]:
    offsets = memoryview(piece.offsets).cast("q")
    found = []
    for start in offsets[:-1]:
        at = start - offsets[0]
        length = int.from_bytes(piece.log[at + 4 : at + 8], "little")
        found.append(piece.log[at + RECORD_HEADER_BYTES : at + 8 + length])
    return found


def read(
    history: HistoryFiles, first: int | None = None, last: int | None = None, bytes_max: int = PIECE_BYTES_MAX
) -> tuple[int, bytes, list[bytes]]:
    """First index, rows and entries of a history or a part of it."""
    reach = history.reach()
    first = reach.first_index if first is None else first
    last = reach.applied_index if last is None else last
    rows, entries, expected = [], [], first
    for piece in history.pieces(first, last, bytes_max=bytes_max):
        assert piece.first_index == expected
        expected = piece.last_index + 1
        rows.append(rows_of(piece))
        entries += entries_of(piece)
    assert expected == last + 1
    return first, b"".join(rows), entries


def assert_is_true(history: HistoryFiles, truth: Truth, bytes_max: int = PIECE_BYTES_MAX) -> None:
    """All of it is there."""
    first, rows, entries = read(history, bytes_max=bytes_max)
    assert rows == truth.all_rows(first)
    assert entries == truth.entries[first:]


def assert_is_part(history: HistoryFiles, truth: Truth) -> int:
    """What is there is right; returns how many entries that are."""
    first, rows, entries = read(history)
    assert entries == truth.entries[first : first + len(entries)]
    assert rows == truth.all_rows(first, first + len(entries) - 1)
    return len(entries)


def snapshot_of(engine: Engine) -> list[bytes]:
    return list(engine_snapshot.begin(engine))


def fingerprint(path: Path) -> dict[Path, tuple[str, int]]:
    """What every file below a path holds, and when it was written."""
    return {file: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files_of(path)}
