"""The life of one message, found in the journal.

The journal is read once, from its beginning, in slices: each is one turn among the readers of the history
(``Feeding.in_turn``), so a search neither holds up other readers nor the doors, and it ends with the slice under way
when its client goes. What is kept meanwhile is bounded: the last events of the message, and where the names of
connections lie that have not ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.engine.errors import Refusal
from penstock.engine.journal import (
    NEW_TERM,
    OWNER_GONE,
    OWNER_NAMED,
    QUEUE_DELETED,
    QUEUE_PURGED,
    ROW,
    ROW_BYTES,
    TEXT_KINDS,
)
from penstock.engine.managing import no_such_queue
from penstock.engine.owners import OWNER_NAMES_MAX
from penstock.engine.views import EventView

if TYPE_CHECKING:
    from penstock.node.node import Node

EVENTS_MAX: Final = 10_000
"""Events that are told of one message: the last ones."""
TEXTS_MAX: Final = 100
"""Texts of failures, and names of connections, that are read out of the log for one message: the last ones, since each
costs reading an entry."""
SLICE_BYTES: Final = 4 * 1024 * 1024
"""The rows that are searched in one turn, and at least one block of the journal."""

_NAME: Final = Struct("<QQ")
_NAME_OFFSET: Final = 40
"""Where a row holds (queue, record)."""
_KIND_OFFSET: Final = 16

Place = tuple[int, int, int]
"""Where a text lies: entry, offset, length."""
ReadEntry = Callable[[int], bytes | None]


async def history(node: Node, queue: str, record_id: int) -> list[EventView] | Refusal:
    """The events of a record, oldest first, with purges and deletions of its queue that came while it lived."""
    found = node.engine.state.by_name.get(queue)
    if found is None:
        return no_such_queue(queue)
    search = Search(found.uid, record_id)
    blocks = node.store.journal_rows(0, node.engine.state.index)
    in_turn = node.feeding.in_turn
    while await in_turn(lambda: search.look_through(blocks)):
        pass
    read = node.store.entries()
    for complete in search.completions(read):
        await in_turn(complete)
    return list(search.events)


class Search:
    """What was found of one message so far."""

    def __init__(self, queue_uid: int, record_id: int) -> None:
        self.events: deque[EventView] = deque(maxlen=EVENTS_MAX)
        self._record = _NAME.pack(queue_uid, record_id)
        self._queue = _NAME.pack(queue_uid, 0)
        self._texts: deque[tuple[EventView, Place]] = deque(maxlen=TEXTS_MAX)
        self._names: dict[int, Place] = {}
        """Where the names of connections lie that live at this point of the journal."""
        self._named: dict[int, Place] = {}
        """The same of those that did something to the message; the last ones."""

    def look_through(self, blocks: Iterator[bytes]) -> bool:
        """Search some blocks; false when none are left."""
        room_bytes = SLICE_BYTES
        for rows in blocks:
            self._look_at(rows)
            room_bytes -= len(rows)
            if room_bytes <= 0:
                return True
        return False

    def _look_at(self, rows: bytes) -> None:
        covering = [at for at in _places(rows, self._queue) if rows[at + _KIND_OFFSET] in (QUEUE_PURGED, QUEUE_DELETED)]
        own = set(_places(rows, self._record))
        kinds = rows[_KIND_OFFSET::ROW_BYTES]
        changes = {at for kind in (OWNER_NAMED, OWNER_GONE, NEW_TERM) for at in _of_kind(kinds, kind)}
        for at in sorted({*own, *covering, *changes}):
            if at in changes:
                self._change_names(ROW.unpack_from(rows, at))
            if at in own or (at not in changes and self.events):
                self._add(ROW.unpack_from(rows, at))

    def _change_names(self, row: tuple[int, ...]) -> None:
        kind, owner, place = row[3], row[8], (row[15], row[16], row[17])
        if kind == OWNER_GONE:
            self._names.pop(owner, None)
        elif kind == NEW_TERM:
            self._names.clear()  # no connection lives longer than its term
        elif place[2]:
            if len(self._names) >= OWNER_NAMES_MAX:
                del self._names[next(iter(self._names))]
            self._names[owner] = place

    def _add(self, row: tuple[int, ...]) -> None:
        (index, n, item, kind, door, reason, deliveries, time_us, owner, queue, record, key, value, *rest) = row
        other_queue, other_record, at_index, offset, size = rest[:5]
        event = EventView(
            *(index, n, item, kind, door, reason, time_us, owner, queue, record),
            *(key, deliveries, value, other_queue, other_record),
        )
        self.events.append(event)
        if kind in TEXT_KINDS and size:
            self._texts.append((event, (at_index, offset, size)))
        name = self._names.get(owner)
        if name is not None:
            self._named.pop(owner, None)
            self._named[owner] = name
            if len(self._named) > TEXTS_MAX:
                del self._named[next(iter(self._named))]

    def completions(self, read: ReadEntry) -> Iterator[Callable[[], None]]:
        """Work that adds the texts and names to the events, an entry at a time."""
        for event, place in self._texts:
            yield partial(_tell_text, event, read, place)
        for owner, place in self._named.items():
            yield partial(self._tell_name, owner, read, place)

    def _tell_name(self, owner: int, read: ReadEntry, place: Place) -> None:
        name = _text(read, place)
        for event in self.events:
            if event.owner == owner:
                event.owner_name = name


def _tell_text(event: EventView, read: ReadEntry, place: Place) -> None:
    event.text = _text(read, place)


def _text(read: ReadEntry, place: Place) -> str:
    index, offset, size = place
    return (read(index) or b"")[offset : offset + size].decode("utf-8", "replace")


def _places(rows: bytes, name: bytes) -> Iterator[int]:
    """Where rows begin that hold these bytes as the names of queue and record: a search at the speed of memory."""
    at = rows.find(name)
    while at >= 0:
        start = at - _NAME_OFFSET
        if start % ROW_BYTES == 0:
            yield start
            at = rows.find(name, start + ROW_BYTES)
        else:
            at = rows.find(name, at + 1)


def _of_kind(kinds: bytes, kind: int) -> Iterator[int]:
    """Where rows of a kind begin, by the kinds of all rows."""
    at = kinds.find(kind)
    while at >= 0:
        yield at * ROW_BYTES
        at = kinds.find(kind, at + 1)
