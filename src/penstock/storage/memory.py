"""A store that keeps log and journal in memory: for tests of programs that use Penstock."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from penstock.engine.journal import ROW_BYTES
from penstock.storage.cutting import Table
from penstock.storage.journalfile import encode_block
from penstock.storage.pieces import Part
from penstock.storage.records import Entry, encode_record
from penstock.storage.snapshot import SnapshotEncoder
from penstock.storage.space import Room
from penstock.wire.native.messages import JournalPiece

CLUSTER_ID_BYTES = 16


class MemorySnapshot:
    """A snapshot in memory, for readers of the state; it is also the sink that it is written to."""

    def __init__(self, index: int, term: int, finished: Callable[[MemorySnapshot], None]) -> None:
        self.index = index
        self._encoder = SnapshotEncoder(index, term)
        self._data = bytearray(self._encoder.header)
        self._finished = finished

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """Some of its bytes."""
        return bytes(self._data[offset : offset + length])

    def write_block(self, block: bytes) -> None:
        """Add a block."""
        self._data += self._encoder.block(block)

    def finish(self) -> None:
        """Let readers have it."""
        self._data += self._encoder.end()
        self._finished(self)

    def abort(self) -> None:
        """Nothing to do."""


class MemoryStore:
    """The node's store without a disk. What the log holds is gone with the process."""

    cluster_id = bytes(CLUSTER_ID_BYTES)
    first_index = 0
    disk_full = False
    disk_spent = False
    snapshot_makes_room = False

    def __init__(self) -> None:
        self.log_bytes = 0
        self._journal: list[tuple[int, bytes]] = []
        self._entries: list[Entry] = []
        self._snapshot: MemorySnapshot | None = None

    @property
    def snapshot_index(self) -> int:
        """Up to where the last snapshot tells the state; -1 without one."""
        return -1 if self._snapshot is None else self._snapshot.index

    @property
    def last_index(self) -> int:
        """The last entry appended, -1 if none ever was."""
        return len(self._entries) - 1

    def truncate_from(self, index: int) -> None:
        """Drop the entries from this one on."""
        del self._entries[index:]

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep the entries, so that histories can be read."""
        if entries and entries[0][0] != self.last_index + 1:
            raise ValueError(f"entry {entries[0][0]} cannot follow {self.last_index}")
        self._entries += entries
        self.log_bytes += sum(len(data) for _, _, data in entries)

    def sync(self) -> None:
        """Nothing to do."""

    def mark(self) -> None:
        """Nothing to do."""

    def save_metadata(self, term: int, vote: int | None) -> None:
        """Nothing to do."""

    def journal_append(self, index: int, rows: bytes, entry_bytes: int = 0) -> None:
        """Keep the rows, so that histories can be told."""
        if rows:
            self._journal.append((index, rows))

    def journal_sync_ahead(self) -> None:
        """Nothing to sync."""

    def journal_rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        """The rows of a range of entries."""
        return iter([rows for index, rows in self._journal if first_index <= index <= last_index])

    def piece(
        self, first_index: int, last_index: int, bytes_max: int, with_log: bool, part: Part | None = None
    ) -> Callable[[], JournalPiece]:
        """The rows of a range of entries as one block, and their records if they are asked for."""
        if part is None or part.is_first:
            last_index = self._last_within(first_index, last_index, bytes_max, with_log)
        rows = b"".join(self.journal_rows(first_index, last_index))
        block = encode_block(first_index, last_index, rows, ROW_BYTES)
        records = [encode_record(*entry, -1) for entry in self._entries[first_index : last_index + 1] if with_log]
        offsets = array("q", accumulate((len(record) for record in records), initial=0)) if with_log else array("q")
        log = b"".join(records)
        if part is None or (part.is_first and len(block) + len(log) <= part.bytes_max):
            return lambda: JournalPiece(first_index, last_index, block, offsets.tobytes(), log)
        of_block, of_log = part.ranges(len(block), len(log))
        table = offsets.tobytes() if part.is_first else b""
        return lambda: JournalPiece(
            first_index, last_index, block[of_block], table, log[of_log], blocks_bytes=len(block), log_bytes=len(log)
        )

    def _last_within(self, first_index: int, last_index: int, bytes_max: int, with_log: bool) -> int:
        """The last entry up to which rows and records are not longer than that; at least the first."""
        rows = {index: len(rows) for index, rows in self._journal}
        size = 0
        for index in range(first_index, last_index + 1):
            size += rows.get(index, 0) + (len(self._entries[index][2]) if with_log else 0)
            if size > bytes_max:
                return max(first_index, index - 1)
        return last_index

    def tables(self, first_index: int, last_index: int) -> list[Callable[[], Table]]:
        """How much there is of a range of entries: each may stand alone."""
        rows = {index: len(rows) for index, rows in self._journal}
        entries = self._entries[first_index : last_index + 1]
        events_bytes = [rows.get(index, 0) for index, _, _ in entries]
        table = Table(
            array("q", (index for index, _, _ in entries)),
            array("q", accumulate(size // ROW_BYTES for size in events_bytes)),
            array("q", accumulate(size + len(data) for size, (_, _, data) in zip(events_bytes, entries, strict=True))),
        )
        return [lambda: table]

    def entries(self) -> Callable[[int], bytes | None]:
        """Single entries."""
        return lambda index: self._entries[index][2] if 0 <= index < len(self._entries) else None

    def begin_snapshot(self, index: int, term: int) -> MemorySnapshot:
        """Begin a snapshot. It is for readers of the state alone: nothing starts from it."""
        return MemorySnapshot(index, term, self._keep)

    def _keep(self, snapshot: MemorySnapshot) -> None:
        self._snapshot = snapshot

    def open_snapshot(self) -> MemorySnapshot:
        """The last snapshot, which there is."""
        assert self._snapshot is not None
        return self._snapshot

    def run_retention(self, now_us: int, kept_since_us: int = 0) -> None:
        """Nothing to do."""

    def room(self) -> Room:
        """There is always enough."""
        return Room(0, 0)

    def make_room(self) -> list[int]:
        """Nothing to do."""
        return []

    def try_recover_space(self) -> bool:
        """There is always space."""
        return True

    def close(self) -> None:
        """Nothing to do."""
