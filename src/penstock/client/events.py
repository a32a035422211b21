"""Events out of pieces of the history, one at a time: for people and small programs.

Programs that want millions of them decode whole columns instead (``penstock.spark``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.client.errors import BadAnswer
from penstock.client.history import HistoryReader
from penstock.engine.journal import ROW, ROW_BYTES
from penstock.engine.views import EventView
from penstock.wire.native.messages import JournalPiece

BLOCK: Final = Struct("<IIqqII")
"""The head of a block of events: magic, checksum, first index, last index, count, 0."""
RECORD_HEADER_BYTES: Final = 32
_MAGIC: Final = 0x4B4C4256


class Event(NamedTuple):
    """Something that happened, with the bytes that it names."""

    view: EventView
    payload: bytes
    headers: bytes
    """MessagePack, as the client sent them; for a topic message its tag."""
    is_whole: bool
    """False where the bytes have been let go."""


def read_events(reader: HistoryReader, first_index: int, last_index: int) -> Iterator[Event]:
    """All events of these entries in order."""
    for piece in reader.pieces(first_index, last_index):
        rows = [row for row in _rows(piece) if piece.first_index <= row[0] <= piece.last_index]
        entries = _entries(piece)
        older = sorted({row[15] for row in rows if row[17] or row[19]} - entries.keys())
        entries |= reader.entries(older) if older else {}
        for row in rows:
            (index, n, item, kind, door, reason, deliveries, time_us, owner, queue, record, key, value, *rest) = row
            other_queue, other_record, at_index, offset, size, headers_offset, headers_size = rest
            view = EventView(
                *(index, n, item, kind, door, reason, time_us, owner, queue, record),
                *(key, deliveries, value, other_queue, other_record),
            )
            entry = entries.get(at_index, b"")
            payload = entry[offset : offset + size]
            headers = entry[headers_offset : headers_offset + headers_size]
            yield Event(view, payload, headers, len(payload) == size and len(headers) == headers_size)


def _rows(piece: JournalPiece) -> Iterator[tuple[int, ...]]:
    data, at = piece.blocks, 0
    while at < len(data):
        magic, checksum, _, _, count, _ = BLOCK.unpack_from(data, at)
        rows = data[at + BLOCK.size : at + BLOCK.size + count * ROW_BYTES]
        head = crc32c(data[at + 8 : at + BLOCK.size], crc32c(data[at : at + 4]))
        if magic != _MAGIC or crc32c(rows, head) != checksum:
            raise BadAnswer("ReadJournal", f"a block of events at byte {at} is damaged")
        yield from ROW.iter_unpack(rows)
        at += BLOCK.size + len(rows)


def _entries(piece: JournalPiece) -> dict[int, bytes]:
    offsets = array("q", piece.offsets)
    return {
        piece.first_index + number: piece.log[start - offsets[0] + RECORD_HEADER_BYTES : end - offsets[0]]
        for number, (start, end) in enumerate(pairwise(offsets))
    }
