"""Exchanging snapshot and log together, for an import or a restore: after a crash both are old or both are new.

    1. write snapshot.new, sync it and the directory
    2. write log.new, sync it and the directory
    3. rename snapshot.new to raft.snapshot, sync the directory         from here on the new state holds
    4. remove the older snapshot, the archive and the journal of the old state
    5. rename log.new to raft.log, sync the directory

A start finds out by the two names how far it came. Only snapshot.new: step 1, undone by removing it. Both: step 2,
undone by removing log.new first, then snapshot.new. Only log.new: step 3 is done, and what follows is finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from penstock.storage.disk import Disk
from penstock.storage.errors import NotADataDirectory
from penstock.storage.layout import Layout
from penstock.storage.lock import DirectoryLock
from penstock.storage.metadata import load_metadata, save_metadata
from penstock.storage.reading import MemorySource
from penstock.storage.segmenthead import read_segment_head
from penstock.storage.snapshot import SnapshotFile


def replace_snapshot_and_log(
    data_dir: Path,
    last_index: int,
    last_term: int,
    blocks: Iterable[bytes],
    log: bytes,
    disk: Disk | None = None,
) -> None:
    """Make the directory's whole state this snapshot (at `last_index` of `last_term`) and this log (``encode_log``).

    The directory must have been made by ``Store.open`` and must not be open. Its archive and journal go: they tell of
    the old state. The term in raft.metadata is raised to the snapshot's where it is lower.
    """
    disk, layout = disk or Disk(), Layout(data_dir)
    read_segment_head(MemorySource(log), layout.log_new)
    if not layout.metadata.exists():
        raise NotADataDirectory(data_dir, "has no consensus/raft.metadata: let a node make the directory first")
    with DirectoryLock(disk, layout):
        finish_replacement(disk, layout)
        metadata = load_metadata(layout)
        if metadata is not None and metadata.term < last_term:
            save_metadata(disk, layout, replace(metadata, term=last_term, vote=None))
        snapshot = SnapshotFile(disk, layout.snapshot_new, last_index, last_term, "replace")
        try:
            for block in blocks:
                snapshot.write_block(block)
            snapshot.finish()
        finally:
            snapshot.close()
        disk.fsync_directory(layout.consensus, "replace.sync_directory")
        _write_log(disk, layout.log_new, log)
        disk.fsync_directory(layout.consensus, "replace.sync_directory")
        disk.rename(layout.snapshot_new, layout.snapshot, "replace.rename")
        disk.fsync_directory(layout.consensus, "replace.sync_directory")
        _finish(disk, layout)


def finish_replacement(disk: Disk, layout: Layout) -> str | None:
    """At start: finish or undo a replacement that was interrupted; returns what was done, if anything."""
    has_snapshot, has_log = layout.snapshot_new.exists(), layout.log_new.exists()
    if has_snapshot:
        # The log's new name goes first, and durably: alone it would say that the snapshot is in place.
        if has_log:
            disk.unlink(layout.log_new, "replace.unlink")
            disk.fsync_directory(layout.consensus, "replace.sync_directory")
        disk.unlink(layout.snapshot_new, "replace.unlink")
        disk.fsync_directory(layout.consensus, "replace.sync_directory")
        return "a replacement of snapshot and log was interrupted early and has been undone"
    if has_log:
        _finish(disk, layout)
        return "a replacement of snapshot and log was interrupted late and has been finished"
    return None


def _finish(disk: Disk, layout: Layout) -> None:
    disk.unlink(layout.older_snapshot, "replace.unlink")
    disk.fsync_directory(layout.consensus, "replace.sync_directory")
    for directory in (layout.archive, layout.events):
        for path in sorted(directory.iterdir()):
            disk.unlink(path, "replace.unlink")
        disk.fsync_directory(directory, "replace.sync_directory")
    disk.rename(layout.log_new, layout.log, "replace.rename")
    disk.fsync_directory(layout.consensus, "replace.sync_directory")


def _write_log(disk: Disk, path: Path, log: bytes) -> None:
    descriptor = disk.create(path, "replace.create")
    try:
        disk.pwrite(descriptor, log, 0, "replace.write", path)
        disk.fdatasync(descriptor, "replace.sync", path)
    finally:
        os.close(descriptor)
