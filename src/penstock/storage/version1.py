"""Version 1 of `raft.log`, `raft.metadata` and `raft.snapshot`: bytes in, values out, and back.

What belongs here: the layout of these three files as the original system wrote them, for import and export. No file is
opened here, and nothing is said about what the commands do.

    raft.log       marker, Int32 version 1, then to the end: Int32 term, Int32 length, command
    raft.metadata  marker, Int32 version 1, Int32 term, Bool has a vote, Int32 vote
    raft.snapshot  marker, Int32 last index, Int32 last term, then to the end: QueueName, UInt32 largest size,
                   UInt32 size, size × (Int64 key, Int32 length, payload)

The marker and the Int32 of headers and framing are little-endian; commands and the queues of a snapshot are big-endian.

A command in the log is 'E' name Int64 Buffer, 'D' name, 'C' name, 'Q' name UInt32, or 'R' name. Two forms of names
exist: a String (Int32 length), as the commands were specified, and a QueueName (Byte length), as a later program
wrote them. One file has one form; `decode_log` finds out which, and takes String where both fit.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Literal, TypeAlias

import msgspec

from penstock.wire.taskflux.errors import MalformedBody, ProtocolError
from penstock.wire.taskflux.fields import INT64, Reader, valid_queue_name, write_buffer, write_queue_name

MARKER: Final = bytes.fromhex("2f0f6f2f")
"""First bytes of all three files."""

VERSION: Final = 1
"""The version that is read and written here."""

INDEX_NONE: Final = -1
"""Last index of a snapshot that covers no entry; nothing below it occurs."""

UNLIMITED: Final = 0
"""Largest size of a queue without a limit."""

NameForm: TypeAlias = Literal["string", "queuename"]
"""How queue names are written in the commands of a log."""

_INT32: Final = Struct("<i")
_PAIR: Final = Struct("<ii")
_METADATA: Final = Struct("<4siiBi")
_SNAPSHOT_HEAD: Final = Struct("<4sii")
_QUEUE_FIGURES: Final = Struct(">II")
_ITEM_HEAD: Final = Struct(">qi")
_UINT32: Final = Struct(">I")

_LOG_HEAD_BYTES: Final = 8
_INT32_MAX: Final = 2**31 - 1
_UINT32_MAX: Final = 2**32 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class Version1Error(ValueError):
    """A file of version 1 cannot be read or written: why, and at which offset of the file."""

    code: Final = "version1-format"

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at offset {offset})")
        self.reason = reason
        self.offset = offset


# --- the values -------------------------------------------------------------------------------------------------------


class Enqueue(msgspec.Struct, gc=False):
    """Put a record."""

    queue: bytes
    key: int
    payload: bytes


class Dequeue(msgspec.Struct, gc=False):
    """Remove the head of the queue, whichever record that is at this point of the log."""

    queue: bytes


class Count(msgspec.Struct, gc=False):
    """Changes nothing; the specification allows it in the log, the original program never wrote it."""

    queue: bytes


class CreateQueue(msgspec.Struct, gc=False):
    """Create a queue; a largest size of UNLIMITED is no limit."""

    queue: bytes
    queue_size_max: int = UNLIMITED


class DeleteQueue(msgspec.Struct, gc=False):
    """Delete a queue."""

    queue: bytes


LogCommand: TypeAlias = Enqueue | Dequeue | Count | CreateQueue | DeleteQueue
"""What an entry of the log can hold."""


class LogEntry(msgspec.Struct, gc=False):
    """One entry of raft.log; its index is its position. `offset` is where it stands in the file, and is not written."""

    term: int
    command: LogCommand
    offset: int = 0


class Log(msgspec.Struct, gc=False):
    """What raft.log holds."""

    entries: list[LogEntry]
    names: NameForm = "string"
    """The form of names that was found."""
    both_forms_fit: bool = False
    """True if the entries could be read in either form, so that `names` is a choice and not a finding."""
    torn_at: int | None = None
    """Where an incomplete last entry begins, if there is one; everything before it is whole."""


class Metadata(msgspec.Struct, gc=False):
    """What raft.metadata holds."""

    term: int = 1
    voted_for: int | None = None


class SnapshotQueue(msgspec.Struct, gc=False):
    """One queue of a snapshot; the order of its items says nothing."""

    name: bytes
    queue_size_max: int = UNLIMITED
    items: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Key and payload of each record."""


class Snapshot(msgspec.Struct, gc=False):
    """What raft.snapshot holds."""

    last_index: int
    last_term: int
    queues: list[SnapshotQueue]


# --- raft.log ---------------------------------------------------------------------------------------------------------


