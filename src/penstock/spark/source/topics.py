"""The table `topics`: MoniQue messages, taken apart.

Every broadcast is a message with a tag (`type:spec:id:pid:creator`) and a body. The tag rules over the body: its fields
come from the tag, and from the body only where the tag is none. What is not MoniQue's is a row as well, with what can
be told of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.spark.schemas import TOPICS, arrow_schema, ddl
from penstock.wire.monique.bodies import Body, decode_body
from penstock.wire.monique.errors import MoniqueError
from penstock.wire.monique.tags import Tag, parse_tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_COLUMNS: Final = ("index", "n", "item", "time", "channel", "tag", "payload", "door", "owner")
"""The columns of `events` that are needed."""

_KEPT: Final = ("index", "n", "item", "time", "channel", "tag", "door", "owner")
_US_PER_MS: Final = 1_000
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS


def parse(events: DataFrame) -> DataFrame:
    """The broadcasts among events, as rows of `topics`."""
    broadcasts = events.where("kind = 'broadcast'").select(*EVENT_COLUMNS)
    return broadcasts.mapInArrow(_parse_batches, ddl(TOPICS))


def _parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return map(parse_batch, batches)


def parse_batch(events: pa.RecordBatch) -> pa.RecordBatch:
    """Broadcasts with ``EVENT_COLUMNS`` as rows of `topics`."""
    found = [
        _parse(*each) for each in zip(*(events.column(name).to_pylist() for name in ("tag", "payload")), strict=True)
    ]
    columns: dict[str, Any] = {name: events.column(name) for name in _KEPT}
    schema = arrow_schema(TOPICS)
    for field in schema:
        if field.name not in columns:
            columns[field.name] = pa.array([each[field.name] for each in found], field.type)
    return pa.RecordBatch.from_arrays([columns[name] for name in TOPICS], schema=schema)


def _parse(text: str | None, payload: bytes | None) -> dict[str, Any]:
    body = _read_body(payload)
    tag = _read_tag(text) or (body.tag if body is not None else None)
    return {
        "type": tag.type if tag else None,
        "spec": tag.spec if tag else None,
        "id": tag.id if tag else None,
        "pid": (tag.pid or None) if tag else None,
        "creator": tag.creator if tag else None,
        "created_at": _time(body.created_at_ms) if body else None,
        "expires_at": _time(body.expires_at_ms) if body and body.expires_at_ms > 0 else None,
        "encoding": body.encoding if body else None,
        "data": body.data if body else None,
        "readable": body is not None,
    }


def _read_tag(text: str | None) -> Tag | None:
    try:
        return None if text is None else parse_tag(text.encode())
    except MoniqueError:
        return None


def _read_body(payload: bytes | None) -> Body | None:
    try:
        return None if payload is None else decode_body(payload)
    except MoniqueError:
        return None


def _time(moment_ms: int) -> int | None:
    """As microseconds; None where a column has no room for it."""
    return moment_ms * _US_PER_MS if abs(moment_ms) <= _MS_MAX else None
