"""Version 1 to version 2 and back: what import assumes, what export leaves behind, and that nothing else changes."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.engine import commands as c
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NATIVE, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage import version1 as v1
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, DirectoryInUse, NotADataDirectory, OlderVersion, StorageFailed
from penstock.storage.export_version1 import read_state, to_log, to_snapshot, write_version1
from penstock.storage.import_version1 import Imported, Version1Files, build_engine, read_version1, write_version2
from penstock.storage.layout import Layout
from penstock.storage.losses import losses
from penstock.storage.store import Store, StoreSettings
from penstock.storage.verify import verify
from tests.wire.taskflux.support import file_vectors

VECTORS = file_vectors()
NOW_US = 1_700_000_000_000_000
CLUSTER = bytes(range(16))
SMALL = StoreSettings(segment_bytes=4096, reserve_bytes=0)

Content = dict[str, tuple[int, list[tuple[int, bytes]]]]
"""What version 1 can say of a state: by queue its limit (0: none) and its records in order."""


def content(engine: Engine) -> Content:
    return {
        queue.name: (queue.settings.size_max or 0, [(r.key, r.payload) for r in queue.order.walk()])
        for queue in engine.state.by_uid.values()
    }


def files(directory: Path, **contents: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (directory / f"raft.{name}").write_bytes(data)
    return directory


def imported(source: Path, names: v1.NameForm | None = None, **options: Any) -> Imported:
    return build_engine(read_version1(source, names), now_us=NOW_US, **options)


def log_of(*commands: v1.LogCommand, names: v1.NameForm = "string") -> bytes:
    return v1.encode_log(v1.Log([v1.LogEntry(1, command) for command in commands], names))


def said(result: Imported, part: str) -> bool:
    return any(part in sentence for sentence in result.assumptions)


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vector", "form"),
    [("raft.log.two_as_code", "QueueName"), ("raft.log.two_as_seed001_commands", "String")],
)
def test_a_log_in_either_form_is_replayed_as_committed(tmp_path: Path, vector: str, form: str) -> None:
    result = imported(files(tmp_path, log=VECTORS[vector][0]))
    assert content(result.engine) == {"": (0, [])}
    assert (result.entries_applied, result.records, result.engine.state.term) == (2, 0, 3)
    assert said(result, f"read as {form}")
    assert said(result, "only that form fits")
    assert said(result, "counts as committed")
    assert said(result, "there is no snapshot")


def test_a_cut_log_is_imported_up_to_its_torn_entry_which_is_told(tmp_path: Path) -> None:
    data = VECTORS["raft.log.two_as_seed001_commands"][0]
    result = imported(files(tmp_path, log=data[:-1]))
    assert content(result.engine) == {"": (0, [(5, b"abc")])}
    assert said(result, f"{tmp_path}/raft.log, offset 36: the last entry is not whole")


def test_a_snapshot_alone_gives_its_queues_and_limits(tmp_path: Path) -> None:
    result = imported(files(tmp_path / "consensus", snapshot=VECTORS["raft.snapshot"][0]).parent)
    assert content(result.engine) == {"": (0, [(5, b"abc")]), "orders": (100, [])}
    assert (result.records_from_snapshot, result.entries_applied) == (1, 0)
    assert said(result, "there is no raft.log")


def test_metadata_raise_the_term_and_lose_the_vote(tmp_path: Path) -> None:
    files(tmp_path, log=VECTORS["raft.log.empty"][0], metadata=VECTORS["raft.metadata.term3_vote1"][0])
    result = imported(tmp_path)
    assert result.engine.state.term == 3
    assert said(result, "the vote for node 1 is left behind")


def test_with_a_snapshot_the_log_begins_after_it(tmp_path: Path) -> None:
    files(tmp_path, snapshot=VECTORS["raft.snapshot"][0])
    log = v1.Log([v1.LogEntry(3, v1.Enqueue(b"", 9, b"later")), v1.LogEntry(4, v1.Dequeue(b""))])
    result = imported(files(tmp_path, log=v1.encode_log(log)))
    assert content(result.engine)[""] == (0, [(9, b"later")])
    assert said(result, "the log begins after the snapshot, at index 2")
    assert result.engine.state.term == 4


def test_log_from_start_passes_over_what_the_snapshot_covers(tmp_path: Path) -> None:
    files(tmp_path, snapshot=VECTORS["raft.snapshot"][0], log=VECTORS["raft.log.two_as_code"][0])
    with pytest.raises(Damaged, match=r"term 2 after term 3.*--log-from-start") as raised:
        imported(tmp_path)
    assert (raised.value.file, raised.value.offset) == (tmp_path / "raft.log", 8)
    result = imported(tmp_path, log_from_start=True)
    assert content(result.engine) == {"": (0, [(5, b"abc")]), "orders": (100, [])}
    assert result.entries_applied == 0
    assert said(result, "as told: the snapshot covers its first 2 entries")


def test_where_both_forms_fit_string_is_taken_unless_told(tmp_path: Path) -> None:
    files(tmp_path, log=log_of(v1.Enqueue(b"", 1, b"x" * 253)))
    chosen, told = imported(tmp_path), imported(tmp_path, "queuename")
    assert content(chosen.engine)[""] == (0, [(1, b"x" * 253)])
    assert said(chosen, "read as String")
    assert said(chosen, "both forms fit; --names decides otherwise")
    assert content(told.engine)[""][1][0][0] == 0
    assert said(told, "read as QueueName (Byte length), as told")


def test_what_the_log_cannot_mean_changes_nothing_and_is_counted(tmp_path: Path) -> None:
    commands: list[v1.LogCommand] = [
        v1.CreateQueue(b"q", 1),
        v1.Enqueue(b"q", 2, b"kept"),
        v1.Enqueue(b"q", 1, b"refused"),
        v1.CreateQueue(b"q", 7),
        v1.CreateQueue(b"", 7),
        v1.Count(b"q"),
        v1.Dequeue(b""),
        v1.Dequeue(b"nowhere"),
        v1.DeleteQueue(b"nowhere"),
        v1.DeleteQueue(b""),
    ]
    result = imported(files(tmp_path, log=log_of(*commands)))
    assert content(result.engine) == {"": (0, []), "q": (1, [(2, b"kept")])}
    for sentence in (
        "1 × E for a full queue",
        "2 × Q for a queue that exists already",
        "1 × D for an empty queue",
        "1 × D for a queue that does not exist",
        "1 × R for a queue that does not exist",
        "1 × R for the default queue",
    ):
        assert said(result, sentence), sentence


def test_a_record_for_a_queue_that_nobody_created_makes_the_queue(tmp_path: Path) -> None:
    commands = [v1.Enqueue(name.encode(), 1, b"x") for name in "abcdefg"]
    result = imported(files(tmp_path, log=log_of(*commands)))
    assert result.records == 7
    assert said(result, "'a', 'b', 'c', 'd', 'e' and 2 more")


def test_limits_are_set_after_the_records_and_cut_to_what_a_queue_can_have(tmp_path: Path) -> None:
    queues = [v1.SnapshotQueue(b"small", 1, [(1, b"a"), (1, b"b")]), v1.SnapshotQueue(b"vast", 2**32 - 1)]
    result = imported(files(tmp_path, snapshot=v1.encode_snapshot(v1.Snapshot(0, 1, queues))))
    assert content(result.engine)["small"] == (1, [(1, b"a"), (1, b"b")])
    assert content(result.engine)["vast"] == (2**31 - 1, [])
    assert said(result, "1 × a limit above 2147483647")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "offset", "reason"),
    [
        ("log", b"PENS\x01\x00\x00\x00", 0, "marker"),
        ("log", VECTORS["raft.log.empty"][0][:4] + b"\x02\x00\x00\x00", 4, "version 2"),
        ("log", VECTORS["raft.log.empty"][0] + bytes(8), 8, "term"),
        ("log", VECTORS["raft.log.empty"][0] + bytes.fromhex("01000000 02000000 5800"), 17, "unknown command"),
        ("snapshot", VECTORS["raft.snapshot"][0][:-1], 47, "3 are left"),
        ("snapshot", v1.MARKER + bytes.fromhex("feffffff 02000000"), 4, "not a snapshot of version 1"),
        ("metadata", VECTORS["raft.metadata.fresh"][0][:-1], 16, "16 bytes"),
    ],
)
def test_a_bad_file_is_named_with_offset_and_reason(
    tmp_path: Path, name: str, data: bytes, offset: int, reason: str
) -> None:
    files(tmp_path, log=VECTORS["raft.log.empty"][0])
    files(tmp_path, **{name: data})
    with pytest.raises(Damaged, match=reason) as raised:
        read_version1(tmp_path)
    assert (raised.value.file, raised.value.offset) == (tmp_path / f"raft.{name}", offset)


def test_falling_terms_are_damage(tmp_path: Path) -> None:
    log = v1.Log([v1.LogEntry(term, v1.Dequeue(b"")) for term in (1, 3, 2)])
    with pytest.raises(Damaged, match=r"term 2 after term 3$") as raised:
        imported(files(tmp_path, log=v1.encode_log(log)))
    assert raised.value.offset == 8 + 2 * 13


def test_a_directory_without_log_and_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADataDirectory, match=r"neither raft.log nor raft.snapshot"):
        read_version1(files(tmp_path, metadata=VECTORS["raft.metadata.fresh"][0]))


def test_a_directory_of_a_node_is_never_imported_into(tmp_path: Path) -> None:
    result = imported(files(tmp_path / "old", log=VECTORS["raft.log.empty"][0]))
    write_version2(result.engine, tmp_path / "new", new_cluster_id=CLUSTER)
    before = tree(tmp_path / "new")
    with pytest.raises(NotADataDirectory, match="an import needs a new directory"):
        write_version2(result.engine, tmp_path / "new", new_cluster_id=CLUSTER)
    assert tree(tmp_path / "new") == before
    with pytest.raises(NotADataDirectory, match=r"holds raft.log already"):
        write_version2(result.engine, files(tmp_path / "other" / "consensus", log=b"").parent, new_cluster_id=CLUSTER)


def test_version_1_files_in_a_data_directory_are_refused_by_a_start_with_the_way_out(tmp_path: Path) -> None:
    files(tmp_path / "consensus", metadata=VECTORS["raft.metadata.fresh"][0], log=VECTORS["raft.log.empty"][0])
    with pytest.raises(OlderVersion, match="penstock storage import"):
        opened(tmp_path)


# --- what is written --------------------------------------------------------------------------------------------------


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def opened(data_dir: Path, settings: StoreSettings = SMALL) -> Any:
    return Store.open(data_dir, row_bytes=ROW_BYTES, new_cluster_id=CLUSTER, node_id=0, settings=settings)


def test_a_node_starts_from_an_import_without_anything_to_mend(tmp_path: Path) -> None:
    commands = [v1.CreateQueue(b"q", 5), v1.Enqueue(b"q", 2, b"b"), v1.Enqueue(b"q", 1, b"a"), v1.Enqueue(b"", 1, b"z")]
    result = imported(files(tmp_path / "old", log=log_of(*commands)))
    write_version2(result.engine, tmp_path / "new", new_cluster_id=CLUSTER)
    assert verify(tmp_path / "new").problems == []
    store, recovered = opened(tmp_path / "new")
    try:
        assert (recovered.notes, recovered.torn, recovered.journal_gap) == ([], [], None)
        assert (recovered.metadata.term, recovered.metadata.cluster_id) == (1, CLUSTER)
        engine = engine_snapshot.restore(recovered.snapshot)
        assert content(engine) == {"": (0, [(1, b"z")]), "q": (5, [(1, b"a"), (2, b"b")])}
        assert list(recovered.entries) == []
        assert engine.state.by_name["q"].uid != engine.state.by_name[""].uid == 0
        assert {record.published_us for record in engine.state.by_name["q"].scan(0)} == {NOW_US}
    finally:
        store.close()


class FailingDisk(Disk):
    """Fails at one site, at each call of it."""

    def __init__(self, site: str) -> None:
        super().__init__()
        self.site = site

    def before(self, site: str, path: Path) -> None:
        if site == self.site:
            raise OSError(errno.EIO, "as the test wants it")


@pytest.mark.parametrize(
    "site", ["metadata.rename", "replace.write", "replace.sync", "replace.rename", "import.rename"]
)
def test_an_import_that_fails_leaves_nothing_that_a_node_could_start_from(tmp_path: Path, site: str) -> None:
    engine = imported(files(tmp_path / "old", log=log_of(v1.Enqueue(b"", 1, b"x")))).engine
    with pytest.raises(StorageFailed, match=site):
        write_version2(engine, tmp_path / "new", new_cluster_id=CLUSTER, disk=FailingDisk(site))
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "new" / "import.new" / "consensus").mkdir(parents=True)  # as a crash would leave it
    write_version2(engine, tmp_path / "new", new_cluster_id=CLUSTER)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["consensus"]
    assert content(read_state(tmp_path / "new").engine) == {"": (0, [(1, b"x")])}


class Written:
    """A data directory that is written as a node writes it, for export."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.store, _ = opened(data_dir)
        self.engine = Engine()
        self.stamp_us = NOW_US

    def do(self, args: Any) -> Any:
        state = self.engine.state
        command = Command(c.OPS[type(args)], DOOR_NATIVE, 1 << 32 | 1, 0, 0, c.encode(args), args)
        data = encode_entry(Entry(self.stamp_us, [command]))
        index = state.index + 1
        self.store.append([(index, 1, data)])
        (answer,) = self.engine.apply(index, 1, decode_entry(data))
        assert not isinstance(answer, Refusal), answer
        self.store.journal_append(index, b"".join(state.rows))
        state.rows.clear()
        return answer

    def snapshot(self) -> None:
        writer = self.store.begin_snapshot(self.engine.state.index, 1)
        for block in engine_snapshot.begin(self.engine):
            writer.write_block(block)
        writer.finish()

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    directory = Written(tmp_path / "data")
    yield directory
    directory.close()


