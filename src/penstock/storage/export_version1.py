"""From a data directory of ours to version-1 files: ``penstock storage export``.

    snapshot and log of version 2 ─▶ engine ─▶ version-1 snapshot and empty log, or a log that builds the state

What has to be left behind is found by ``losses``. The codec of the files is ``version1``; the way in is
``import_version1``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.engine import snapshot as engine_snapshot
from penstock.engine.machine import Engine
from penstock.engine.queue import Queue
from penstock.storage import version1 as v1
from penstock.storage.archive import Archive
from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, NotADataDirectory
from penstock.storage.import_version1 import Progress, no_progress
from penstock.storage.layout import Layout
from penstock.storage.lock import DirectoryLock
from penstock.storage.metadata import load_metadata
from penstock.storage.reading import FileSource
from penstock.storage.records import Entry, read_entries
from penstock.storage.scan import scan_live
from penstock.storage.skipped import load_skipped
from penstock.storage.snapshot import SnapshotReader

_PROGRESS_EVERY: Final = 1000
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StoppedState:
    """The state of a node that does not run, and what was found on the way to it."""

    engine: Engine
    notes: list[str]


def read_state(data_dir: Path, progress: Progress = no_progress) -> StoppedState:
    """The state that a node would start with; nothing in its directory is changed.

    Raises ``DirectoryInUse`` while the node runs, and an ``UnreadableData`` where a start would be refused too.
    """
    layout = Layout(data_dir)
    if not layout.consensus.is_dir() or load_metadata(layout) is None:
        raise NotADataDirectory(layout.metadata, "is missing: this is not the data directory of a node")
    with DirectoryLock(Disk(), layout):
        # What a start would have to finish or undo first is left to a start.
        if layout.snapshot_new.exists() or layout.log_new.exists():
            raise Damaged(layout.log_new, "an import or restore was interrupted; start the node once to settle it")
        if not layout.log.exists():
            raise Damaged(layout.log, "is missing; if the node was killed, start it once to settle it")
        return _replayed(layout, progress)


def _replayed(layout: Layout, progress: Progress) -> StoppedState:
    engine = Engine()
    if layout.snapshot.exists():
        try:
            engine = engine_snapshot.restore(SnapshotReader(layout.snapshot))
        except engine_snapshot.SnapshotError as error:
            raise Damaged(layout.snapshot, str(error)) from error
    first = engine.state.index + 1
    with FileSource(layout.log) as source:
        scan = scan_live(source, layout.log, None, first)
        end = scan.last_index + 1
        _apply(engine, layout, Archive(Disk(), layout).entries_from(first, scan.first_index), progress)
        live_first = max(first, scan.first_index)
        live = read_entries(
            source, layout.log, scan.offsets, scan.first_index, scan.end, live_first, end, scan.head.seed
        )
        _apply(engine, layout, live, progress)
    return StoppedState(engine, [] if scan.torn is None else [f"the torn end of the log is left out: {scan.torn}"])


def _apply(engine: Engine, layout: Layout, entries: Iterable[Entry], progress: Progress) -> None:
    st = engine.state
    skipped = load_skipped(layout)
    for index, term, data in entries:
        if index != st.index + 1:
            raise Damaged(layout.log, f"entries {st.index + 1} to {index - 1} are missing before it")
        engine.apply(index, term, skipped.entry_to_apply(index, data))
        st.rows.clear()
        st.woken.clear()
        st.broadcasts.clear()
        engine.sweep()
        if index % _PROGRESS_EVERY == 0:
            progress(index)


def to_snapshot(engine: Engine) -> v1.Snapshot:
    """The state as version 1 can hold it; records of equal key stand in their order."""
    st = engine.state
    # An index beyond Int32 has no place in the file; 0 says the same of an empty log: it begins after the snapshot.
    last_index = st.index if st.index <= _INT32_MAX else 0
    queues = [
        v1.SnapshotQueue(queue.name.encode(), queue.settings.size_max or v1.UNLIMITED, _items(queue))
        for _, queue in sorted(st.by_uid.items())
    ]
    return v1.Snapshot(last_index, max(1, st.term), queues)


def to_log(engine: Engine, names: v1.NameForm = "string") -> v1.Log:
    """The state as commands that build it: Q for each queue but the default one, then E for each record."""
    st = engine.state
    term = max(1, st.term)
    log = v1.Log([], names)
    for _, queue in sorted(st.by_uid.items()):
        name, items = queue.name.encode(), _items(queue)
        if name:
            # A limit below the number of records, buried ones included, would refuse some of them.
            size_max = max(queue.settings.size_max, len(items)) if queue.settings.size_max else v1.UNLIMITED
            log.entries.append(v1.LogEntry(term, v1.CreateQueue(name, size_max)))
        log.entries += [v1.LogEntry(term, v1.Enqueue(name, key, payload)) for key, payload in items]
    return log


def _items(queue: Queue) -> list[tuple[int, bytes]]:
    """Key and payload of every record in whatever state, by key and place."""
    records = sorted(queue.scan(0), key=lambda record: (record.key, record.place))
    return [(record.key, record.payload) for record in records]


def write_version1(
    engine: Engine, target: Path, *, as_log: bool = False, names: v1.NameForm = "string", disk: Disk | None = None
) -> list[Path]:
    """Write the state into `target`/consensus in version 1; returns the files.

    That is a snapshot and an empty log, or with `as_log` a log that builds the state. Raises ``NotADataDirectory`` if
    such files are there already.
    """
    disk, layout = disk or Disk(), Layout(target)
    for path in (layout.log, layout.snapshot, layout.metadata):
        if path.exists():
            raise NotADataDirectory(path, "is there already; an export needs a new directory")
    contents = {layout.metadata: v1.encode_metadata(v1.Metadata(max(1, engine.state.term)))}
    if as_log:
        contents[layout.log] = v1.encode_log(to_log(engine, names))
    else:
        contents[layout.log] = v1.encode_log(v1.Log([]))
        contents[layout.snapshot] = v1.encode_snapshot(to_snapshot(engine))
    for directory in (target, layout.consensus):
        disk.mkdir(directory, "export.mkdir")
        disk.fsync_directory(directory.parent, "export.sync_directory")
    for path, data in contents.items():
        replace_file(disk, path.with_name(f"{path.name}.new"), path, data, "export")
    return list(contents)
