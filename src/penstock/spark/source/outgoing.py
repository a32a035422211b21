"""Rows that become messages: the columns they may have, and how an Arrow batch of them becomes items for the wire.

Columns are turned into lists by Arrow and into items by ``map``; no row is ever a tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray
from pyspark.sql import types as t

from penstock.client.stager import Puts
from penstock.engine.commands import NO_RAW, Item, Options
from penstock.spark.errors import BadOption, BadRow

COLUMNS: Final[dict[str, str]] = {
    "queue": "string: where the message goes; or the option queue says it for all rows",
    "key": "bigint or a smaller integer: its priority, smallest first; 0 if nothing is said",
    "payload": "binary or string: what it carries",
    "delay": "interval day to second, or bigint in milliseconds: it can be taken so long after its publication",
    "expires_at": "timestamp: it is dropped if it still waits then",
    "headers": "map<string,string>",
    "dedup_key": "string: a repeat within the queue's window adds nothing",
}
"""What a row may have: type and meaning. All but payload and queue may be absent; null means what absence means."""

PART_RECORDS_MAX: Final = 2_000
"""Larger parts are no faster, and the node does nothing else while it takes one."""
PART_BYTES_MAX: Final = 1024 * 1024

Columns = dict[str, pa.Array]
"""An Arrow batch by the names of its columns."""
Order = NDArray[np.int64]
"""Where in a batch each row was before it was sorted."""

_INTEGERS: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TYPES: Final[dict[str, tuple[type[t.DataType], ...]]] = {
    "queue": (t.StringType,),
    "key": _INTEGERS,
    "payload": (t.BinaryType, t.StringType),
    "delay": (t.DayTimeIntervalType, *_INTEGERS),
    "expires_at": (t.TimestampType,),
    "headers": (t.MapType,),
    "dedup_key": (t.StringType,),
}
_PLAIN: Final = frozenset({"queue", "key", "payload"})
_encode: Final = msgspec.msgpack.Encoder().encode


def check_columns(schema: t.StructType, queue: str | None) -> None:
    """Raise unless rows of this schema can become messages, all of them for ``queue`` if that is given."""
    names = schema.fieldNames()
    allowed = ", ".join(COLUMNS)
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise BadRow(f"a message has no column {field.name!r}; there are: {allowed}")
        if names.count(field.name) > 1:
            raise BadRow(f"there are several columns {field.name!r}")
        if not _fits(field):
            raise BadRow(
                f"column {field.name!r} is {field.dataType.simpleString()}; it should be {COLUMNS[field.name]}"
            )
    if "payload" not in names:
        raise BadRow(f"there is no column 'payload'; there are: {allowed}")
    if queue is None and "queue" not in names:
        raise BadOption("queue", "is missing: say where all messages go, or give each row a column 'queue'")
    if queue is not None and "queue" in names:
        raise BadOption("queue", "says where all messages go, and the rows have a column 'queue' too; drop one of them")


def _fits(field: t.StructField) -> bool:
    kind = field.dataType
    if isinstance(kind, t.MapType):
        return field.name == "headers" and all(isinstance(e, t.StringType) for e in (kind.keyType, kind.valueType))
    return isinstance(kind, _TYPES[field.name])


def by_queue(queues: pa.Array) -> tuple[list[str], list[int], Order | None]:
    """The names in a column of queues, where the rows of each end once they are sorted by it, and that order.

    Rows for one queue keep their order among themselves. The order is None where the rows lie right as they are.
    """
    encoded = queues.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return names, [len(queues)], None
    indices = encoded.indices.to_numpy()
    ends = np.cumsum(np.bincount(indices)).tolist()
    return names, ends, np.argsort(indices, kind="stable")


def to_items(columns: Columns) -> list[Item]:
    """The rows of a batch as items."""
    payloads = _listed(_as_binary(columns["payload"]))
    keys: Iterable[int] = _listed(_filled(columns["key"])) if "key" in columns else repeat(0)
    if columns.keys() <= _PLAIN:
        return list(map(Item, keys, payloads))
    return list(map(Item, keys, payloads, _options(columns, len(payloads))))


def _options(columns: Columns, count: int) -> Iterator[Options | None]:
    delays: Iterable[int] = repeat(0, count)
    expiries: Iterable[int] = repeat(0, count)
    headers: Iterable[Raw] = repeat(NO_RAW, count)
    dedup_keys: Iterable[str | None] = repeat(None, count)
    if "delay" in columns:
        delays = _listed(_filled(delay_ms(columns["delay"])))
    if "expires_at" in columns:
        moments = columns["expires_at"].cast(pa.int64())
        # 0 would mean that it never expires.
        expiries = _listed(_filled(pc.if_else(pc.less(moments, 1), 1, moments)))
    if "headers" in columns:
        headers = [Raw(_encode(each)) if each else NO_RAW for each in header_maps(columns["headers"])]
    if "dedup_key" in columns:
        dedup_keys = _listed(columns["dedup_key"])
    for delay, expires_at_us, raw, dedup_key in zip(delays, expiries, headers, dedup_keys, strict=True):
        if delay or expires_at_us or dedup_key is not None or raw is not NO_RAW:
            yield Options(delay, 0, raw, dedup_key, 0, 0, expires_at_us)
        else:
            yield None


def delay_ms(column: pa.Array) -> pa.Array:
    """A column of delays in milliseconds; what is more than nothing is at least one."""
    if not pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    delay_us = column.cast(pa.int64())
    whole = pc.divide(delay_us, 1000)
    return pc.add(whole, pc.sign(pc.subtract(delay_us, pc.multiply(whole, 1000))))


def header_maps(column: pa.MapArray) -> list[dict[str, str | None]]:
    """The headers of each row; empty where there are none."""
    names, values = _listed(column.keys), _listed(column.items)
    spans = pairwise(column.offsets.to_pylist())
    return [
        dict(zip(names[start:end], values[start:end], strict=True)) if is_there else {}
        for (start, end), is_there in zip(spans, column.is_valid().to_pylist(), strict=True)
    ]


def cut(columns: Columns, items: list[Item], names: list[str], ends: list[int]) -> Iterator[tuple[int, Puts]]:
    """The parts to send: where each begins, and its items by queue."""
    sizes = pc.binary_length(columns["payload"]).to_numpy().astype(np.int64)
    if "headers" in columns:
        sizes += np.diff(_bytes_before(columns["headers"].keys)[columns["headers"].offsets.to_numpy()])
        sizes += np.diff(_bytes_before(columns["headers"].items)[columns["headers"].offsets.to_numpy()])
    reached = np.cumsum(sizes)
    start = 0
    while start < len(items):
        room = int(reached[start] - sizes[start]) + PART_BYTES_MAX
        fit = int(np.searchsorted(reached, room, side="right"))
        end = max(start + 1, min(fit, start + PART_RECORDS_MAX))
        starts = [0, *ends[:-1]]
        yield (
            start,
            [
                (name, items[max(start, first) : min(end, last)])
                for name, first, last in zip(names, starts, ends, strict=True)
                if first < end and last > start
            ],
        )
        start = end


def _bytes_before(texts: pa.Array) -> NDArray[np.int64]:
    """How many bytes lie before each text, and after the last."""
    lengths = _filled(pc.binary_length(texts)).to_numpy().astype(np.int64)
    return np.concatenate(([0], np.cumsum(lengths)))


def _as_binary(column: pa.Array) -> pa.Array:
    """Text as its bytes, without a copy."""
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _filled(column: pa.Array) -> pa.Array:
    return column.fill_null(0) if column.null_count else column


def _listed(column: pa.Array) -> list[Any]:
    """A column as a list of Python's values, several times as fast as ``to_pylist``."""
    listed: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return listed
