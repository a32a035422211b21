"""What proves that raft.log has lost entries: files beside it that tell of later entries than it has.

- The *snapshot* and the *tail* of the journal are written only after the log up to their index was synced, in every
  mode. If one of them is ahead of the log, synced bytes of the log are gone.
- The *blocks* of events/live.events are written when entries are applied, and not synced. In mode durable an entry is
  applied only after it was synced in the log, so a block ahead of the log proves the same. In the modes `interval` and
  `none` an entry is applied when it is written. There a power cut may keep the pages of the journal and lose those of
  the log: what those modes promise holds, so it is reported and the node starts.

Each record of the log says in which mode it was written (``segmenthead``); the last one that is left decides. Records
of version 2 do not say, and count as written in mode durable, which is the default.

If no other file is ahead of the log, a log that was cut at the end of a record looks like one that never was longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.engine.journal import PUT, ROW, ROW_BYTES
from penstock.storage.errors import EntriesLost, UnreadableData
from penstock.storage.journalfile import (
    HEADER_BYTES,
    Block,
    decode_header,
    decode_tail,
    read_block_header,
    read_block_rows,
    rows_between,
)
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource

_KIND_FIELD = 3
"""The position of the kind of event among the fields of a row."""


@dataclass(frozen=True, slots=True)
class LostEntries:
    """Entries that were in the log and are not any more."""

    log: Path
    first_index: int
    last_index: int
    snapshot_index: int
    messages: int
    """How many messages the journal says were put by these entries, those before the snapshot left out."""
    evidence: tuple[Path, ...]
    was_synced: bool
    """Whether the log was synced up to them: then they are damage, and the node does not start."""

    def __str__(self) -> str:
        names = " and ".join(str(path) for path in self.evidence)
        lost = f"entries {self.first_index} to {self.last_index} are gone"
        if self.last_index <= self.snapshot_index:
            lost += "; the snapshot has their effect, but entries after it may be gone, too"
        elif self.first_index <= self.snapshot_index:
            lost += f"; the snapshot has the effect of those up to {self.snapshot_index}"
        if self.messages:
            lost += f"; the journal lists {self.messages} messages that were acknowledged in them"
        return f"ends with entry {self.first_index - 1}, but {names} reached entry {self.last_index}: {lost}"

    def error(self) -> EntriesLost:
        """Why a node does not start, and what to do."""
        return EntriesLost(self.log, str(self), self.first_index, self.last_index, self.messages)


def find_lost_entries(
    layout: Layout, last_index: int, snapshot_index: int, *, was_promised: bool
) -> LostEntries | None:
    """The entries after `last_index`, the log's last one, that other files tell of; None if there are none.

    `was_promised` says whether the last record was written in mode durable.
    """
    blocks_last, blocks_messages = _blocks_after(layout, last_index, snapshot_index)
    tail_last, tail_messages = _tail_after(layout, max(last_index, snapshot_index, blocks_last))
    found = {layout.snapshot: snapshot_index, layout.tail: tail_last, layout.live_events: blocks_last}
    ahead = {path: index for path, index in found.items() if index > last_index}
    if not ahead:
        return None
    was_synced = was_promised or any(path != layout.live_events for path in ahead)
    last_lost = max(ahead.values())
    messages = blocks_messages + tail_messages
    return LostEntries(layout.log, last_index + 1, last_lost, snapshot_index, messages, tuple(ahead), was_synced)


def _blocks_after(layout: Layout, last_index: int, snapshot_index: int) -> tuple[int, int]:
    """The last entry of the good blocks of live.events, -1 without any, and the messages put after the log's end."""
    if not layout.live_events.exists():
        return -1, 0
    found, messages = -1, 0
    with FileSource(layout.live_events) as source:
        try:
            expected, row_bytes = decode_header(source.read(0, HEADER_BYTES), layout.live_events)
        except UnreadableData:
            return -1, 0  # the journal is begun anew; what it said is not known
        offset, size_bytes = HEADER_BYTES, source.size_bytes
        while isinstance(block := read_block_header(source, size_bytes, offset, row_bytes, expected), Block):
            if block.last_index > last_index:
                rows = read_block_rows(source, block)
                if rows is None:
                    break
                messages += _puts_after(rows, row_bytes, max(last_index, snapshot_index), block.last_index)
            found = block.last_index
            offset, expected = block.end, block.last_index + 1
    return found, messages


def _tail_after(layout: Layout, counted_index: int) -> tuple[int, int]:
    """The last entry of the tail, -1 without one, and the messages put after entry `counted_index`."""
    if not layout.tail.exists():
        return -1, 0
    try:
        with FileSource(layout.tail) as source:
            # The tail does not say how long its rows are; a length of 1 fits any.
            tail = decode_tail(source.read(0, source.size_bytes), layout.tail, 1)
    except UnreadableData:
        return -1, 0
    if len(tail.rows) % ROW_BYTES:
        return tail.last_index, 0
    return tail.last_index, _puts_after(tail.rows, ROW_BYTES, counted_index, tail.last_index)


def _puts_after(rows: bytes, row_bytes: int, after: int, last_index: int) -> int:
    """How many messages these rows put after an entry; 0 where the rows are not the engine's."""
    if row_bytes != ROW_BYTES or after >= last_index:
        return 0
    inside = rows_between(rows, row_bytes, after + 1, last_index)
    return sum(row[_KIND_FIELD] == PUT for row in ROW.iter_unpack(inside))
