"""Making a data directory startable again: what ``penstock storage repair`` does.

What is lossless is done at once:

- a damaged raft.snapshot is replaced by the one before it, or by nothing if the log begins with its first entry;
- a damaged sealed segment that a good snapshot covers is set aside, with all that are older: the state needs none of
  them, only the history begins later.

What loses messages is done only if the operator accepts it: a log whose end is gone is continued from where it ends.

Nothing is deleted. Files that cannot be used are moved to consensus/damaged/, where no start looks.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, NotADataDirectory, UnreadableData
from penstock.storage.layout import Layout
from penstock.storage.lock import DirectoryLock
from penstock.storage.metadata import load_metadata
from penstock.storage.reading import FileSource
from penstock.storage.scan import scan_sealed
from penstock.storage.snapshot import SnapshotReader
from penstock.storage.store import Store, StoreSettings

_SETTINGS = StoreSettings(reserve_bytes=0)
"""The next start makes the reserve again, as large as its settings say."""


def repair(data_dir: Path, row_bytes: int, *, accept_loss: bool = False, disk: Disk | None = None) -> list[str]:
    """Bring a data directory into a state that a node starts from; what was done, in sentences.

    Raises an ``UnreadableData`` for damage that it cannot repair, ``EntriesLost`` for a loss that is not accepted, and
    ``DirectoryInUse`` while a node runs. Running it again after an interruption continues where it was.
    """
    layout, disk = Layout(data_dir), disk or Disk()
    if not layout.consensus.is_dir():
        raise NotADataDirectory(data_dir, "has no directory consensus/")
    metadata = load_metadata(layout)
    if metadata is None:
        raise Damaged(layout.metadata, "is missing; it holds the vote, which no other file knows")
    done: list[str] = []
    with DirectoryLock(disk, layout):
        snapshot_index = _repair_snapshot(disk, layout, done)
        _set_damaged_segments_aside(disk, layout, snapshot_index, done)
    store, recovered = Store.open(
        data_dir,
        row_bytes=row_bytes,
        new_cluster_id=metadata.cluster_id,
        node_id=metadata.node_id,
        settings=_SETTINGS,
        disk=disk,
        accept_loss=accept_loss,
    )
    store.close()
    return [*done, *map(str, recovered.torn), *recovered.notes]


def _repair_snapshot(disk: Disk, layout: Layout, done: list[str]) -> int:
    """Let raft.snapshot be one that can be read; returns its last index, -1 if there is none."""
    if not layout.snapshot.exists():
        if not layout.older_snapshot.exists():
            return -1
    else:
        try:
            return _read_through(layout.snapshot)
        except UnreadableData as damage:
            problem = damage
        if not layout.older_snapshot.exists() and 0 not in layout.sealed_first_indexes():
            raise problem
        _set_aside(disk, layout, layout.snapshot)
        done.append(f"{problem}; set aside")
    if not layout.older_snapshot.exists():
        done.append("the state is built from the whole log")
        return -1
    index = _read_through(layout.older_snapshot)
    disk.rename(layout.older_snapshot, layout.snapshot, "repair.rename")
    disk.fsync_directory(layout.consensus, "repair.sync_directory")
    done.append(f"{layout.older_snapshot} took its place: nothing is lost, the log has what came after entry {index}")
    return index


def _read_through(snapshot: Path) -> int:
    reader = SnapshotReader(snapshot)
    for _ in reader:
        pass
    return reader.last_index


def _set_damaged_segments_aside(disk: Disk, layout: Layout, snapshot_index: int, done: list[str]) -> None:
    """Set the last damaged segment that the snapshot covers aside, and all before it."""
    firsts = layout.sealed_first_indexes()
    # The last segment ends where raft.log begins, which is checked when the log is opened.
    covered = [first for first, following in pairwise(firsts) if following <= snapshot_index + 1]
    problems = {first: problem for first in firsts if (problem := _problem_of(layout, first)) is not None}
    for first, problem in problems.items():
        if first not in covered:
            raise problem
    if not problems:
        return
    last = max(problems)
    for first in covered[: covered.index(last) + 1]:
        for path in (*layout.beside_sealed(first), layout.sealed_log(first)):
            if path.exists():
                _set_aside(disk, layout, path)
    following = firsts[firsts.index(last) + 1]
    done += [f"{problem}; set aside" for problem in problems.values()]
    done.append(f"the history now begins at entry {following}; the state lost nothing, a snapshot has it")


def _problem_of(layout: Layout, first: int) -> UnreadableData | None:
    path = layout.sealed_log(first)
    try:
        with FileSource(path) as source:
            scan_sealed(source, path, first)
    except UnreadableData as problem:
        return problem
    return None


def _set_aside(disk: Disk, layout: Layout, path: Path) -> None:
    directory = layout.consensus / "damaged"
    if not directory.exists():
        disk.mkdir(directory, "repair.mkdir")
    target = directory / path.name
    number = 0
    while target.exists():
        number += 1
        target = directory / f"{path.name}.{number}"
    disk.rename(path, target, "repair.rename")
    disk.fsync_directory(directory, "repair.sync_directory")
    disk.fsync_directory(path.parent, "repair.sync_directory")
