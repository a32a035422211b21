"""From version-1 files to a data directory of ours: ``penstock storage import``.

    version-1 files ─▶ commands ─▶ engine ─▶ snapshot of version 2, empty log, metadata

The commands of a version-1 log say less than ours, so an import has to assume something here and there; whatever it
assumes or passes over, it says in a sentence. The codec of the files is ``version1``; the way back ``export_version1``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.answers import Answer, PutAnswer, Taken
from penstock.engine.entries import Command, Entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_IMPORT, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage import version1 as v1
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, NotADataDirectory
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.records import encode_log
from penstock.storage.replace import replace_snapshot_and_log
from penstock.storage.segmenthead import SALT_BYTES, SegmentHead
from penstock.storage.store import Store, StoreSettings

SIZE_MAX_LARGEST: Final = 2**31 - 1
"""The largest limit that a queue of ours can have; version 1 goes up to 2^32 - 1."""

_ITEMS_PER_PUT: Final = 1000
_BYTES_PER_PUT: Final = 8 * 1024 * 1024
_PROGRESS_EVERY: Final = 1000
_NAMES_SHOWN: Final = 5

Progress = Callable[[int], None]
"""Called now and then with how many steps are done."""
Recorder = Callable[[int, int, bytes, bytes], None]
"""Called with index, term, bytes and events of every entry that an import makes."""


def no_progress(_done: int) -> None:
    """Nobody looks."""


@dataclass(frozen=True, slots=True)
class Version1Files:
    """What a directory of the original system holds; any of the files may be missing, but not log and snapshot both."""

    directory: Path
    log: v1.Log | None
    snapshot: v1.Snapshot | None
    metadata: v1.Metadata | None
    names_given: bool = False
    """Whether somebody told the form of names, so that it was not looked for."""

    @property
    def log_path(self) -> Path:
        """Where the log is."""
        return self.directory / "raft.log"

    @property
    def steps(self) -> int:
        """How many records and entries there are to go through."""
        records = sum(len(queue.items) for queue in self.snapshot.queues) if self.snapshot is not None else 0
        return records + (len(self.log.entries) if self.log is not None else 0)


@dataclass(slots=True)
class Imported:
    """The state that version-1 files tell of, and what was assumed in reading them so."""

    engine: Engine
    assumptions: list[str] = field(default_factory=list)
    """One sentence each, for the operator."""
    entries_applied: int = 0
    records_from_snapshot: int = 0

    @property
    def records(self) -> int:
        """How many records there are now."""
        return sum(sum(queue.counts) for queue in self.engine.state.by_uid.values())

    @property
    def queues(self) -> int:
        """How many queues there are now, the default one included."""
        return len(self.engine.state.by_uid)


def read_version1(source: Path, names: v1.NameForm | None = None) -> Version1Files:
    """Read the files in `source`, or in `source`/consensus. Raises ``Damaged`` with file, offset and reason."""
    directory = source / "consensus" if (source / "consensus").is_dir() else source
    log = _decoded(directory / "raft.log", lambda data: v1.decode_log(data, names))
    snapshot = _decoded(directory / "raft.snapshot", v1.decode_snapshot)
    metadata = _decoded(directory / "raft.metadata", v1.decode_metadata)
    if log is None and snapshot is None:
        raise NotADataDirectory(directory, "has neither raft.log nor raft.snapshot")
    return Version1Files(directory, log, snapshot, metadata, names is not None)


def _decoded(path: Path, decode: Callable[[bytes], Any]) -> Any:
    if not path.exists():
        return None
    with FileSource(path) as source:
        data = source.read(0, source.size_bytes)
    try:
        return decode(data)
    except v1.Version1Error as error:
        raise Damaged(path, error.reason, error.offset) from error


def build_engine(
    files: Version1Files,
    *,
    now_us: int,
    log_from_start: bool = False,
    progress: Progress = no_progress,
    record: Recorder | None = None,
) -> Imported:
    """Put what the files tell into an engine; every record counts as published at `now_us`.

    The log begins after the snapshot, unless `log_from_start` says that its first entry has index 0. Raises
    ``Damaged``.
    """
    importing = _Import(files, now_us, progress, record)
    importing.load_snapshot()
    importing.replay(log_from_start)
    importing.finish()
    return importing.done


class _Import:
    """The steps of an import, and the sentences it leaves behind."""

    def __init__(self, files: Version1Files, now_us: int, progress: Progress, record: Recorder | None) -> None:
        self.files = files
        self.now_us = now_us
        self.progress = progress
        self.record = record
        self.engine = Engine()
        self.engine.state.queues_max = 2**31  # nothing is left behind for a limit that can be raised later
        self.done = Imported(self.engine)
        self.passed_over: Counter[str] = Counter()
        self.queues_made: list[str] = []
        self.limits_cut = 0
        self.last_term = 0
        snapshot = files.snapshot
        self.term = max(1, snapshot.last_term if snapshot is not None else 1)
        # The first entry makes no queue: a queue is named by its place in the log, and 0 names the default queue.
        self.apply(c.Tick())

    def say(self, sentence: str) -> None:
        self.done.assumptions.append(sentence)

    def apply(self, args: Any) -> Answer:
        """Apply one command as an entry of its own."""
        st = self.engine.state
        command = Command(c.OPS[type(args)], DOOR_IMPORT, 0, 0, 0, c.encode(args), args)
        entry = Entry(self.now_us, [command])
        (answer,) = self.engine.apply(st.index + 1, self.term, entry)
        if self.record is not None:
            self.record(st.index, self.term, encode_entry(entry), b"".join(st.rows))
        st.rows.clear()
        st.woken.clear()
        self.engine.sweep()
        return answer

    # The snapshot.

    def load_snapshot(self) -> None:
        """Make the snapshot's queues; a limit is set after the records are in, for it may be below their number."""
        snapshot = self.files.snapshot
        if snapshot is None:
            return
        for queue in snapshot.queues:
            name = queue.name.decode()
            if name:
                self.must(c.CreateQueue(name, c.QueueSettings()))
            for items in _groups(queue.items):
                self.must(c.Put(name, items))
                self.done.records_from_snapshot += len(items)
                self.progress(self.done.records_from_snapshot)
            if queue.queue_size_max != v1.UNLIMITED:
                self.must(c.ChangeQueue(name, c.QueueChanges(size_max=self.limit(queue.queue_size_max))))
        if self.done.records_from_snapshot:
            self.say("snapshot records of equal key are taken in the order of the file (version 1 promises none)")

    def must(self, args: Any) -> None:
        answer = self.apply(args)
        assert not isinstance(answer, Refusal), f"a snapshot's own content cannot be refused: {answer}"

    def limit(self, queue_size_max: int) -> int | None:
        if queue_size_max == v1.UNLIMITED:
            return None
        self.limits_cut += queue_size_max > SIZE_MAX_LARGEST
        return min(queue_size_max, SIZE_MAX_LARGEST)

    # The log.

    def replay(self, log_from_start: bool) -> None:
        """Apply the entries of the log that the snapshot does not cover."""
        log = self.files.log
        if log is None:
            self.say("there is no raft.log: the snapshot alone is imported")
            return
        covered = self.place_log(log, log_from_start)
        if log.entries:
            self.tell_names(log)
        for position, entry in enumerate(log.entries):
            self.check_term(entry)
            if position >= covered:
                self.term = entry.term
                self.run(entry.command)
                self.done.entries_applied += 1
            if position % _PROGRESS_EVERY == 0:
                self.progress(self.done.records_from_snapshot + position)
        if log.torn_at is not None:
            self.say(f"{self.files.log_path}, offset {log.torn_at}: the last entry is not whole and is left out")
        if self.done.entries_applied:
            self.say("every entry of the log counts as committed; a D removes the record that is first at that point")

    def place_log(self, log: v1.Log, log_from_start: bool) -> int:
        """Decide which index the first entry has; returns how many entries the snapshot covers."""
        snapshot = self.files.snapshot
        if snapshot is None:
            self.say("there is no snapshot: the log begins at index 0")
            return 0
        if not log_from_start:
            self.say(f"the log begins after the snapshot, at index {snapshot.last_index + 1}")
            self.last_term = snapshot.last_term
            return 0
        covered = min(snapshot.last_index + 1, len(log.entries))
        self.say(f"the log begins at index 0, as told: the snapshot covers its first {covered} entries")
        return covered

    def check_term(self, entry: v1.LogEntry) -> None:
        """Terms never fall in a log; where they do, the log is damaged or does not follow the snapshot."""
        if entry.term < self.last_term:
            at_beginning = self.files.log is not None and entry is self.files.log.entries[0]
            hint = "; if the log begins at index 0 and not after the snapshot, say --log-from-start"
            reason = f"term {entry.term} after term {self.last_term}{hint if at_beginning else ''}"
            raise Damaged(self.files.log_path, reason, entry.offset)
        self.last_term = entry.term

    def run(self, command: v1.LogCommand) -> None:
        """Do what a command of the log says."""
        name = command.queue.decode()
        match command:
            case v1.Enqueue():
                self.put(name, command)
            case v1.Dequeue():
                answer = self.apply(c.Take(name, 1, final=True))
                if isinstance(answer, Refusal):
                    self.passed_over["D for a queue that does not exist"] += 1
                elif isinstance(answer, Taken) and not answer.records:
                    self.passed_over["D for an empty queue"] += 1
            case v1.Count():
                pass
            case v1.CreateQueue():
                settings = c.QueueSettings(size_max=self.limit(command.queue_size_max))
                if isinstance(self.apply(c.CreateQueue(name, settings)), Refusal):
                    self.passed_over["Q for a queue that exists already"] += 1
            case v1.DeleteQueue():
                answer = self.apply(c.DeleteQueue(name))
                if isinstance(answer, Refusal):
                    is_default = answer.code == e.DEFAULT_QUEUE
                    which = "the default queue" if is_default else "a queue that does not exist"
                    self.passed_over[f"R for {which}"] += 1

    def put(self, name: str, command: v1.Enqueue) -> None:
        if name not in self.engine.state.by_name:
            self.queues_made.append(name)
        answer = self.apply(c.Put(name, [c.Item(command.key, command.payload)], create=True))
        assert isinstance(answer, PutAnswer), f"a queue that is missing is made: {answer}"
        if answer.exceptions:
            self.passed_over["E for a full queue"] += 1

    # What is said at the end.

    def tell_names(self, log: v1.Log) -> None:
        form = "String (Int32 length)" if log.names == "string" else "QueueName (Byte length)"
        if self.files.names_given:
            self.say(f"names in the log are read as {form}, as told")
        elif log.both_forms_fit:
            self.say(f"names in the log are read as {form}, though both forms fit; --names decides otherwise")
        else:
            self.say(f"names in the log are read as {form}: only that form fits all of its commands")

    def finish(self) -> None:
        """Take over the term, and say what else was assumed."""
        if self.queues_made:
            shown = ", ".join(map(repr, self.queues_made[:_NAMES_SHOWN]))
            more = len(self.queues_made) - _NAMES_SHOWN
            shown += f" and {more} more" if more > 0 else ""
            self.say(f"queues that no command had created are made, so that no record is lost: {shown}")
        for what, count in sorted(self.passed_over.items()):
            self.say(f"{count} × {what}: changes nothing")
        if self.limits_cut:
            self.say(f"{self.limits_cut} × a limit above {SIZE_MAX_LARGEST}: taken for {SIZE_MAX_LARGEST}")
        metadata = self.files.metadata
        if metadata is not None:
            self.term = max(self.term, metadata.term)
            if metadata.voted_for is not None:
                self.say(f"the vote for node {metadata.voted_for} is left behind: the new node is a cluster of its own")
        if self.term > self.engine.state.term:
            self.apply(c.Tick())  # so that the state's term is the greatest that the files know
        self.say("all records count as published now, with new ids from 1 in each queue")