def test_export_reads_snapshot_archive_and_log_and_changes_nothing(written: Written, tmp_path: Path) -> None:
    written.do(c.Tick())
    written.do(c.CreateQueue("q", c.QueueSettings(size_max=500)))
    for number in range(40):
        written.do(c.Put("q", [c.Item(number % 3, bytes(300))]))
    written.snapshot()
    for number in range(40):
        written.do(c.Put("", [c.Item(-number, b"%d" % number)]))
    written.do(c.Take("q", 5, final=True))
    written.close()
    assert Layout(written.data_dir).sealed_first_indexes(), "the log has rolled"
    before = tree(written.data_dir)
    state = read_state(written.data_dir)
    assert content(state.engine) == content(written.engine)
    assert state.notes == []
    assert tree(written.data_dir) == before
    paths = write_version1(state.engine, tmp_path / "out")
    assert sorted(path.name for path in paths) == ["raft.log", "raft.metadata", "raft.snapshot"]
    again = imported(tmp_path / "out")
    assert content(again.engine) == content(written.engine)
    assert v1.decode_log((tmp_path / "out/consensus/raft.log").read_bytes()).entries == []


def test_a_torn_end_is_left_out_and_told(written: Written) -> None:
    written.do(c.Put("", [c.Item(1, b"first")]))
    written.do(c.Put("", [c.Item(2, b"second")]))
    written.close()
    log = Layout(written.data_dir).log
    data = log.read_bytes().rstrip(b"\0")
    log.write_bytes(data[:-1])
    state = read_state(written.data_dir)
    assert content(state.engine) == {"": (0, [(1, b"first")])}
    assert "torn end" in state.notes[0]


