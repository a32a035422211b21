"""Deduplication by keys that users give, per queue.

A key is remembered for the queue's window from its put, also after the record ended. Entries end in the order in which
they came, so they lie in blocks that only grow at one end and shrink at the other: a snapshot takes references to the
blocks and need not copy them.
"""

from __future__ import annotations

from penstock.engine.memory import text_bytes
from penstock.engine.timers import DEDUP_END, Timers

_BLOCK_BITS = 10
# Which block an entry goes into follows from its record's id alone, not from where counting began: a node that started
# from a snapshot must write the same blocks as one that never stopped.
DedupEntry = tuple[int, str, int]
"""expires_us, key, record id"""


class DedupKeys:
    """The keys that a queue remembers."""

    __slots__ = ("_blocks", "_head", "ids", "key_bytes")

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.key_bytes = 0
        """What the texts of the keys cost in memory."""
        self._blocks: list[list[DedupEntry]] = []
        self._head = 0

    def remember(self, key: str, record_id: int, expires_us: int, queue_uid: int, timers: Timers) -> None:
        """Remember that ``key`` was put as ``record_id``."""
        self.ids[key] = record_id
        self.key_bytes += text_bytes(key)
        if not self._blocks:
            timers.add(expires_us, (DEDUP_END, queue_uid))
        if not self._blocks or self._blocks[-1][-1][2] >> _BLOCK_BITS != record_id >> _BLOCK_BITS:
            self._blocks.append([])
        self._blocks[-1].append((expires_us, key, record_id))

    def forget(self, now_us: int, count_max: int, queue_uid: int, timers: Timers) -> int:
        """Drop up to ``count_max`` entries whose window is over, and set the timer for the next; tells how many."""
        count = 0
        while self._blocks:
            expires_us, key, _ = self._blocks[0][self._head]
            if expires_us > now_us or count == count_max:
                timers.add(expires_us, (DEDUP_END, queue_uid))
                break
            del self.ids[key]
            self.key_bytes -= text_bytes(key)
            count += 1
            self._head += 1
            if self._head == len(self._blocks[0]):
                del self._blocks[0]
                self._head = 0
        if not self.ids:
            self.ids = {}  # a dictionary keeps the room it once had
        return count

    def stop(self, queue_uid: int, timers: Timers) -> None:
        """Its queue is gone: cancel the timer."""
        if self._blocks:
            timers.cancel(self._blocks[0][self._head][0], (DEDUP_END, queue_uid))

    def free(self, count: int) -> bool:
        """Let go of about ``count`` keys of a queue that is gone; true when none is left."""
        for _ in range(min(count, len(self.ids))):
            key, _id = self.ids.popitem()
            self.key_bytes -= text_bytes(key)
        while self._blocks and count > 0:
            count -= len(self._blocks.pop())
        return not self.ids and not self._blocks

    def freeze(self) -> list[list[DedupEntry]]:
        """The entries for a snapshot, as blocks that will not change any more."""
        if not self._blocks:
            return []
        blocks = [*self._blocks[:-1], self._blocks[-1].copy()]
        blocks[0] = blocks[0][self._head :]
        return blocks
