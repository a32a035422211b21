"""From pieces of the history to Arrow: the columns of the table `events`, whole columns at a time.

Only the columns that are asked for are built. Payload, headers, tag, text and term need the log beside the journal;
without one of them a piece may come without its log (``needs_log``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine import journal as j
from penstock.spark.schemas import EVENTS, arrow_schema
from penstock.spark.source.extents import Fetch, gather
from penstock.spark.source.rows import Records, Rows, read_records, read_rows, run_starts
from penstock.wire.monique.errors import TagError
from penstock.wire.monique.tags import unpack_tag_frame
from penstock.wire.native.messages import JournalPiece

BATCH_ROWS_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""A batch has no more bytes of payloads and headers than this, but at least one row. Arrow's offsets end at 2 GiB."""

Names = Mapping[int, str | None]
"""Names of queues by uid."""

_TECH: Final = 1
"""The bit in the channel of a broadcast that tells tech from com."""
_NEED_LOG: Final = frozenset(("term", "payload", "headers", "tag", "text"))
_decode_headers: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


def _mask(*kinds: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(256, np.bool_)
    mask[list(kinds)] = True
    return mask


def _names(known: Mapping[int, str], what: str) -> pa.Array:
    """A name for each number that a byte can hold."""
    return pa.array([known.get(number, f"{what} {number}") or None for number in range(256)], pa.string())


_KINDS: Final = _names({number: name for number, (name, _) in j.KINDS.items()}, "kind")
_DOORS: Final = _names(j.DOORS, "door")
_REASONS: Final = _names(j.REASONS, "reason")
_BRINGS_PAYLOAD: Final = _mask(j.PUT, j.BROADCAST)
_HAS_TEXT: Final = _mask(*j.TEXT_KINDS, j.OWNER_NAMED)
_HAS_UNTIL: Final = _mask(j.PUT, j.RETURNED, j.EDITED, j.TAKEN, j.EXTENDED)
# The uid of the default queue is 0, as is that of no queue: which one is meant, the kind tells.
_CONCERNS_NO_QUEUE: Final = _mask(
    j.BROADCAST, j.UNBOUND, j.STAGED, j.PUBLISHED, j.ABORTED, j.NEW_TERM, j.OWNER_GONE, j.OWNER_NAMED, j.UNREADABLE
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events are wanted; None: all."""

    queues: frozenset[str] | None = None
    kinds: frozenset[int] | None = None


EVERYTHING: Final = Filter()


def needs_log(columns: Collection[str]) -> bool:
    """Whether one of these columns comes from the log."""
    return not _NEED_LOG.isdisjoint(columns)


def decode_piece(piece: JournalPiece, names: Names, columns: Sequence[str], fetch: Fetch) -> pa.RecordBatch:
    """All events of a piece as one batch with these columns of ``EVENTS``.

    ``names`` are those of queues by uid; ``fetch`` gives single entries of the log, for events that refer to older
    ones.
    """
    rows, _ = read_rows(piece)
    return _Part(rows, read_records(piece), names, fetch).batch(columns)


def decode_batches(
    piece: JournalPiece,
    rows: Rows,
    names: Names,
    columns: Sequence[str],
    fetch: Fetch,
    only: Filter = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """The events that are wanted of a piece (``read_rows``), in batches of bounded size."""
    records = read_records(piece)
    for part in _split(_choose(rows, names, only)):
        yield _Part(part, records, names, fetch).batch(columns)


def _choose(rows: Rows, names: Names, only: Filter) -> Rows:
    if only.kinds is not None:
        rows = rows[_mask(*only.kinds)[rows["kind"]]]
    if only.queues is not None:
        chosen = np.isin(rows["queue"], [uid for uid, name in names.items() if name in only.queues])
        rows = rows[chosen & ~_CONCERNS_NO_QUEUE[rows["kind"]]]
    return rows


def _split(rows: Rows) -> Iterator[Rows]:
    ends = np.cumsum(rows["payload_bytes"].astype(np.int64) + rows["headers_bytes"])
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + BATCH_BYTES_MAX, "right"))
        end = min(max(end, start + 1), start + BATCH_ROWS_MAX)
        yield rows[start:end]
        start = end


@dataclass(slots=True)
class _Part:
    """Events that become one batch, and what their columns are made from."""

    rows: Rows
    records: Records | None
    names: Names
    fetch: Fetch
    kinds: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = np.ascontiguousarray(self.rows["kind"])

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns, in this order."""
        schema = arrow_schema({name: EVENTS[name] for name in columns})
        return pa.RecordBatch.from_arrays([_COLUMNS[name](self) for name in columns], schema=schema)

    def number(self, name: str, null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.array(np.ascontiguousarray(self.rows[name]), mask=null)

    def time(self, name: str, null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        return self.number(name, null).view(pa.timestamp("us", "UTC"))

    def until(self) -> pa.Array:
        return self.time("value", ~_HAS_UNTIL[self.kinds] | (self.rows["value"] == 0))

    def term(self) -> pa.Array:
        assert self.records is not None
        return pa.array(self.records.terms[self.rows["index"] - self.records.first_index])

    def queue(self) -> pa.Array:
        uids = np.ascontiguousarray(self.rows["queue"])
        starts = run_starts(uids)
        runs = pa.array(uids[starts]).dictionary_encode()
        names = pa.array([self.names.get(uid) for uid in runs.dictionary.to_pylist()], pa.string())
        places = np.repeat(runs.indices.to_numpy(), np.diff(starts, append=len(uids)))
        return names.take(pa.array(places, mask=_CONCERNS_NO_QUEUE[self.kinds]))

    def payload(self) -> pa.Array:
        return gather(self.rows, "payload", _BRINGS_PAYLOAD[self.kinds], self.records, self.fetch)

    def payload_bytes(self) -> pa.Array:
        return self.number("payload_bytes", ~_BRINGS_PAYLOAD[self.kinds]).cast(pa.int32())

    def headers(self) -> pa.Array:
        kind = pa.map_(pa.string(), pa.string())
        there = (self.kinds == j.PUT) & (self.rows["headers_bytes"] > 0)
        if not there.any():
            return pa.nulls(len(self.rows), kind)
        packed = gather(self.rows[there], "headers", np.ones(int(there.sum()), np.bool_), self.records, self.fetch)
        values = pa.array([_read_headers(value) for value in packed.to_pylist()], kind)
        return values.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def tag(self) -> pa.Array:
        tags = gather(self.rows, "headers", self.kinds == j.BROADCAST, self.records, self.fetch)
        try:
            return tags.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_read_tag(tag) for tag in tags.to_pylist()], pa.string())

    def text(self) -> pa.Array:
        there = _HAS_TEXT[self.kinds] & (self.rows["payload_bytes"] > 0)
        if not there.any():
            return pa.nulls(len(self.rows), pa.string())
        texts = gather(self.rows, "payload", there, self.records, self.fetch)
        try:
            return texts.cast(pa.string())
        except pa.ArrowInvalid:  # no engine of ours names half of a character
            return pa.array([text and text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())

    def channel(self) -> pa.Array:
        channels = pa.array(["com", "tech"], pa.string())
        return channels.take(pa.array(self.rows["value"] & _TECH, mask=self.kinds != j.BROADCAST))


def _read_headers(packed: bytes | None) -> list[tuple[str, str]] | None:
    try:
        return None if packed is None else list(_decode_headers(packed).items())
    except (msgspec.DecodeError, RecursionError):
        return None


def _read_tag(tag: bytes | None) -> str | None:
    """A tag as text: one that was packed, as legacy components do, is unpacked; what is no text is marked as such."""
    if tag is None:
        return None
    with suppress(TagError):
        tag, _ = unpack_tag_frame(tag)
    return tag.decode("utf-8", "replace")


_COLUMNS: Final[dict[str, Callable[[_Part], pa.Array]]] = {
    "index": lambda part: part.number("index"),
    "n": lambda part: part.number("n"),
    "item": lambda part: part.number("item"),
    "term": _Part.term,
    "time": lambda part: part.time("time_us"),
    "kind": lambda part: _KINDS.take(pa.array(part.kinds)),
    "queue": _Part.queue,
    "queue_uid": lambda part: part.number("queue"),
    "id": lambda part: part.number("record"),
    "key": lambda part: part.number("key"),
    "payload": _Part.payload,
    "payload_bytes": _Part.payload_bytes,
    "headers": _Part.headers,
    "tag": _Part.tag,
    "channel": _Part.channel,
    "door": lambda part: _DOORS.take(part.number("door")),
    "owner": lambda part: part.number("owner"),
    "deliveries": lambda part: part.number("deliveries"),
    "reason": lambda part: _REASONS.take(part.number("reason")),
    "until": _Part.until,
    "value": lambda part: part.number("value"),
    "other_queue_uid": lambda part: part.number("other_queue"),
    "other_id": lambda part: part.number("other_record"),
    "text": _Part.text,
}
