"""The names of queues, looked up as events ask for them.

A queue's uid is the position of the command that made it (entry and number), so its first event can be looked up. A
node also knows the names of all queues that are there and of those deleted lately, and tells them at once; out of files
that would mean reading everything, so there it is the last resort, for queues that are older than what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.client.errors import HistoryGone
from penstock.engine.journal import QUEUE_CREATED
from penstock.engine.names import DEFAULT_QUEUE
from penstock.spark.source.extents import gather
from penstock.spark.source.history import History
from penstock.spark.source.rows import Rows, read_records, read_rows, run_starts
from penstock.storage.errors import EntriesGone

GONE: Final = (HistoryGone, EntriesGone)
"""What nodes and files say of entries that are no longer kept."""
_POSITION_BITS: Final = 16
"""A position is the index of an entry and, in so many bits, the number of a command in it."""


class QueueNames:
    """Names of queues by uid."""

    def __init__(self, history: History, *, is_remote: bool) -> None:
        self._history = history
        self._names: dict[int, str | None] = {0: DEFAULT_QUEUE}
        self._all_asked = False
        if is_remote:
            self._ask_all()

    def of(self, rows: Rows) -> Mapping[int, str | None]:
        """The names of all queues that these events concern; None for one whose name is not known any more."""
        unknown = [uid for uid in uids_of(rows) if uid not in self._names]
        for uid in unknown:
            self._names[uid] = self._name_at_birth(uid)
        if not self._all_asked and any(self._names[uid] is None for uid in unknown):
            self._ask_all()
        return self._names

    def _ask_all(self) -> None:
        self._names |= self._history.queue_names()
        self._all_asked = True

    def _name_at_birth(self, uid: int) -> str | None:
        index = uid >> _POSITION_BITS
        try:
            piece = next(self._history.pieces(index, index))
        except GONE:
            return None
        rows, _ = read_rows(piece)
        made = rows[(rows["kind"] == QUEUE_CREATED) & (rows["queue"] == uid)]
        wanted = np.ones(len(made), np.bool_)
        names = gather(made, "payload", wanted, read_records(piece), self._history.entries).to_pylist()
        return names[0].decode() if names else None


def uids_of(rows: Rows) -> Iterable[int]:
    """The uids that stand in these events, each once."""
    uids = rows["queue"]
    found: list[int] = pa.array(uids[run_starts(uids)]).unique().to_pylist()
    return found