def _groups(records: list[tuple[int, bytes]]) -> Iterator[list[c.Item]]:
    """Records as items of puts that are neither too many nor too large for one entry."""
    items: list[c.Item] = []
    size = 0
    for key, payload in records:
        if len(items) == _ITEMS_PER_PUT or (items and size + len(payload) > _BYTES_PER_PUT):
            yield items
            items, size = [], 0
        items.append(c.Item(key, payload))
        size += len(payload)
    if items:
        yield items


def write_version2(
    engine: Engine, data_dir: Path, *, new_cluster_id: bytes, node_id: int = 0, disk: Disk | None = None
) -> None:
    """Make `data_dir` the directory of a node with this state: a snapshot, an empty log, metadata.

    All is made aside and gets its name at the end, so that no node can start from a part of it. Raises
    ``NotADataDirectory`` where a node has its files already.
    """
    disk = disk or Disk()
    check_unused(data_dir)
    staging = data_dir / "import.new"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        _write_directory(engine, staging, new_cluster_id, node_id, disk)
        disk.rename(Layout(staging).consensus, Layout(data_dir).consensus, "import.rename")
        disk.fsync_directory(data_dir, "import.sync_directory")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_directory(engine: Engine, data_dir: Path, new_cluster_id: bytes, node_id: int, disk: Disk) -> None:
    def open_and_close() -> None:
        # A small log without reserve: the node's first start gives both their size.
        settings = StoreSettings(segment_bytes=4096, reserve_bytes=0)
        store, _ = Store.open(
            data_dir, row_bytes=ROW_BYTES, new_cluster_id=new_cluster_id, node_id=node_id, settings=settings, disk=disk
        )
        store.close()

    st = engine.state
    head = SegmentHead.new(new_cluster_id, disk.random_bytes(SALT_BYTES))
    log = encode_log(st.index + 1, st.term, [], head)
    open_and_close()
    replace_snapshot_and_log(data_dir, st.index, st.term, engine_snapshot.begin(engine), log, disk)
    open_and_close()  # begins the journal where the snapshot ends, and shows that a start finds all in order


def check_unused(data_dir: Path) -> None:
    """Raise unless the directory is missing or has no files of a node."""
    consensus = Layout(data_dir).consensus
    found = sorted(path.name for path in consensus.iterdir()) if consensus.is_dir() else []
    if found:
        raise NotADataDirectory(consensus, f"holds {found[0]} already; an import needs a new directory")
