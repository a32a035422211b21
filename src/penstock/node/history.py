"""The life of one message, found in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from penstock.engine.errors import Refusal
from penstock.engine.journal import QUEUE_DELETED, QUEUE_PURGED, ROW, ROW_BYTES
from penstock.engine.managing import no_such_queue
from penstock.engine.views import EventView

if TYPE_CHECKING:
    from penstock.node.node import Node

_NAME = Struct("<QQ")
_NAME_OFFSET = 40
"""Where a row holds (queue, record)."""


async def history(node: Node, queue: str, record_id: int) -> list[EventView] | Refusal:
    """All events of a record, oldest first, with purges and deletions of its queue that came while it lived."""
    found = node.engine.state.by_name.get(queue)
    if found is None:
        return no_such_queue(queue)
    blocks = node.store.journal_rows(0, node.engine.state.index)
    return await asyncio.get_running_loop().run_in_executor(None, _search, blocks, found.uid, record_id)


def _search(blocks: Iterator[bytes], queue_uid: int, record_id: int) -> list[EventView]:
    events: list[EventView] = []
    covering: list[EventView] = []
    for rows in blocks:
        events += _matching(rows, _NAME.pack(queue_uid, record_id))
        covering += [
            event for event in _matching(rows, _NAME.pack(queue_uid, 0)) if event.kind in (QUEUE_PURGED, QUEUE_DELETED)
        ]
    if events:
        events += [event for event in covering if event.index >= events[0].index]
    return sorted(events, key=lambda event: (event.index, event.n, event.item))


def _matching(rows: bytes, name: bytes) -> Iterator[EventView]:
    """Rows that hold these bytes where a row holds the names of queue and record: a search at the speed of memory."""
    at = rows.find(name)
    while at >= 0:
        start = at - _NAME_OFFSET
        if start % ROW_BYTES == 0:
            (index, n, item, kind, door, reason, deliveries, time_us, owner, queue, record, key, value, *rest) = (
                ROW.unpack_from(rows, start)
            )
            other_queue, other_record = rest[:2]
            yield EventView(
                *(index, n, item, kind, door, reason, time_us, owner, queue, record),
                *(key, deliveries, value, other_queue, other_record),
            )
            at = rows.find(name, start + ROW_BYTES)
        else:
            at = rows.find(name, at + 1)
