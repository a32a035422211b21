"""What a start does with the files that the last run left, whatever it was doing when it ended.

The order: a replacement of snapshot and log is finished or undone (``replace``), an interrupted roll is undone,
raft.log is read and compared with what other files tell of it (``evidence``), its torn tail is cut, temp/ is emptied,
the journal is cut to what is good in it and what log and snapshot cover.
"""

from __future__ import annotations

import os

from penstock.storage.archive import Archive
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, NewerVersion, UnreadableData
from penstock.storage.evidence import LostEntries, find_lost_entries
from penstock.storage.journal import BLOCK_ROWS, Journal, JournalGap, create_journal
from penstock.storage.journalfile import (
    HEADER_BYTES,
    Block,
    Tail,
    decode_header,
    decode_tail,
    encode_header,
    read_block_header,
    read_block_rows,
)
from penstock.storage.layout import Layout
from penstock.storage.log import Log, LogRules, create_segment, cut_segment, publish_segment, unseal
from penstock.storage.reading import DescriptorSource, FileSource, Source
from penstock.storage.records import Walk, encode_mark
from penstock.storage.scan import LogScan, scan_live
from penstock.storage.segmenthead import read_segment_head
from penstock.storage.space import Space


def empty_temp(disk: Disk, layout: Layout) -> None:
    """Remove what the last run left half written."""
    for path in sorted(layout.temp.iterdir()):
        disk.unlink(path, "temp.unlink")


def create_log(disk: Disk, layout: Layout, space: Space, rules: LogRules) -> None:
    """Make the first raft.log of a new directory."""
    descriptor, _ = create_segment(disk, layout, space, rules, 0, 0)
    os.close(descriptor)
    publish_segment(disk, layout)


def recover_log(
    disk: Disk,
    layout: Layout,
    space: Space,
    rules: LogRules,
    snapshot: tuple[int, int],
    notes: list[str],
    *,
    accept_loss: bool = False,
) -> tuple[Log, LogScan, LostEntries | None]:
    """Open the log as the last run left it; `snapshot` is the index and term of the snapshot, (-1, 0) without one.

    Raises ``EntriesLost`` if its end is gone (``evidence``), unless that is accepted.
    """
    archive = Archive(disk, layout)
    _undo_interrupted_roll(disk, layout, archive, notes)
    _drop_second_name(disk, layout, archive)
    archive.check_clusters(rules.cluster_id)
    descriptor = disk.open(layout.log, "log.open")
    try:
        source = DescriptorSource(descriptor, layout.log)
        first_index = first_index_of(source, layout, archive)
        scan = scan_live(source, layout.log, first_index, snapshot[0] + 1)
        scan.head.check_cluster(rules.cluster_id, layout.log)
        lost = _check_end(layout, scan, snapshot[0], notes, accept_loss=accept_loss)
        _mend(disk, layout, space, rules.segment_bytes, descriptor, scan, notes)
        log = Log(disk, layout, space, archive, rules, descriptor, scan)
    except BaseException:
        os.close(descriptor)
        raise
    try:
        _settle(layout, log, snapshot, scan.was_promised, notes)
    except BaseException:
        log.close(sync=False)
        raise
    return log, scan, lost


def _settle(layout: Layout, log: Log, snapshot: tuple[int, int], was_promised: bool, notes: list[str]) -> None:
    """Bring the log to where it goes on from."""
    sealed = log.archive.first_indexes
    if sealed and log.first_index <= sealed[-1]:
        raise Damaged(layout.log, f"begins at entry {log.first_index}, the archive has a segment from {sealed[-1]} on")
    if log.take_back_if_empty():
        notes.append(f"a segment that had no entries yet was taken back; raft.log begins at {log.first_index} again")
    log.preallocate()
    _check_reach(layout, log, snapshot[0])
    _check_snapshot(layout, log, snapshot)
    if log.last_index < snapshot[0]:
        notes.append(f"the snapshot is at {snapshot[0]}, ahead of the log's last entry {log.last_index}")
        log.restart_at(snapshot[0] + 1, snapshot[1])
    # What was read may be in the system's memory only: durable is what is synced now.
    log.sync()
    log.restate_promise(was_promised)