def decode_log(data: bytes, names: NameForm | None = None) -> Log:
    """Read raft.log, with names in the form `names`, or in the form that all entries have.

    An empty file is an empty log, as the original program has it. A last entry that ends too early is not an error:
    see `Log.torn_at`.
    """
    if not data:
        return Log([], names or "string", names is None)
    _check_marker_and_version(data)
    frames, torn_at = _cut_entries(data)
    if names is not None:
        return Log(_decode_entries(data, frames, names), names, False, torn_at)
    as_strings = _try_entries(data, frames, "string")
    as_queue_names = _try_entries(data, frames, "queuename")
    if not isinstance(as_strings, Version1Error):
        return Log(as_strings, "string", not isinstance(as_queue_names, Version1Error), torn_at)
    if not isinstance(as_queue_names, Version1Error):
        return Log(as_queue_names, "queuename", False, torn_at)
    raise Version1Error(
        f"the commands fit neither form of names: as String {as_strings}, as QueueName {as_queue_names}",
        max(as_strings.offset, as_queue_names.offset),
    )


def encode_log(log: Log) -> bytes:
    """Write raft.log; `torn_at`, `both_forms_fit` and the offsets of the entries are of no concern."""
    parts = [MARKER, _INT32.pack(VERSION)]
    offset = _LOG_HEAD_BYTES
    for entry in log.entries:
        _check_range("term", entry.term, 1, _INT32_MAX, offset)
        command = _encode_command(entry.command, log.names, offset)
        parts += (_PAIR.pack(entry.term, len(command)), command)
        offset += 8 + len(command)
    return b"".join(parts)


def _cut_entries(data: bytes) -> tuple[list[tuple[int, int, int]], int | None]:
    """Term, offset and end of each whole entry, and where a torn one begins."""
    frames: list[tuple[int, int, int]] = []
    offset = _LOG_HEAD_BYTES
    while offset < len(data):
        if len(data) - offset < 8:
            return frames, offset
        term, length = _PAIR.unpack_from(data, offset)
        if term < 1:
            raise Version1Error(f"the term of entry {len(frames)} is {term}, terms start at 1", offset)
        if length < 1:
            raise Version1Error(f"the length of entry {len(frames)} is {length}", offset + 4)
        end = offset + 8 + length
        if end > len(data):
            return frames, offset
        frames.append((term, offset, end))
        offset = end
    return frames, None


def _try_entries(data: bytes, frames: list[tuple[int, int, int]], names: NameForm) -> list[LogEntry] | Version1Error:
    try:
        return _decode_entries(data, frames, names)
    except Version1Error as error:
        return error


def _decode_entries(data: bytes, frames: list[tuple[int, int, int]], names: NameForm) -> list[LogEntry]:
    return [LogEntry(term, _decode_command(data, start + 8, end, names), start) for term, start, end in frames]


def _decode_command(data: bytes, start: int, end: int, names: NameForm) -> LogCommand:
    reader = Reader(data, start, end)
    try:
        code = reader.byte("command")
        queue = _read_name(reader, names)
        command: LogCommand
        match code:
            case 0x45:  # 'E'
                command = Enqueue(queue, reader.int64("key"), reader.buffer(_INT32_MAX, "payload"))
            case 0x44:  # 'D'
                command = Dequeue(queue)
            case 0x43:  # 'C'
                command = Count(queue)
            case 0x51:  # 'Q'
                command = CreateQueue(queue, reader.uint32("largest size"))
            case 0x52:  # 'R'
                command = DeleteQueue(queue)
            case _:
                raise Version1Error(f"unknown command 0x{code:02x}", start)
        reader.finish()
    except ProtocolError as error:
        raise _as_version1_error(error, reader) from None
    return command


def _read_name(reader: Reader, names: NameForm) -> bytes:
    start = reader.offset
    name = reader.queue_name() if names == "queuename" else reader.buffer(_INT32_MAX, "queue name")
    _check_name(name, start)
    return name


def _encode_command(command: LogCommand, names: NameForm, offset: int) -> bytes:
    _check_name(command.queue, offset)
    name = write_queue_name(command.queue) if names == "queuename" else write_buffer(command.queue)
    match command:
        case Enqueue():
            _check_range("key", command.key, _INT64_MIN, _INT64_MAX, offset)
            return b"E" + name + INT64.pack(command.key) + write_buffer(command.payload)
        case Dequeue():
            return b"D" + name
        case Count():
            return b"C" + name
        case CreateQueue():
            _check_range("largest size", command.queue_size_max, 0, _UINT32_MAX, offset)
            return b"Q" + name + _UINT32.pack(command.queue_size_max)
        case DeleteQueue():
            return b"R" + name


# --- raft.metadata ----------------------------------------------------------------------------------------------------


def decode_metadata(data: bytes) -> Metadata:
    """Read raft.metadata."""
    _check_marker_and_version(data)
    if len(data) != _METADATA.size:
        reason = f"the file has {len(data)} bytes, not {_METADATA.size}"
        raise Version1Error(reason, min(len(data), _METADATA.size))
    _marker, _version, term, has_vote, vote = _METADATA.unpack(data)
    if term < 1:
        raise Version1Error(f"the term is {term}, terms start at 1", 8)
    return Metadata(term, vote if has_vote else None)


