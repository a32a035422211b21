"""What a node needs of a store: ``storage.store.Store`` keeps it on disk, ``storage.memory.MemoryStore`` nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from penstock.storage.cutting import Table
from penstock.storage.pieces import Part
from penstock.storage.space import Room
from penstock.wire.native.messages import JournalPiece


class SnapshotSink(Protocol):
    """Where the blocks of a snapshot go; used from a writer thread."""

    def write_block(self, block: bytes) -> None:
        """Add a block."""

    def finish(self) -> None:
        """Make the snapshot the one to start from."""

    def abort(self) -> None:
        """Forget it."""


class HeldSnapshot(Protocol):
    """A published snapshot that stays readable when the next one takes its place, as long as somebody refers to it."""

    @property
    def index(self) -> int:
        """The entry after which the state was so."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""

    def read(self, offset: int, length: int) -> bytes:
        """Some of its bytes. May run in a thread."""


class LogStore(Protocol):
    """The log, its journal and its snapshots."""

    @property
    def cluster_id(self) -> bytes:
        """The cluster that this log belongs to."""

    @property
    def snapshot_index(self) -> int:
        """Up to where the published snapshot covers the log; -1 without one."""

    @property
    def log_bytes(self) -> int:
        """How many bytes of entries have been appended in this process; only grows."""

    @property
    def disk_full(self) -> bool:
        """Whether commands that do not free space must be refused for want of it (``freeing``)."""

    @property
    def disk_spent(self) -> bool:
        """Whether all commands of clients must be refused: the space that is left is for the node's own work."""

    @property
    def last_index(self) -> int:
        """The last entry appended, -1 if none ever was."""

    def truncate_from(self, index: int) -> None:
        """Drop the entries from this one on, none of which is applied, durably."""

    def append(self, entries: Sequence[tuple[int, int, bytes]]) -> None:
        """Write entries (index, term, data), in one write and without a sync."""

    def sync(self) -> object:
        """Make what was appended durable. May run in a thread; nothing is appended meanwhile."""

    def mark(self) -> object:
        """Mark the end of an idle log."""

    def save_metadata(self, term: int, vote: int | None) -> None:
        """Save term and vote, durably."""

    def journal_append(self, index: int, rows: bytes, entry_bytes: int = 0) -> None:
        """Add the rows of an applied entry."""

    def journal_sync_ahead(self) -> Callable[[], None] | None:
        """Work for a thread that keeps later syncs short; None while there is none."""

    def journal_rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        """Rows of a range of entries, in blocks of whole rows. May be consumed in a thread."""

    @property
    def first_index(self) -> int:
        """The oldest entry that can still be read."""

    def piece(
        self, first_index: int, last_index: int, bytes_max: int, with_log: bool, part: Part | None = None
    ) -> Callable[[], JournalPiece]:
        """Work for a thread: to read the raw history from an entry on that is applied and here."""

    def tables(self, first_index: int, last_index: int) -> list[Callable[[], Table]]:
        """Work for a thread, segment by segment: to tell how much there is of entries that are applied and here."""

    def entries(self) -> Callable[[int], bytes | None]:
        """A function for a thread: the bytes of single entries that are here now."""

    def begin_snapshot(self, index: int, term: int) -> SnapshotSink:
        """Begin to write a snapshot."""

    def open_snapshot(self) -> HeldSnapshot:
        """The published snapshot, which there is, for a reader."""

    def run_retention(self, now_us: int, kept_since_us: int = 0) -> object:
        """Drop what is no longer needed of the archive. Both are log time: now, and from when ages count."""

    def room(self) -> Room:
        """How much space the disk has, and how much the node needs next."""

    def make_room(self) -> Sequence[int]:
        """Drop the oldest of the archive early while the disk is short of space; the first index of each segment."""

    @property
    def snapshot_makes_room(self) -> bool:
        """Whether more of the archive could be dropped after another snapshot."""

    def try_recover_space(self) -> bool:
        """Look whether a full disk has space again; tells whether it has."""

    def close(self) -> None:
        """Sync and close."""