def test_a_running_node_is_not_exported(written: Written) -> None:
    written.do(c.Tick())
    with pytest.raises(DirectoryInUse):
        read_state(written.data_dir)


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata"])
def test_what_is_no_data_directory_is_not_exported(written: Written, name: str) -> None:
    written.close()
    path = written.data_dir / "consensus" / name
    path.unlink()
    with pytest.raises((NotADataDirectory, Damaged), match="is missing") as raised:
        read_state(written.data_dir)
    assert raised.value.file == path


def test_an_interrupted_import_is_left_to_a_start(written: Written) -> None:
    written.close()
    (written.data_dir / "consensus/log.new").write_bytes(b"")
    with pytest.raises(Damaged, match="start the node once"):
        read_state(written.data_dir)


def test_a_missing_segment_is_not_passed_over(written: Written) -> None:
    for _ in range(40):
        written.do(c.Put("", [c.Item(1, bytes(300))]))
    written.close()
    layout = Layout(written.data_dir)
    layout.sealed_log(layout.sealed_first_indexes()[0]).unlink()
    with pytest.raises(Damaged, match="missing"):
        read_state(written.data_dir)


def test_an_export_never_writes_over_files(written: Written, tmp_path: Path) -> None:
    out = tmp_path / "out"
    files(out / "consensus", metadata=b"mine")
    with pytest.raises(NotADataDirectory, match="is there already"):
        write_version1(written.engine, out)
    assert tree(out) == {str(out / "consensus/raft.metadata"): b"mine"}


