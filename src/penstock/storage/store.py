"""The door to storage: everything a node does with its data directory goes through ``Store``.

The duties of the caller, in order:

- replay ``Recovered.entries`` into a state loaded from ``Recovered.snapshot``, with ``journal_append`` for each entry,
  before the first ``append``;
- save term and vote (``save_metadata``) before acting on them;
- answer for an entry only when ``durable_index`` has reached it (in the modes that promise so), and it is committed;
- call ``journal_append`` once for each entry that it applies, in order; begin a snapshot only at an applied entry;
- stop at the first ``StorageFailed``. Only a snapshot that found no space (``DiskExhausted``) may be given up and tried
  again later.

Threads: one thread owns the store. Besides it, one thread at a time may be inside ``sync``, and one inside the
``write_block`` or ``finish`` of a snapshot, while the owner goes on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.storage.archive import Retention
from penstock.storage.cutting import Table
from penstock.storage.disk import Disk
from penstock.storage.errors import (
    CannotSkip,
    Damaged,
    NotADataDirectory,
    NotWritable,
    StorageFailed,
    UnreadableData,
    WrongNode,
)
from penstock.storage.evidence import LostEntries
from penstock.storage.feed import Feed
from penstock.storage.journal import Journal, JournalGap
from penstock.storage.journalfile import ROW_BYTES_MAX, ROW_BYTES_MIN
from penstock.storage.layout import Layout
from penstock.storage.lock import DirectoryLock
from penstock.storage.log import Log, LogRules
from penstock.storage.metadata import CLUSTER_ID_BYTES, Metadata, load_metadata, save_metadata
from penstock.storage.pieces import Part
from penstock.storage.reading import FileSource
from penstock.storage.records import Entry
from penstock.storage.recovery import create_log, empty_temp, recover_journal, recover_log
from penstock.storage.replace import finish_replacement
from penstock.storage.scan import TornTail, scan_live
from penstock.storage.skipped import load_skipped, save_skipped
from penstock.storage.snapshot import OpenSnapshot, SnapshotReader, SnapshotWriter
from penstock.storage.space import Room, Space
from penstock.wire.native.messages import JournalPiece

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What an operator can choose about the files."""

    segment_bytes: int = 64 * MIB
    """The length of entries after which the log begins a new segment."""
    reserve_bytes: int = 64 * MIB
    """The space kept aside for a full disk; 0 for none."""
    retention_hours: float = 168
    """The age, in log time, from which an archived segment may go."""
    retention_bytes: int = 8 * 1024 * MIB
    """The size of the archive from which its oldest segments may go."""
    is_durable: bool = True
    """Whether the caller applies and answers entries only after they are synced: mode durable."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found."""

    metadata: Metadata
    snapshot: SnapshotReader | None
    entries: Iterator[Entry]
    """The entries after the snapshot in order, read as they are asked for. Raises ``Damaged`` where one is bad."""
    torn: list[TornTail]
    """What was cut from the end of the log."""
    journal_last_index: int
    """The last entry whose journal rows are there; ``journal_append`` passes over what comes again up to it."""
    journal_gap: JournalGap | None
    """Entries before the snapshot whose journal rows are lost, if any."""
    lost: LostEntries | None
    """Entries that the log had and has not any more, where that is accepted or allowed by the mode."""
    is_new: bool
    """Whether the directory was made by this start."""
    notes: list[str]
    """What was done to the files, in sentences for the operator."""