def _check_end(
    layout: Layout, scan: LogScan, snapshot_index: int, notes: list[str], *, accept_loss: bool
) -> LostEntries | None:
    """See whether other files tell of entries that the log should have. Nothing has been changed yet."""
    lost = find_lost_entries(layout, scan.last_index, snapshot_index, was_promised=scan.was_promised)
    if lost is None:
        return None
    if lost.was_synced and not accept_loss:
        raise lost.error()
    why = "accepted" if lost.was_synced else "a power cut may do that in the modes interval and none"
    notes.append(f"LOST: {lost.log} {lost} ({why})")
    return lost


def _undo_interrupted_roll(disk: Disk, layout: Layout, archive: Archive, notes: list[str]) -> None:
    if layout.log.exists():
        return
    if not layout.next_log.exists() or not archive.first_indexes:
        raise Damaged(layout.log, "is missing")
    first_index = unseal(disk, layout, archive)
    notes.append(f"the roll of the segment that begins at {first_index} was interrupted and has been undone")


def _drop_second_name(disk: Disk, layout: Layout, archive: Archive) -> None:
    """A rename that reached one directory and not the other leaves one file with two names."""
    if archive.first_indexes:
        sealed = layout.sealed_log(archive.first_indexes[-1])
        if os.path.samefile(sealed, layout.log):
            archive.take_back()
            disk.unlink(sealed, "log.unlink")
            disk.fsync_directory(layout.archive, "log.sync_directory")


def first_index_of(source: Source, layout: Layout, archive: Archive) -> int | None:
    """Where raft.log must begin, if its own first record cannot tell; else None."""
    walk = Walk.of_segment(source, read_segment_head(source, layout.log))
    next(iter(walk), None)
    if walk.first_index is not None or not archive.first_indexes:
        return None
    return archive.scan(archive.first_indexes[-1]).last_index + 1


def _mend(
    disk: Disk, layout: Layout, space: Space, segment_bytes: int, descriptor: int, scan: LogScan, notes: list[str]
) -> None:
    """Cut the torn tail and write lost marks again."""
    if scan.torn is not None:
        cut_segment(disk, layout, space, segment_bytes, descriptor, scan.end)
    if scan.lost_marks:
        # A mark says that what stands before it is on disk, so it must be.
        disk.fdatasync(descriptor, "log.sync", layout.log)
    for lost in scan.lost_marks:
        mark = encode_mark(lost.index, lost.term, lost.index, scan.head, lost.offset)
        disk.pwrite(descriptor, mark, lost.offset, "log.write", layout.log)
        notes.append(f"{layout.log}: the damaged mark at offset {lost.offset} was written again")
    if scan.end == scan.head.size_bytes:
        last_index = scan.first_index - 1
        mark = encode_mark(last_index, scan.last_term, last_index, scan.head, scan.end)
        disk.pwrite(descriptor, mark, scan.end, "log.write", layout.log)
        scan.end += len(mark)


def _check_reach(layout: Layout, log: Log, snapshot_index: int) -> None:
    """Raise if entries between the snapshot and the log are missing."""
    if log.oldest_index > snapshot_index + 1:
        file = layout.log if log.oldest_index == log.first_index else layout.sealed_log(log.oldest_index)
        raise Damaged(file, f"begins at entry {log.oldest_index}, entries from {snapshot_index + 1} on are missing")


def _check_snapshot(layout: Layout, log: Log, snapshot: tuple[int, int]) -> None:
    """Raise if the snapshot is of another log than this one."""
    index, term = snapshot
    found = log.term_of(index)
    if index >= 0 and found is not None and found != term:
        raise Damaged(layout.snapshot, foreign_snapshot(index, term, found))