def test_leased_delayed_and_buried_records_are_written_as_waiting_in_their_order(written: Written) -> None:
    written.do(c.Put("", [c.Item(1, name.encode()) for name in "abcd"]))
    written.do(c.Put("", [c.Item(1, b"e", c.Options(delay_ms=60_000))]))
    taken = written.do(c.Take("", 2))
    written.do(c.Bury("", [(taken.records[0].id, taken.token)]))
    (queue,) = to_snapshot(written.engine).queues
    assert queue.items == [(1, name.encode()) for name in "abcde"]
    log = to_log(written.engine)
    assert [entry.command for entry in log.entries] == [v1.Enqueue(b"", 1, name.encode()) for name in "abcde"]


def test_a_log_raises_a_limit_that_would_refuse_records_and_keeps_the_others(written: Written) -> None:
    written.do(c.Tick())
    written.do(c.CreateQueue("low", c.QueueSettings(size_max=5)))
    written.do(c.CreateQueue("plain", c.QueueSettings(size_max=5)))
    written.do(c.Put("low", [c.Item(1, b"x")] * 3))
    written.do(c.ChangeQueue("low", c.QueueChanges(size_max=2)))
    made = {e.command.queue: e.command for e in to_log(written.engine).entries if isinstance(e.command, v1.CreateQueue)}
    assert {name: command.queue_size_max for name, command in made.items()} == {b"low": 3, b"plain": 5}
    assert "queue with more records than its size limit" in str(losses(written.engine, as_log=True))
    assert "more records" not in str(losses(written.engine))