class Store:
    """An open data directory. Made by ``Store.open``."""

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        settings: StoreSettings,
        lock: DirectoryLock,
        space: Space,
        metadata: Metadata,
        log: Log,
        journal: Journal,
        snapshot: tuple[int, int],
        older_snapshot_index: int = -1,
    ) -> None:
        self.data_dir = layout.data_dir
        self.metadata = metadata
        """Term, vote, and the ids, as they are on disk."""
        self.snapshot_index, self.snapshot_term = snapshot
        """Index and term of the published snapshot; -1 and 0 without one."""
        self.older_snapshot_index = older_snapshot_index
        """Index of the snapshot before that one; -1 if none is kept."""
        self._layout = layout
        self._disk = disk
        self._settings = settings
        self._lock = lock
        self._space = space
        self._log = log
        self._journal = journal
        self._snapshot_writer: SnapshotWriter | None = None
        self._feed = Feed(layout, log, journal)
        self.skipped = load_skipped(layout)
        """The entries that an operator decided not to apply."""

    @property
    def cluster_id(self) -> bytes:
        """The cluster that this directory belongs to."""
        return self.metadata.cluster_id

    @classmethod
    def open(
        cls,
        data_dir: Path | str,
        *,
        row_bytes: int,
        new_cluster_id: bytes,
        node_id: int,
        settings: StoreSettings | None = None,
        disk: Disk | None = None,
        accept_loss: bool = False,
    ) -> tuple[Store, Recovered]:
        """Open the directory, made if missing, and bring its files in order.

        `row_bytes` is the length of a journal row; `new_cluster_id` (16 random bytes) goes into a new directory only.
        With `accept_loss` a log whose end is gone is opened as far as it goes, and the journal is cut to it; without
        it that raises ``EntriesLost``. It is for a repair that an operator asked for, not for a node.
        Raises an ``UnreadableData`` where the files cannot be started from, ``DirectoryInUse``, or ``StorageFailed``.
        """
        if not ROW_BYTES_MIN <= row_bytes <= ROW_BYTES_MAX or len(new_cluster_id) != CLUSTER_ID_BYTES:
            raise ValueError(f"rows of {row_bytes} bytes, a cluster id of {len(new_cluster_id)} bytes")
        layout = Layout(Path(data_dir))
        disk, settings = disk or Disk(), settings or StoreSettings()
        notes = _make_directories(disk, layout)
        lock = DirectoryLock(disk, layout)
        try:
            opening = _Opening(layout, disk, settings, lock, row_bytes, accept_loss, notes)
            return opening.run(cls, Metadata(0, None, new_cluster_id, node_id))
        except BaseException:
            lock.release()
            raise

    # The log

    @property
    def first_index(self) -> int:
        """The oldest entry that can still be read."""
        return self._log.oldest_index

    @property
    def last_index(self) -> int:
        """The last entry appended, -1 if none ever was."""
        return self._log.last_index

    @property
    def last_term(self) -> int:
        """The term of the last entry, 0 if none ever was."""
        return self._log.last_term

    @property
    def durable_index(self) -> int:
        """The last entry known to be on disk."""
        return self._log.durable_index

    @property
    def log_bytes(self) -> int:
        """Bytes of entries appended since the start; only grows."""
        return self._log.log_bytes

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries (index, term, bytes) behind the last one, with one system call; not synced.

        Indexes go on from ``last_index``, terms never fall, each entry has 1 to ``ENTRY_BYTES_MAX`` bytes. Where a
        segment is full, it is sealed on the way, which syncs everything before.
        """
        self._log.append(entries)

    def sync(self) -> int:
        """Return when everything appended before the call is on disk, and how far that is. May run in a thread."""
        return self._log.sync()

    def mark(self) -> bool:
        """To be called 50 ms after the last batch: writes down that it is synced. False if there is nothing to say."""
        return self._log.mark()

    def truncate_from(self, index: int) -> None:
        """Drop the entries from `index` on, durably: they conflict with the leader's. None of them may be applied."""
        if index <= max(self.snapshot_index, self._journal.last_index):
            raise ValueError(f"entry {index} is applied and cannot be dropped")
        self._log.truncate_from(index)

    def term_of(self, index: int) -> int | None:
        """The term of an entry or of the snapshot's last one; None if it is not known (any more)."""
        if index == self.snapshot_index:
            return self.snapshot_term
        return self._log.term_of(index)

    def read(self, first: int, last: int) -> Iterator[Entry]:
        """The entries from `first` to `last`, both included, from the archive too; ends early if there are fewer."""
        return self._log.read(first, last)

    # Entries that are not applied

    def skip_entry(self, index: int) -> None:
        """Record, durably, that an entry behind the snapshot is applied as an unreadable one. Once is enough."""
        if index in self.skipped.checksums:
            return
        if not self.snapshot_index < index <= self.last_index:
            raise CannotSkip(self._layout.log, index, self.snapshot_index + 1, self.last_index)
        _, _, data = next(self.read(index, index))
        skipped = self.skipped.with_entry(index, data)
        save_skipped(self._disk, self._layout, skipped)
        self.skipped = skipped

    # Metadata

    def save_metadata(self, term: int, vote: int | None) -> None:
        """Make term and vote durable."""
        metadata = replace(self.metadata, term=term, vote=vote)
        if metadata != self.metadata:
            save_metadata(self._disk, self._layout, metadata)
            self.metadata = metadata

    # The journal

    @property
    def journal_last_index(self) -> int:
        """The last entry whose rows the journal has."""
        return self._journal.last_index

    def journal_append(self, index: int, rows: bytes, entry_bytes: int = 0) -> None:
        """Add the rows (none, one or many) of one applied entry. Entries come in order; what is here is passed over.

        The journal is cut into blocks by the length of the entries too: `entry_bytes` must be that of this one's bytes.
        """
        self._journal.append(index, rows, entry_bytes)

    def journal_sync_ahead(self) -> Callable[[], None] | None:
        """Work for a thread that keeps the roll of a segment short; None while there is none."""
        return self._journal.sync_ahead()

    def journal_rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        """The rows of these entries in order, whole rows, many in each piece; also those still in memory."""
        return self._journal.rows(first_index, last_index)

    def piece(
        self, first_index: int, last_index: int, bytes_max: int, with_log: bool, part: Part | None = None
    ) -> Callable[[], JournalPiece]:
        """Work for a thread: to read the raw history from an entry on that is applied and not yet retired."""
        return self._feed.piece(first_index, last_index, bytes_max, with_log, part)

    def tables(self, first_index: int, last_index: int) -> list[Callable[[], Table]]:
        """Work for a thread, segment by segment: to tell how much there is of these entries, which are applied."""
        return self._feed.tables(first_index, last_index)

    def entries(self) -> Callable[[int], bytes | None]:
        """A function for a thread: the bytes of single entries as far as they are here now."""
        return self._feed.entries()

    # Snapshots

    def begin_snapshot(self, index: int, term: int) -> SnapshotWriter:
        """Begin a snapshot of the state after entry `index`, which is applied. One at a time."""
        if self._snapshot_writer is not None:
            raise ValueError("a snapshot is under way")
        if not self.snapshot_index <= index <= min(self._journal.last_index, self._log.last_index):
            raise ValueError(f"no snapshot at {index}: it is not applied, or older than the last snapshot")
        publishing = _Publishing(self, index, term)
        before, ended = publishing.sync_what_it_leans_on, publishing.ended
        self._snapshot_writer = SnapshotWriter(self._disk, self._layout, index, term, before, ended)
        return self._snapshot_writer

    def open_snapshot(self) -> OpenSnapshot:
        """The published snapshot, which there is, for a reader."""
        return OpenSnapshot(self._layout.snapshot)

    def run_retention(self, now_us: int, kept_since_us: int = 0) -> list[int]:
        """Delete archived segments that may go. Returns the first index of each.

        Both are log time: now, and since when ages count after a jump of the clock (``State.kept_since_us``).
        The log after the older snapshot stays: with it a damaged newest one is no loss.
        """
        covered_end = self._covered_end(self.older_snapshot_index)
        age_us_max = int(self._settings.retention_hours * 3_600_000_000)
        rules = Retention(covered_end, now_us, kept_since_us, age_us_max, self._settings.retention_bytes)
        return self._log.retire(rules)

    def make_room(self) -> list[int]:
        """Delete covered segments early while the disk is short of space, the oldest first; returns first indexes.

        First those that the older snapshot covers. If that is not enough, the older snapshot goes, too, and what the
        newest one covers: that one has been checked.
        """
        retired = self._retire_for_room(self.older_snapshot_index)
        covered_end = self._covered_end(self.snapshot_index)
        can_free = len(self._log.segments) > 1 and self._log.segments[1] <= covered_end
        if can_free and self.room().missing_bytes:
            self._disk.unlink(self._layout.older_snapshot, "retention.unlink")
            self.older_snapshot_index = -1
            retired += self._retire_for_room(self.snapshot_index)
        return retired

    def _covered_end(self, snapshot_index: int) -> int:
        return min(snapshot_index + 1, self._journal.first_index)

    def _retire_for_room(self, snapshot_index: int) -> list[int]:
        missing_bytes = self.room().missing_bytes
        if not missing_bytes:
            return []
        covered_end = self._covered_end(snapshot_index)
        return self._log.retire(Retention(covered_end, 0, 0, 0, self._settings.retention_bytes, missing_bytes))

    @property
    def snapshot_makes_room(self) -> bool:
        """Whether there are sealed segments that a snapshot taken now would cover, and the newest one does not."""
        return self._log.first_index > self.snapshot_index + 1 and bool(self._log.archive.first_indexes)

    def hold(self, name: str, index: int) -> None:
        """Keep the segments from this entry on for a named reader, within the archive's size; not over a restart."""
        self._log.archive.hold(name, index)

    def release(self, name: str) -> None:
        """End a hold."""
        self._log.archive.release(name)

    # Space

    def room(self) -> Room:
        """How much space the disk has, and how much the node needs next."""
        snapshot = self._layout.snapshot
        return self._space.room(snapshot.stat().st_size if self.snapshot_index >= 0 else 0)

    @property
    def disk_full(self) -> bool:
        """Whether puts should be refused: the disk was full, the reserve is in use."""
        return self._space.full

    @property
    def disk_spent(self) -> bool:
        """Whether all commands of clients should be refused: only the last part of the reserve is left."""
        return self._space.spent

    def try_recover_space(self) -> bool:
        """To be called every few seconds while ``disk_full``: True once there is room and a reserve again."""
        if self._space.full and self._space.try_recover():
            self._log.preallocate()
        return not self._space.full

    def close(self) -> None:
        """Sync the log, close the files and let go of the directory; no other thread may be in the store any more."""
        try:
            if self._snapshot_writer is not None:
                self._snapshot_writer.abort()
            self._log.close()
            if not self._space.full:
                self._journal.save_all()
        finally:
            self._journal.close()
            self._lock.release()


