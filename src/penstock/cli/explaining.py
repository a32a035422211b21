"""Log entries, events and blocks of snapshots in words, for `penstock storage inspect`.

Storage keeps them as bytes; what they mean, the engine knows.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.cli.output import preview, printable
from penstock.cli.shapes import iso, kind_name, moment_of, reason_name
from penstock.engine import commands as c
from penstock.engine import snapshot
from penstock.engine.entries import Command, decode_entry
from penstock.engine.journal import DOORS, ROW, ROW_BYTES
from penstock.storage.inspect import Explainers

_COMMANDS_SHOWN: Final = 20
_TEXT_CHARACTERS_MAX: Final = 200
_BLOCK_NAMES: Final = {
    snapshot.HEAD: "head",
    snapshot.QUEUE: "queue",
    snapshot.RECORDS: "records",
    snapshot.BODY: "shared body",
    snapshot.DEDUP: "deduplication keys",
    snapshot.PRODUCER: "producer",
    snapshot.STAGED: "staged",
    snapshot.PUBLISHED: "published",
    snapshot.BINDING: "binding",
    snapshot.JOB: "job",
    snapshot.OWNER_NAMES: "names of connections",
    snapshot.OWNERS_GONE: "connections that ended",
}


def explain_entry(data: bytes) -> str:
    """A log entry: its time, and its commands."""
    entry = decode_entry(data)
    if entry is None:
        return f"unreadable: {preview(data)}"
    told = [_explain_command(command) for command in entry.commands[:_COMMANDS_SHOWN]]
    more = len(entry.commands) - len(told)
    return f"at {iso(moment_of(entry.stamp_us))} " + "; ".join(told) + (f"; and {more} more" if more else "")


def _explain_command(command: Command) -> str:
    kind = c.TYPES.get(command.op)
    name = kind.__name__ if kind is not None else f"operation {command.op}"
    door = DOORS.get(command.door, str(command.door))
    if command.args is None:
        return f"{name} by {door}, unreadable"
    fields = msgspec.structs.asdict(command.args)
    told = ", ".join(f"{field}={_shortened(value)}" for field, value in fields.items())
    return f"{name}({told}) by {door}"


def explain_row(data: bytes) -> str:
    """An event, or how many there are."""
    if len(data) != ROW_BYTES:
        return f"{len(data) // ROW_BYTES} events"
    (_, n, item, kind, door, reason, deliveries, time_us, owner, queue, record, key, value, *rest) = ROW.unpack(data)
    other_queue, other_record = rest[:2]
    parts = [
        f"{iso(moment_of(time_us))} {kind_name(kind)}",
        f"n={n} item={item} by {DOORS.get(door, str(door))} owner={owner}",
        f"queue={queue} record={record} key={key} deliveries={deliveries} value={value}",
    ]
    if other_record:
        parts.append(f"other={other_queue}/{other_record}")
    if reason:
        parts.append(f"reason={reason_name(reason)}")
    return " ".join(parts)


def explain_block(data: bytes) -> str:
    """A block of a snapshot: what it is, and what it begins with."""
    try:
        values = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError):  # not MessagePack, or a text that is no UTF-8
        return f"unreadable: {preview(data)}"
    if not isinstance(values, list) or not values or values[0] not in _BLOCK_NAMES:
        return f"unknown: {_shortened(values)}"
    kind, *rest = values
    if kind == snapshot.RECORDS and len(rest) == 2 and isinstance(rest[1], list):
        return f"records of queue {rest[0]}: {len(rest[1])}"
    return f"{_BLOCK_NAMES[kind]} " + " ".join(map(_shortened, rest))


def _shortened(value: Any) -> str:
    if isinstance(value, list) and len(value) > 3:
        return f"[{len(value)} items]"
    text = preview(value) if isinstance(value, bytes) else printable(repr(value))
    return text if len(text) <= _TEXT_CHARACTERS_MAX else f"{text[:_TEXT_CHARACTERS_MAX]}..."


EXPLAINERS: Final = Explainers(entry=explain_entry, row=explain_row, block=explain_block)
