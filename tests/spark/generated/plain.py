"""The events of a data directory in the plainest way: row by row from the store, and nothing of the data source.

This is what the table `bronze.events` must hold, and what the reference is computed from where there is no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.engine import journal as j
from penstock.spark.schemas import EVENTS
from penstock.storage.store import Store
from tests.spark.generated.lives import table_of

_CONCERN_NO_QUEUE = frozenset(
    (j.BROADCAST, j.UNBOUND, j.STAGED, j.PUBLISHED, j.ABORTED, j.NEW_TERM, j.OWNER_GONE, j.OWNER_NAMED, j.UNREADABLE)
)
_HAVE_UNTIL = frozenset((j.PUT, j.RETURNED, j.EDITED, j.TAKEN, j.EXTENDED))
_HAVE_TEXT = frozenset((j.RETURNED, j.BURIED, j.DEAD_LETTERED, j.MOVED_IN, j.OWNER_NAMED))
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


def events_table(directory: Path, cluster_id: bytes, queue_names: Mapping[int, str]) -> pa.Table:
    """Every event in order, with the columns of EVENTS."""
    store, _ = Store.open(directory, row_bytes=j.ROW_BYTES, new_cluster_id=cluster_id, node_id=0)
    try:
        return table_of(EVENTS, list(_rows(store, queue_names)))
    finally:
        store.close()


def _rows(store: Store, queue_names: Mapping[int, str]) -> Iterator[tuple[object, ...]]:
    entries = {index: (term, data) for index, term, data in store.read(0, store.last_index)}
    for some in store.journal_rows(0, store.last_index):
        for row in j.ROW.iter_unpack(some):
            (index, n, item, kind, door, reason, deliveries, time_us, owner, uid, own_id, key, value, *rest) = row
            other_uid, other_id, at_index, offset, size, headers_offset, headers_size = rest
            entry = entries[at_index][1]
            payload = entry[offset : offset + size] if kind in (j.PUT, j.BROADCAST) else None
            about = entry[headers_offset : headers_offset + headers_size]
            yield (
                *(index, n, item, entries[index][0], time_us, j.KINDS[kind][0]),
                *(None if kind in _CONCERN_NO_QUEUE else queue_names.get(uid), uid, own_id, key),
                *(payload, None if payload is None else len(payload)),
                list(_decode_headers(about).items()) if kind == j.PUT and about else None,
                *((about.decode(), "tech" if value & 1 else "com") if kind == j.BROADCAST else (None, None)),
                *(j.DOORS[door], owner, deliveries, j.REASONS[reason] or None),
                *(value if kind in _HAVE_UNTIL and value else None, value, other_uid, other_id),
                entry[offset : offset + size].decode() if kind in _HAVE_TEXT and size else None,
            )