class _Publishing:
    """What has to be on disk before a snapshot may say that everything up to its index is."""

    def __init__(self, store: Store, index: int, term: int) -> None:
        self._store = store
        self._index, self._term = index, term
        # Taken now, by the thread that owns the store; used later by the one that writes the snapshot.
        self._tail = store._journal.tail(index)
        self._journal_descriptor = store._journal.dup()
        self._log_descriptor = store._log.dup() if store.durable_index < index else -1

    def sync_what_it_leans_on(self) -> None:
        store = self._store
        try:
            if self._log_descriptor >= 0:
                store._disk.fdatasync(self._log_descriptor, "log.sync", store._layout.log)
            store._journal.sync(self._journal_descriptor)
        except StorageFailed as error:
            # These files are gone on with, and a second sync could succeed without having written what the first lost.
            store._log.fail(error)
            raise
        store._journal.save_tail(self._tail)

    def ended(self, published: bool, keeps_older: bool) -> None:
        for descriptor in (self._log_descriptor, self._journal_descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        store = self._store
        store._snapshot_writer = None
        if published:
            store.older_snapshot_index = store.snapshot_index if keeps_older else -1
            store.snapshot_index, store.snapshot_term = self._index, self._term


class _Opening:
    """The steps of ``Store.open`` after the lock is held."""

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        settings: StoreSettings,
        lock: DirectoryLock,
        row_bytes: int,
        accept_loss: bool,
        notes: list[str],
    ) -> None:
        self.layout, self.disk, self.settings, self.lock = layout, disk, settings, lock
        self.row_bytes, self.accept_loss = row_bytes, accept_loss
        self.notes = notes

    def run(self, cls: type[Store], new_metadata: Metadata) -> tuple[Store, Recovered]:
        layout, disk, settings = self.layout, self.disk, self.settings
        space = Space(disk, layout, settings.reserve_bytes, settings.segment_bytes)
        disk.relief = space.relief
        space.start()
        if (note := finish_replacement(disk, layout)) is not None:
            self.notes.append(note)
        metadata = load_metadata(layout)
        is_new = metadata is None
        if metadata is None:
            self._check_unused()
            metadata = new_metadata
            create_log(disk, layout, space, self._rules(metadata))
        elif metadata.node_id != new_metadata.node_id:
            raise WrongNode(layout.metadata, metadata.node_id, new_metadata.node_id)
        reader = SnapshotReader(layout.snapshot) if layout.snapshot.exists() else None
        snapshot = (-1, 0) if reader is None else (reader.last_index, reader.last_term)
        rules = self._rules(metadata)
        log, scan, lost = recover_log(disk, layout, space, rules, snapshot, self.notes, accept_loss=self.accept_loss)
        journal: Journal | None = None
        try:
            empty_temp(disk, layout)
            journal, gap = recover_journal(disk, layout, self.row_bytes, log, snapshot[0], self.notes)
            if self.accept_loss:
                journal.save_all()  # or the tail would tell of the lost entries again at the next start
            if is_new:
                # Last of all: a directory with metadata is a whole one.
                save_metadata(disk, layout, metadata)
        except BaseException:
            log.close(sync=False)
            if journal is not None:
                journal.close()
            raise
        older = self._older_snapshot_index(snapshot[0])
        store = cls(layout, disk, settings, self.lock, space, metadata, log, journal, snapshot, older)
        self._note_shortage(store.room())
        return store, Recovered(
            metadata=metadata,
            snapshot=reader,
            entries=log.entries_from(snapshot[0] + 1),
            torn=[] if scan.torn is None else [scan.torn],
            journal_last_index=journal.last_index,
            journal_gap=gap,
            lost=lost,
            is_new=is_new,
            notes=self.notes,
        )

    def _older_snapshot_index(self, snapshot_index: int) -> int:
        path = self.layout.older_snapshot
        if not path.exists():
            return -1
        try:
            index = SnapshotReader(path).last_index
        except UnreadableData as error:
            self.notes.append(f"{error}; it is not needed now, and the next snapshot takes its place")
            return -1
        return index if index <= snapshot_index else -1

    def _note_shortage(self, room: Room) -> None:
        """Say at once what would otherwise be found when the disk is full."""
        if room.missing_bytes:
            segment, reserve = (size >> 20 for size in (self.settings.segment_bytes, self.settings.reserve_bytes))
            self.notes.append(
                f"the disk of {self.layout.consensus} is too small for these settings: {room.free_bytes >> 20} MiB are "
                f"free, {room.needed_bytes >> 20} MiB are needed for two segments (storage.segment_bytes, {segment} "
                f"MiB), a snapshot, and what is missing of the reserve (storage.reserve_bytes, {reserve} MiB); old log "
                "segments are deleted early, and puts are refused when nothing is left to delete"
            )

    def _rules(self, metadata: Metadata) -> LogRules:
        return LogRules(self.settings.segment_bytes, metadata.cluster_id, self.settings.is_durable)

    def _check_unused(self) -> None:
        """A directory without metadata is new, and then it holds nothing."""
        layout = self.layout
        if layout.snapshot.exists() or layout.sealed_first_indexes():
            raise Damaged(layout.metadata, "is missing, though there is a state: the vote may have been lost with it")
        if layout.log.exists():
            # The making of a directory was interrupted; an entry was never written before the metadata was.
            with FileSource(layout.log) as source:
                scan = scan_live(source, layout.log, None, 0)
            if scan.last_index >= 0 or scan.first_index:
                raise Damaged(layout.metadata, "is missing, though raft.log has entries: the vote may have been lost")


def _make_directories(disk: Disk, layout: Layout) -> list[str]:
    """Make what is missing and see that the node can write everywhere; returns notes for the operator."""
    is_used = _exists(layout.metadata)
    notes: list[str] = []
    for path in layout.directories:
        if not _exists(path):
            disk.mkdir(path, "directory.create")
            disk.fsync_directory(path.parent, "directory.sync_directory")
            if is_used:
                notes.append(f"{path} was missing and has been made again; what was in it is gone")
        elif not path.is_dir():
            raise NotADataDirectory(path, "is a file, not a directory")
        disk.check_writable(path, "directory.check")
    return notes


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError as error:
        # A directory above it may not be searched.
        raise NotWritable(path.parent, error.errno or errno.EACCES) from error