def foreign_snapshot(index: int, term: int, term_in_log: int) -> str:
    """What is wrong with a snapshot whose last entry is of another term in the log."""
    return f"says that entry {index} is of term {term}, in the log it is of term {term_in_log}: it is of another log"


def recover_journal(
    disk: Disk, layout: Layout, row_bytes: int, log: Log, snapshot_index: int, notes: list[str]
) -> tuple[Journal, JournalGap | None]:
    """Open the journal at its last good block that log and snapshot cover; replay adds the rest."""
    journal = Journal(disk, layout, row_bytes, log.segment_after)
    covered = max(log.last_index, snapshot_index)
    _drop_orphans(disk, layout, log.segments)
    _take_back_sealed(disk, layout, log.first_index)
    gap: JournalGap | None = None
    try:
        _adopt_live(disk, layout, row_bytes, log, journal, covered, notes)
        if journal.last_index < snapshot_index:
            _refill_from_tail(layout, row_bytes, journal, covered, notes)
        if journal.last_index < snapshot_index:
            gap = JournalGap(journal.last_index + 1, snapshot_index)
            notes.append(str(gap))
            journal.skip_to(snapshot_index + 1)
        first_open = max(journal.open_first_index, log.oldest_index)
        journal.set_open_log_bytes(sum(len(data) for _, _, data in log.read(first_open, journal.last_index)))
    except BaseException:
        journal.close()
        raise
    log.segments_changed = journal.segments_changed
    return journal, gap


def _drop_orphans(disk: Disk, layout: Layout, segments: list[int]) -> None:
    """What belongs to a log that is gone is the rest of a segment that was being retired."""
    known = {path for first in segments for path in layout.beside_sealed(first)}
    suffixes = {path.suffix for path in layout.beside_sealed(0)}
    for path in sorted(layout.archive.iterdir()):
        if path.suffix in suffixes and path not in known:
            disk.unlink(path, "retention.unlink")


def _take_back_sealed(disk: Disk, layout: Layout, live_first: int) -> None:
    """The journal of a log segment that is live again is live again too."""
    sealed = layout.sealed_events(live_first)
    if sealed.exists():
        disk.rename(sealed, layout.live_events, "journal.unseal")
        disk.fsync_directory(layout.events, "journal.sync_directory")
        disk.fsync_directory(layout.archive, "journal.sync_directory")


def _adopt_live(
    disk: Disk, layout: Layout, row_bytes: int, log: Log, journal: Journal, covered: int, notes: list[str]
) -> None:
    segments = log.segments
    sealed = [first for first in segments if layout.sealed_events(first).exists()]
    # The journal is in the segment after the last one whose journal is sealed.
    first_index = log.segment_after(sealed[-1]) if sealed else segments[0]
    if first_index is None:
        first_index = log.first_index
    if layout.live_events.exists():
        first_index = _check_live_header(disk, layout, row_bytes, segments, first_index, notes)
    if not layout.live_events.exists():
        descriptor = create_journal(disk, layout, first_index, row_bytes)
        journal.adopt(descriptor, first_index, [], first_index - 1, b"")
        return
    boundary = log.segment_after(first_index)
    limit = covered if boundary is None else min(covered, boundary - 1)
    descriptor = disk.open(layout.live_events, "journal.open")
    # Owned by the journal from here on, which closes it whatever happens.
    journal.adopt(descriptor, first_index, [], first_index - 1, b"")
    source = DescriptorSource(descriptor, layout.live_events)
    blocks, rows, fault = good_blocks(source, row_bytes, first_index, limit)
    end = blocks[-1].end if blocks else HEADER_BYTES
    last_index = blocks[-1].last_index if blocks else first_index - 1
    if rows is not None:
        reopened = blocks.pop()
        end = reopened.offset
    if source.size_bytes > end:
        disk.truncate(descriptor, end, "journal.truncate", layout.live_events)
    if fault is not None:
        notes.append(f"{layout.live_events}: cut at offset {end} ({fault}); replay writes the rest again")
    journal.adopt(descriptor, first_index, blocks, last_index, rows or b"")