# --- what is lost -----------------------------------------------------------------------------------------------------

PLAIN = c.QueueSettings()
HEADERS = Raw(c.encode({"a": "b"}))

LOSSES: list[tuple[str, list[Any]]] = [
    ("delayed record", [c.Put("", [c.Item(1, b"", c.Options(delay_ms=1000))])]),
    ("leased record", [c.Put("", [c.Item(1, b"")]), c.Take("", 1)]),
    ("buried record", [c.Put("", [c.Item(1, b"")]), c.Bury("", [(1, 0)])]),
    ("record with headers", [c.Put("", [c.Item(1, b"", c.Options(headers=HEADERS))])]),
    ("record with an expiry", [c.Put("", [c.Item(1, b"", c.Options(expires_ms=1000))])]),
    ("record with a lease length", [c.Put("", [c.Item(1, b"", c.Options(lease_ms=1000))])]),
    ("record with a deduplication key", [c.Put("", [c.Item(1, b"", c.Options(dedup_key="k"))])]),
    (
        "record with an origin",
        [c.CreateQueue("t", c.QueueSettings()), c.Put("", [c.Item(1, b"")]), c.Move("", [1], "t")],
    ),
    ("record with counters", [c.Put("", [c.Item(1, b"")]), c.Take("", 1)]),
    ("queue with QA", [c.CreateQueue("q", c.QueueSettings(implementation=c.QA, key_range=(0, 9)))]),
    ("queue with a key range", [c.CreateQueue("q", c.QueueSettings(key_range=(0, 9)))]),
    ("queue with a payload limit", [c.CreateQueue("q", c.QueueSettings(payload_bytes_max=9))]),
    ("queue with a size limit of 0", [c.CreateQueue("q", c.QueueSettings(size_max=0))]),
    ("queue with descending order", [c.CreateQueue("q", c.QueueSettings(descending=True))]),
    ("queue with a lease length", [c.CreateQueue("q", c.QueueSettings(lease_ms=1))]),
    ("queue with a largest number of deliveries", [c.CreateQueue("q", c.QueueSettings(deliveries_max=1))]),
    ("queue with a dead-letter setting", [c.CreateQueue("q", c.QueueSettings(dead_letter="d"))]),
    ("queue with a default expiry", [c.CreateQueue("q", c.QueueSettings(expires_ms=1))]),
    ("queue with deduplication settings", [c.CreateQueue("q", c.QueueSettings(dedup_window_ms=1))]),
    ("paused queue", [c.Pause("", True)]),
    ("deduplication key that is remembered", [c.Put("", [c.Item(1, b"", c.Options(dedup_key="k"))])]),
    ("staged part of a batch", [c.Stage("w", 1, 0, 0, 0, [("", [c.Item(1, b"")])])]),
    ("writer whose last published batch", [c.Publish("w", 1, [])]),
    ("binding of topic messages", [c.Bind("b", "", "", "")]),
]


@pytest.mark.parametrize(("what", "commands"), LOSSES, ids=[what for what, _ in LOSSES])
def test_each_thing_that_version_1_cannot_hold_is_counted(written: Written, what: str, commands: list[Any]) -> None:
    written.do(c.Tick())
    assert losses(written.engine) == []
    for command in commands:
        written.do(command)
    found = [loss for loss in losses(written.engine) if loss.what.startswith(what)]
    assert [(loss.count, loss.always) for loss in found] == [(1, False)]


