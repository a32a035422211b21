"""Version 1 of raft.log, raft.metadata and raft.snapshot: the vectors, round trips, torn tails, and what is refused."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import version1 as v1
from penstock.storage.version1 import Version1Error
from tests.wire.taskflux.support import file_vectors

VECTORS = file_vectors()
HEAD = bytes.fromhex("2f0f6f2f 01000000")

TWO_COMMANDS: list[v1.LogCommand] = [v1.Enqueue(b"", 5, b"abc"), v1.Dequeue(b"")]


def entry(term: int, command: str) -> bytes:
    data = bytes.fromhex(command)
    return term.to_bytes(4, "little", signed=True) + len(data).to_bytes(4, "little", signed=True) + data


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_every_vector_of_files_is_used_here() -> None:
    assert set(VECTORS) == {
        "raft.log.empty",
        "raft.log.two_as_code",
        "raft.log.two_as_seed001_commands",
        "raft.metadata.fresh",
        "raft.metadata.term3_vote1",
        "raft.snapshot",
    }


def test_empty_log() -> None:
    data, _ = VECTORS["raft.log.empty"]
    assert v1.decode_log(data) == v1.Log([], "string", both_forms_fit=True)
    assert v1.encode_log(v1.Log([])) == data


@pytest.mark.parametrize(
    ("vector", "names", "offsets"),
    [("raft.log.two_as_code", "queuename", [8, 33]), ("raft.log.two_as_seed001_commands", "string", [8, 36])],
)
def test_log_in_both_forms_of_names(vector: str, names: v1.NameForm, offsets: list[int]) -> None:
    data, fields = VECTORS[vector]
    terms = [described["term"] for described in fields["entries"]]
    log = v1.Log(list(map(v1.LogEntry, terms, TWO_COMMANDS, offsets)), names)
    assert v1.decode_log(data) == log
    assert v1.decode_log(data, names) == log
    assert v1.encode_log(log) == data
    with pytest.raises(Version1Error):
        v1.decode_log(data, "string" if names == "queuename" else "queuename")


@pytest.mark.parametrize("vector", ["raft.metadata.fresh", "raft.metadata.term3_vote1"])
def test_metadata(vector: str) -> None:
    data, fields = VECTORS[vector]
    metadata = v1.Metadata(fields["term"], fields["voted"])
    assert v1.decode_metadata(data) == metadata
    assert v1.encode_metadata(metadata) == data


def test_snapshot() -> None:
    data, fields = VECTORS["raft.snapshot"]
    queues = [
        v1.SnapshotQueue(
            queue["name"].encode(), queue["max"], [(key, bytes.fromhex(item)) for key, item in queue.get("items", [])]
        )
        for queue in fields["queues"]
    ]
    snapshot = v1.Snapshot(fields["last_index"], fields["last_term"], queues)
    assert v1.decode_snapshot(data) == snapshot
    assert v1.encode_snapshot(snapshot) == data


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", ["raft.log.two_as_code", "raft.log.two_as_seed001_commands"])
def test_a_log_cut_anywhere_keeps_its_whole_entries_and_says_where_it_is_torn(vector: str) -> None:
    data, _ = VECTORS[vector]
    whole = v1.decode_log(data)
    second = whole.entries[1].offset
    for cut in range(8, len(data)):
        log = v1.decode_log(data[:cut], whole.names)
        expected = 0 if cut < second else 1
        assert log.entries == whole.entries[:expected]
        begin = 8 if cut < second else second
        assert log.torn_at == (None if cut == begin else begin)


def test_a_log_cut_inside_its_header_is_refused() -> None:
    for cut in range(1, 8):
        with pytest.raises(Version1Error) as raised:
            v1.decode_log(HEAD[:cut])
        assert raised.value.offset == (0 if cut < 4 else cut)


def test_a_file_of_no_bytes_is_an_empty_log() -> None:
    assert v1.decode_log(b"").entries == []
    assert v1.decode_log(b"", "queuename").names == "queuename"


def test_where_both_forms_fit_string_is_taken_and_said_so() -> None:
    """Key 1 and 253 bytes after an empty String read as key 0 and 256 bytes after an empty QueueName."""
    data = v1.encode_log(v1.Log([v1.LogEntry(1, v1.Enqueue(b"", 1, b"x" * 253))]))
    log = v1.decode_log(data)
    assert (log.names, log.both_forms_fit) == ("string", True)
    assert log.entries[0].command == v1.Enqueue(b"", 1, b"x" * 253)
    other = v1.decode_log(data, "queuename")
    assert (other.names, other.both_forms_fit) == ("queuename", False)
    assert other.entries[0].command == v1.Enqueue(b"", 0, bytes.fromhex("0000fd") + b"x" * 253)


def test_one_entry_in_another_form_decides_for_the_whole_file() -> None:
    ambiguous = v1.encode_log(v1.Log([v1.LogEntry(1, v1.Enqueue(b"", 1, b"x" * 253))]))
    log = v1.decode_log(ambiguous + entry(1, "44 00"))
    assert (log.names, len(log.entries)) == ("queuename", 2)


def test_a_file_of_mixed_forms_is_refused_and_both_reasons_are_told() -> None:
    data = HEAD + entry(1, "44 00") + entry(1, "44 00000000")
    with pytest.raises(Version1Error, match=r"String.*QueueName") as raised:
        v1.decode_log(data)
    assert raised.value.offset > 8 + 10


def test_all_commands_of_the_log_by_their_bytes() -> None:
    data = HEAD + b"".join(
        entry(7, command)
        for command in (
            "45 00000001 71 8000000000000000 00000001 ff",
            "44 00000001 71",
            "43 00000001 71",
            "51 00000001 71 ffffffff",
            "52 00000001 71",
        )
    )
    log = v1.decode_log(data)
    assert [entry.command for entry in log.entries] == [
        v1.Enqueue(b"q", -(2**63), b"\xff"),
        v1.Dequeue(b"q"),
        v1.Count(b"q"),
        v1.CreateQueue(b"q", 2**32 - 1),
        v1.DeleteQueue(b"q"),
    ]
    assert v1.encode_log(log) == data


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"\x2f\x6f\x0f\x2f" + HEAD[4:], 0, "marker"),
        (b"PENS" + HEAD[4:], 0, "marker"),
        (HEAD[:4] + bytes.fromhex("02000000"), 4, "version 2"),
        (HEAD[:4] + bytes.fromhex("00000001"), 4, "version 16777216"),
        (HEAD[:4] + bytes.fromhex("00000000"), 4, "version 0"),
        (HEAD + bytes.fromhex("00000000 00000000"), 8, "term"),
        (HEAD + bytes.fromhex("ffffffff 02000000 4400"), 8, "term"),
        (HEAD + bytes.fromhex("01000000 00000000"), 12, "length"),
        (HEAD + bytes.fromhex("01000000 ffffffff"), 12, "length"),
        (HEAD + entry(1, "58 00000000"), 16, "unknown command"),
    ],
)
def test_a_wrong_log_is_refused_with_offset_and_reason(data: bytes, offset: int, reason: str) -> None:
    with pytest.raises(Version1Error, match=reason) as raised:
        v1.decode_log(data, "string")
    assert raised.value.offset == offset
    assert reason in raised.value.reason


@pytest.mark.parametrize(
    ("command", "offset"),
    [
        ("44 00000001 20", 17),
        ("44 00000100" + "6e" * 256, 17),
        ("44 00000002 6e", 21),
        ("44 ffffffff", 21),
        ("44 00000000 00", 21),
        ("45 00000000 00000000", 21),
        ("45 00000000 0000000000000000 00000002 6e", 33),
        ("45 00000000 0000000000000000 80000000", 33),
        ("51 00000000", 21),
    ],
)
def test_a_wrong_command_is_refused_at_its_offset(command: str, offset: int) -> None:
    with pytest.raises(Version1Error) as raised:
        v1.decode_log(HEAD + entry(1, command), "string")
    assert raised.value.offset == offset


# --- metadata and snapshot --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "offset"),
    [
        (lambda data: b"", 0),
        (lambda data: b"x" + data[1:], 0),
        (lambda data: data[:4] + b"\x02" + data[5:], 4),
        (lambda data: data[:6], 6),
        (lambda data: data[:16], 16),
        (lambda data: data + b"\0", 17),
        (lambda data: data[:8] + bytes(4) + data[12:], 8),
    ],
)
def test_wrong_metadata_are_refused(change: Any, offset: int) -> None:
    with pytest.raises(Version1Error) as raised:
        v1.decode_metadata(change(VECTORS["raft.metadata.term3_vote1"][0]))
    assert raised.value.offset == offset


def test_a_vote_without_its_flag_is_none() -> None:
    data, _ = VECTORS["raft.metadata.term3_vote1"]
    assert v1.decode_metadata(data[:12] + b"\0" + data[13:]).voted_for is None


def test_every_cut_of_a_snapshot_is_refused_but_those_between_queues() -> None:
    """There is no count of queues and no checksum: a file that ends after a queue looks whole."""
    data, _ = VECTORS["raft.snapshot"]
    first_queue_end = 12 + 1 + 8 + 15
    for cut, queue_count in ((12, 0), (first_queue_end, 1)):
        assert len(v1.decode_snapshot(data[:cut]).queues) == queue_count
    for cut in set(range(len(data))) - {12, first_queue_end}:
        with pytest.raises(Version1Error) as raised:
            v1.decode_snapshot(data[:cut])
        assert raised.value.offset <= cut


@pytest.mark.parametrize(
    ("tail", "offset", "reason"),
    [
        ("feffffff 01000000", 4, "not a snapshot of version 1"),
        ("00000080 01000000", 4, "not a snapshot of version 1"),
        ("00000000 ffffffff", 8, "last term"),
        ("00000000 01000000 01 20 00000000 00000000", 12, "not a queue name"),
        ("00000000 01000000 00 00000000 ffffffff", 17, "cannot stand"),
        ("00000000 01000000 00 00000000 00000001 0000000000000000 ffffffff", 33, "negative"),
        ("00000000 01000000 00 00000000 00000000 00 00000000 00000000", 21, "twice"),
    ],
)
def test_a_wrong_snapshot_is_refused(tail: str, offset: int, reason: str) -> None:
    with pytest.raises(Version1Error, match=reason) as raised:
        v1.decode_snapshot(v1.MARKER + bytes.fromhex(tail))
    assert raised.value.offset == offset


# --- what cannot be written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda: v1.encode_log(v1.Log([v1.LogEntry(0, v1.Dequeue(b""))])),
        lambda: v1.encode_log(v1.Log([v1.LogEntry(2**31, v1.Dequeue(b""))])),
        lambda: v1.encode_log(v1.Log([v1.LogEntry(1, v1.Dequeue(b"a b"))])),
        lambda: v1.encode_log(v1.Log([v1.LogEntry(1, v1.Dequeue(b"n" * 256))], "queuename")),
        lambda: v1.encode_log(v1.Log([v1.LogEntry(1, v1.Enqueue(b"", 2**63, b""))])),
        lambda: v1.encode_log(v1.Log([v1.LogEntry(1, v1.CreateQueue(b"q", -1))])),
        lambda: v1.encode_metadata(v1.Metadata(0)),
        lambda: v1.encode_metadata(v1.Metadata(1, 2**31)),
        lambda: v1.encode_snapshot(v1.Snapshot(-2, 1, [])),
        lambda: v1.encode_snapshot(v1.Snapshot(0, -1, [])),
        lambda: v1.encode_snapshot(v1.Snapshot(0, 1, [v1.SnapshotQueue(b" ")])),
        lambda: v1.encode_snapshot(v1.Snapshot(0, 1, [v1.SnapshotQueue(b"q"), v1.SnapshotQueue(b"q")])),
        lambda: v1.encode_snapshot(v1.Snapshot(0, 1, [v1.SnapshotQueue(b"q", 2**32)])),
        lambda: v1.encode_snapshot(v1.Snapshot(0, 1, [v1.SnapshotQueue(b"q", 0, [(-(2**63) - 1, b"")])])),
    ],
)
def test_what_version_1_cannot_hold_is_refused(write: Any) -> None:
    with pytest.raises(Version1Error):
        write()


# --- round trips ------------------------------------------------------------------------------------------------------

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=255).map(str.encode)
int64s = st.integers(-(2**63), 2**63 - 1)
uint32s = st.integers(0, 2**32 - 1)
terms = st.integers(1, 2**31 - 1)
commands = st.one_of(
    st.builds(v1.Enqueue, names, int64s, st.binary(max_size=100)),
    st.builds(v1.Dequeue, names),
    st.builds(v1.Count, names),
    st.builds(v1.CreateQueue, names, uint32s),
    st.builds(v1.DeleteQueue, names),
)


@given(st.lists(st.tuples(terms, commands), max_size=8), st.sampled_from(get_args(v1.NameForm)), st.integers(0, 15))
def test_log_round_trip_with_a_torn_tail(
    said: list[tuple[int, v1.LogCommand]], form: v1.NameForm, torn_bytes: int
) -> None:
    entries = [v1.LogEntry(term, command) for term, command in said]
    data = v1.encode_log(v1.Log(entries, form))
    tail = entry(1, "44 0000000000")[:torn_bytes].ljust(torn_bytes, b"\0")[:12]
    log = v1.decode_log(data + tail, form)
    assert [(entry.term, entry.command) for entry in log.entries] == said
    assert log.torn_at == (len(data) if tail else None)
    assert v1.encode_log(log) == data
    found = v1.decode_log(data + tail)
    assert found.entries == log.entries or (found.both_forms_fit and found.names == "string")


@given(terms, st.none() | st.integers(-(2**31), 2**31 - 1))
def test_metadata_round_trip(term: int, vote: int | None) -> None:
    metadata = v1.Metadata(term, vote)
    assert v1.decode_metadata(v1.encode_metadata(metadata)) == metadata


queues = st.builds(v1.SnapshotQueue, names, uint32s, st.lists(st.tuples(int64s, st.binary(max_size=50)), max_size=5))


@given(st.integers(-1, 2**31 - 1), st.integers(0, 2**31 - 1), st.lists(queues, max_size=5, unique_by=lambda q: q.name))
def test_snapshot_round_trip(last_index: int, last_term: int, state: list[v1.SnapshotQueue]) -> None:
    snapshot = v1.Snapshot(last_index, last_term, state)
    data = v1.encode_snapshot(snapshot)
    assert v1.decode_snapshot(data) == snapshot