def encode_metadata(metadata: Metadata) -> bytes:
    """Write raft.metadata."""
    _check_range("term", metadata.term, 1, _INT32_MAX, 8)
    vote = 0 if metadata.voted_for is None else metadata.voted_for
    _check_range("vote", vote, -_INT32_MAX - 1, _INT32_MAX, 13)
    return _METADATA.pack(MARKER, VERSION, metadata.term, metadata.voted_for is not None, vote)


# --- raft.snapshot ----------------------------------------------------------------------------------------------------


def decode_snapshot(data: bytes) -> Snapshot:
    """Read raft.snapshot."""
    _check_marker(data)
    if len(data) < _SNAPSHOT_HEAD.size:
        raise Version1Error(f"the file ends inside its header of {_SNAPSHOT_HEAD.size} bytes", len(data))
    _marker, last_index, last_term = _SNAPSHOT_HEAD.unpack_from(data)
    if last_index < INDEX_NONE:
        raise Version1Error(f"last index {last_index}: this is not a snapshot of version 1", 4)
    if last_term < 0:
        raise Version1Error(f"the last term is {last_term}", 8)
    reader = Reader(data, _SNAPSHOT_HEAD.size)
    queues: list[SnapshotQueue] = []
    seen: set[bytes] = set()
    while reader.remaining_bytes:
        start = reader.offset
        try:
            queue = _read_queue(reader)
        except ProtocolError as error:
            raise _as_version1_error(error, reader) from None
        if queue.name in seen:
            raise Version1Error(f"queue {queue.name.decode()!r} comes twice", start)
        seen.add(queue.name)
        queues.append(queue)
    return Snapshot(last_index, last_term, queues)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Write raft.snapshot."""
    _check_range("last index", snapshot.last_index, INDEX_NONE, _INT32_MAX, 4)
    _check_range("last term", snapshot.last_term, 0, _INT32_MAX, 8)
    parts = [_SNAPSHOT_HEAD.pack(MARKER, snapshot.last_index, snapshot.last_term)]
    offset = _SNAPSHOT_HEAD.size
    seen: set[bytes] = set()
    for queue in snapshot.queues:
        _check_name(queue.name, offset)
        _check_range("largest size", queue.queue_size_max, 0, _UINT32_MAX, offset)
        if queue.name in seen:
            raise Version1Error(f"queue {queue.name.decode()!r} comes twice", offset)
        seen.add(queue.name)
        first_part = len(parts)
        parts += (write_queue_name(queue.name), _QUEUE_FIGURES.pack(queue.queue_size_max, len(queue.items)))
        for key, payload in queue.items:
            _check_range("key", key, _INT64_MIN, _INT64_MAX, offset)
            parts += (_ITEM_HEAD.pack(key, len(payload)), payload)
        offset += sum(map(len, parts[first_part:]))
    return b"".join(parts)


def _read_queue(reader: Reader) -> SnapshotQueue:
    start = reader.offset
    name = reader.queue_name()
    _check_name(name, start)
    queue_size_max = reader.uint32("largest size")
    size = reader.uint32("size")
    # An item has at least 12 bytes: a size that cannot be true is refused before the loop.
    if size * _ITEM_HEAD.size > reader.remaining_bytes:
        raise Version1Error(f"{size} items cannot stand in {reader.remaining_bytes} bytes", reader.offset - 4)
    items = [(reader.int64("key"), reader.buffer(_INT32_MAX, "payload")) for _ in range(size)]
    return SnapshotQueue(name, queue_size_max, items)


# --- common -----------------------------------------------------------------------------------------------------------


def _as_version1_error(error: ProtocolError, reader: Reader) -> Version1Error:
    """What the reader found wrong, as an error of this file; it stands at the offset that the reader had reached."""
    if isinstance(error, MalformedBody):
        return Version1Error(error.reason, error.offset)
    return Version1Error(str(error), reader.offset)


def _check_marker(data: bytes) -> None:
    if data[: len(MARKER)] != MARKER:
        found = data[: len(MARKER)].hex() or "nothing"
        raise Version1Error(f"the file begins with {found}, not with the marker {MARKER.hex()}", 0)


def _check_marker_and_version(data: bytes) -> None:
    _check_marker(data)
    if len(data) < _LOG_HEAD_BYTES:
        raise Version1Error(f"the file ends inside its header of {_LOG_HEAD_BYTES} bytes", len(data))
    version: int = _INT32.unpack_from(data, len(MARKER))[0]
    if version != VERSION:
        raise Version1Error(f"the file has version {version}, not {VERSION}", len(MARKER))


def _check_name(name: bytes, offset: int) -> None:
    if not valid_queue_name(name):
        shown = name[:40].decode("ascii", "backslashreplace")
        raise Version1Error(f"{shown!r} is not a queue name", offset)


def _check_range(what: str, value: int, value_min: int, value_max: int, offset: int) -> None:
    if not value_min <= value <= value_max:
        raise Version1Error(f"{what} {value} does not lie in {value_min}..{value_max}", offset)