def test_ids_are_told_but_are_no_reason_to_refuse(written: Written) -> None:
    written.do(c.Put("", [c.Item(1, b"a"), c.Item(2, b"b")]))
    (loss,) = losses(written.engine)
    assert (loss.count, loss.always) == (2, True)
    assert str(loss).startswith("2 × record with its id")


def test_a_log_cannot_limit_the_default_queue(written: Written) -> None:
    written.do(c.ChangeQueue("", c.QueueChanges(size_max=3)))
    assert losses(written.engine) == []
    assert [loss.count for loss in losses(written.engine, as_log=True)] == [1]


# --- round trips ------------------------------------------------------------------------------------------------------

names = st.sampled_from([b"", b"a", b"b", b"~" * 255])
keys = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
payloads = st.binary(max_size=8)
log_commands = st.one_of(
    st.builds(v1.Enqueue, names, keys, payloads),
    st.builds(v1.Enqueue, names, keys, payloads),
    st.builds(v1.Dequeue, names),
    st.builds(v1.Count, names),
    st.builds(v1.CreateQueue, names, st.sampled_from([0, 1, 3, 2**31 - 1])),
    st.builds(v1.DeleteQueue, names),
)


def model(commands: Iterable[v1.LogCommand]) -> Content:
    """What the commands mean, said as plainly as possible."""
    queues: dict[str, tuple[int, list[tuple[int, bytes]]]] = {"": (0, [])}
    for command in commands:
        name = command.queue.decode()
        if isinstance(command, v1.CreateQueue) and name not in queues:
            queues[name] = (command.queue_size_max, [])
        if isinstance(command, v1.DeleteQueue) and name:
            queues.pop(name, None)
        if isinstance(command, v1.Enqueue):
            limit, records = queues.setdefault(name, (0, []))
            if not limit or len(records) < limit:
                records.append((command.key, command.payload))
        if isinstance(command, v1.Dequeue) and queues.get(name, (0, []))[1]:
            records = queues[name][1]
            del records[records.index(min(records, key=lambda record: record[0]))]
    return {name: (limit, sorted(records, key=lambda record: record[0])) for name, (limit, records) in queues.items()}


@given(st.lists(log_commands, max_size=30), st.sampled_from(["string", "queuename"]))
def test_a_log_is_replayed_as_a_plain_model_says(commands: list[v1.LogCommand], form: v1.NameForm) -> None:
    log = v1.decode_log(log_of(*commands, names=form), form)
    result = build_engine(read_in_memory(log=log), now_us=NOW_US)
    assert content(result.engine) == model(commands)


@given(st.lists(log_commands, max_size=30))
def test_a_state_comes_back_from_a_log_and_from_a_snapshot(commands: list[v1.LogCommand]) -> None:
    engine = build_engine(read_in_memory(log=v1.Log([v1.LogEntry(1, each) for each in commands])), now_us=NOW_US).engine
    again = v1.decode_snapshot(v1.encode_snapshot(to_snapshot(engine)))
    assert content(build_engine(read_in_memory(snapshot=again), now_us=NOW_US).engine) == content(engine)
    as_log = v1.decode_log(v1.encode_log(to_log(engine)), "string")
    assert content(build_engine(read_in_memory(log=as_log), now_us=NOW_US).engine) == content(engine)


snapshot_queues = st.builds(
    v1.SnapshotQueue, names, st.integers(0, 2**31 - 1), st.lists(st.tuples(keys, payloads), max_size=9)
)


@given(st.integers(-1, 2**31 - 1), st.lists(snapshot_queues, max_size=4, unique_by=lambda queue: queue.name))
def test_a_snapshot_comes_back_but_for_the_order_of_keys(last_index: int, queues: list[v1.SnapshotQueue]) -> None:
    snapshot = v1.Snapshot(last_index, 1, queues)
    (found, *rest) = to_snapshot(build_engine(read_in_memory(snapshot=snapshot), now_us=NOW_US).engine).queues
    expected = {queue.name: queue for queue in [v1.SnapshotQueue(b""), *queues]}
    for queue in expected.values():
        queue.items.sort(key=lambda item: item[0])
    assert found.name == b""
    assert {queue.name: queue for queue in [found, *rest]} == expected


def read_in_memory(log: v1.Log | None = None, snapshot: v1.Snapshot | None = None) -> Version1Files:
    return Version1Files(Path("consensus"), log, snapshot, None)