def _check_live_header(
    disk: Disk, layout: Layout, row_bytes: int, segments: list[int], expected: int, notes: list[str]
) -> int:
    """The segment that live.events is of; a file that cannot be gone on with is removed."""
    unreadable: UnreadableData | None = None
    with FileSource(layout.live_events) as source:
        header = source.read(0, HEADER_BYTES)
        try:
            found, found_row_bytes = decode_header(header, layout.live_events)
            if found_row_bytes == row_bytes and found in segments:
                return found
            reason = f"is of the segment at {found} with rows of {found_row_bytes} bytes"
        except UnreadableData as error:
            reason, unreadable = error.reason, error
        block = read_block_header(source, source.size_bytes, HEADER_BYTES, row_bytes, expected)
        if isinstance(block, Block) and block.first_index == expected and read_block_rows(source, block):
            # Only the header is damaged, and what it said is known.
            disk_header = encode_header(expected, row_bytes)
        elif isinstance(unreadable, NewerVersion) and source.size_bytes > HEADER_BYTES:
            raise unreadable  # a later release can read it: it is not to be thrown away
        else:
            disk_header = b""
    if disk_header:
        descriptor = disk.open(layout.live_events, "journal.open")
        try:
            disk.pwrite(descriptor, disk_header, 0, "journal.write", layout.live_events)
        finally:
            os.close(descriptor)
        notes.append(f"{layout.live_events}: {reason}; the header was written again")
    else:
        disk.unlink(layout.live_events, "journal.unlink")
        notes.append(f"{layout.live_events}: {reason}; begun anew")
    return expected


def good_blocks(
    source: Source, row_bytes: int, first_index: int, limit: int
) -> tuple[list[Block], bytes | None, str | None]:
    """The blocks that are good and cover nothing beyond `limit`; the last one's rows if it is to be opened again.

    A block that is not full, by its rows or by the length of its log, was closed because its segment was sealed, or a
    gap followed. In the live file the first means that a crash came before the seal was done, so the block goes on.
    """
    blocks: list[Block] = []
    last_rows = b""
    offset, expected = HEADER_BYTES, first_index
    size_bytes = source.size_bytes
    fault: str | None = None
    while block := read_block_header(source, size_bytes, offset, row_bytes, expected):
        if isinstance(block, str):
            fault = block
            break
        if blocks and not _is_full(blocks[-1]) and block.first_index == expected:
            fault = "a block follows one that is not full"
            break
        if block.last_index > limit:
            fault = f"a block of entries up to {block.last_index}, known are those up to {limit}"
            break
        rows = read_block_rows(source, block)
        if rows is None:
            fault = "wrong checksum of a block"
            break
        blocks.append(block)
        last_rows = rows
        offset, expected = block.end, block.last_index + 1
    if blocks and not _is_full(blocks[-1]):
        return blocks, last_rows, fault
    return blocks, None, fault


def _is_full(block: Block) -> bool:
    return block.row_count >= BLOCK_ROWS or block.has_long_log


def _refill_from_tail(layout: Layout, row_bytes: int, journal: Journal, covered: int, notes: list[str]) -> None:
    """Bring back the rows that were in memory when the snapshot was made."""
    if not layout.tail.exists():
        return
    try:
        with FileSource(layout.tail) as source:
            tail = decode_tail(source.read(0, source.size_bytes), layout.tail, row_bytes)
    except UnreadableData as error:
        notes.append(f"{error.file}: {error.reason}; left aside")
        return
    last_index = min(tail.last_index, covered)
    if tail.first_index <= journal.last_index + 1 <= last_index:
        journal.refill(Tail(tail.first_index, last_index, tail.rows))
