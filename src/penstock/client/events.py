"""Events out of pieces of the history, one at a time: for people and small programs.

Programs that want millions of them decode whole columns instead (``penstock.spark``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from penstock.client.history import HistoryReader
from penstock.engine.journal import OWNER_GONE, OWNER_NAMED, ROW, TEXT_KINDS
from penstock.engine.owners import OWNER_NAMES_MAX
from penstock.engine.views import EventView
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import RECORD, read_offsets, spans


class Event(NamedTuple):
    """Something that happened, with the bytes that it names."""

    view: EventView
    payload: bytes
    headers: bytes
    """MessagePack, as the client sent them; for a topic message its tag."""
    is_whole: bool
    """False where the bytes have been let go."""


def read_events(reader: HistoryReader, first_index: int, last_index: int) -> Iterator[Event]:
    """All events of these entries in order. Owners have names from the entry on in which they were named."""
    names: dict[int, str] = {}
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
            is_whole = len(payload) == size and len(headers) == headers_size
            if kind == OWNER_NAMED:
                if len(names) >= OWNER_NAMES_MAX:
                    del names[next(iter(names))]
                names[owner] = payload.decode("utf-8", "replace")
            view.owner_name = names.pop(owner, "") if kind == OWNER_GONE else names.get(owner, "")
            if kind in TEXT_KINDS:
                view.text, payload = payload.decode("utf-8", "replace"), b""
            yield Event(view, payload, headers, is_whole)


def _rows(piece: JournalPiece) -> Iterator[tuple[int, ...]]:
    for block in spans(piece.blocks):
        yield from ROW.iter_unpack(piece.blocks[block.start : block.end])


def _entries(piece: JournalPiece) -> dict[int, bytes]:
    offsets = read_offsets(piece)
    return {
        piece.first_index + number: piece.log[start - offsets[0] + RECORD.size : end - offsets[0]]
        for number, (start, end) in enumerate(pairwise(offsets))
    }
