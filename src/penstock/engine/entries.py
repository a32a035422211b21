"""Log entries: a group-commit batch of commands under one time stamp.

    entry    Int64 stamp_us, UInt32 command count, UInt32 0, then the commands
    command  Byte op, Byte door, UInt16 0, UInt32 body bytes, UInt64 owner, UInt64 producer, UInt64 request, body

Little-endian; bodies are encoded as ``commands`` says. A command is named (index, n): its entry and its position there.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

import msgspec

from penstock.engine.commands import DECODERS

ENTRY: Final = Struct("<qII")
COMMAND: Final = Struct("<BBHIQQQ")
_STAMP_BYTES: Final = 8
COMMANDS_PER_ENTRY_MAX: Final = 65_535
"""So that a position fits the 16 bits it has in a fencing token."""


class Command(msgspec.Struct, gc=False):
    """A command on its way through the log: what is asked, by whom, through which door."""

    op: int
    door: int
    owner: int
    producer: int
    request: int
    body: bytes
    args: Any
    """The body decoded; None where it cannot be."""


class Entry(msgspec.Struct):
    """Commands that are committed together, and the time at which they happen."""

    stamp_us: int
    commands: list[Command]


def encode_entry(entry: Entry) -> bytes:
    """Put an entry into bytes."""
    pack = COMMAND.pack
    parts = [ENTRY.pack(entry.stamp_us, len(entry.commands), 0)]
    for command in entry.commands:
        body = command.body
        parts.append(pack(command.op, command.door, 0, len(body), command.owner, command.producer, command.request))
        parts.append(body)
    return b"".join(parts)


def stamp_of(data: bytes) -> int | None:
    """The log time of an entry, without reading the rest of it; None where it is too short to have one."""
    return int.from_bytes(data[:_STAMP_BYTES], "little", signed=True) if len(data) >= _STAMP_BYTES else None


def decode_entry(data: bytes) -> Entry | None:
    """Read an entry back; None where its frame is not whole. A body that cannot be decoded has ``args`` None."""
    try:
        stamp_us, count, _ = ENTRY.unpack_from(data)
        commands = []
        offset = ENTRY.size
        for _ in range(count):
            op, door, _, length, owner, producer, request = COMMAND.unpack_from(data, offset)
            offset += COMMAND.size
            body = data[offset : offset + length]
            if len(body) != length:
                return None
            offset += length
            commands.append(Command(op, door, owner, producer, request, body, decode_args(op, body)))
    except error:
        return None
    return Entry(stamp_us, commands) if offset == len(data) else None


def decode_args(op: int, body: bytes) -> Any:
    """Decode a command's body; None where that cannot be done."""
    decoder = DECODERS.get(op)
    if decoder is None:
        return None
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError):  # what is wrong with the encoding, with a value, or with a text's UTF-8
        return None
