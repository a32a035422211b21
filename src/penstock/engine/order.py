"""The order in which ready records are served: (key, place).

A heap of the distinct keys, and for each key its records sorted by place. Most records arrive at the tail and leave at
the head; those that come back, expire or are deleted go into and out of the middle by bisection. So every operation is
O(log distinct keys) plus a bisection, and nothing is left behind to be swept later.

What a key maps to grows with its records, because a backlog may have a million keys of one record each (a container
per key would cost 0.9 GB) or one key of a million records:

    one record          the record itself
    up to BLOCK_RECORDS a list
    more                ``Blocks``, a list of lists

H4 and QA share this structure. A bitmap over QA's key range was measured and lost to the heap at every width of range
(docs/architecture.md has the figures), so QA differs only in that its range is required.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter

from penstock.engine.records import Record

BLOCK_RECORDS = 1024
_place = attrgetter("place")


def _first_place(block: list[Record]) -> int:
    return block[0].place


class Blocks:
    """Records of one key sorted by place, in blocks so that the middle can be reached and changed cheaply."""

    __slots__ = ("blocks",)

    def __init__(self, records: list[Record]) -> None:
        self.blocks = [records]

    def append(self, record: Record) -> None:
        last = self.blocks[-1]
        if len(last) < BLOCK_RECORDS:
            last.append(record)
        else:
            self.blocks.append([record])

    def last(self) -> Record:
        return self.blocks[-1][-1]

    def _number(self, place: int) -> int:
        return max(0, bisect_left(self.blocks, place + 1, key=_first_place) - 1)

    def insert(self, record: Record) -> None:
        number = self._number(record.place)
        block = self.blocks[number]
        insort(block, record, key=_place)
        if len(block) > 2 * BLOCK_RECORDS:
            self.blocks[number : number + 1] = [block[:BLOCK_RECORDS], block[BLOCK_RECORDS:]]

    def remove(self, place: int) -> bool:
        """Take the record with this place out; tell whether none is left."""
        number = self._number(place)
        block = self.blocks[number]
        position = bisect_left(block, place, key=_place)
        assert block[position].place == place, "a ready record must be where its place says"
        del block[position]
        if not block:
            del self.blocks[number]
        return not self.blocks


Bucket = Record | list[Record] | Blocks


class KeyOrder:
    """Ready records, to be popped in order. Keys here are those of the order: negated in a descending queue."""

    __slots__ = ("_buckets", "_heap", "_sign")

    def __init__(self, descending: bool = False) -> None:
        self._sign = -1 if descending else 1
        self._buckets: dict[int, Bucket] = {}
        self._heap: list[int] = []
        # The heap may name a key whose records were all taken out of the middle, or name a key twice; a key without a
        # bucket is dropped when it reaches the top.

    def append(self, record: Record) -> None:
        """Add a record whose place is greater than that of every other record of its key."""
        key = record.key * self._sign
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = record
            heappush(self._heap, key)
        elif isinstance(bucket, list):
            if len(bucket) < BLOCK_RECORDS:
                bucket.append(record)
            else:
                self._buckets[key] = blocks = Blocks(bucket)
                blocks.append(record)
        elif isinstance(bucket, Record):
            self._buckets[key] = [bucket, record]
        else:
            bucket.append(record)

    def insert(self, record: Record) -> None:
        """Add a record at the place it has."""
        key = record.key * self._sign
        bucket = self._buckets.get(key)
        if bucket is None:
            self.append(record)
        elif isinstance(bucket, Record):
            self._buckets[key] = [bucket, record] if bucket.place < record.place else [record, bucket]
        elif isinstance(bucket, Blocks):
            if bucket.last().place < record.place:
                bucket.append(record)
            else:
                bucket.insert(record)
        elif len(bucket) < BLOCK_RECORDS:
            insort(bucket, record, key=_place)
        else:
            self._buckets[key] = blocks = Blocks(bucket)
            blocks.insert(record)

    def remove(self, record: Record) -> None:
        """Take a record out, wherever it stands."""
        key = record.key * self._sign
        bucket = self._buckets[key]
        if isinstance(bucket, Record):
            empty = True
        elif isinstance(bucket, Blocks):
            empty = bucket.remove(record.place)
        else:
            position = bisect_left(bucket, record.place, key=_place)
            assert bucket[position].place == record.place, "a ready record must be where its place says"
            del bucket[position]
            empty = not bucket
        if empty:
            del self._buckets[key]
            self._shed()

    def _shed(self) -> None:
        """Keep the heap's stale names within what is alive, at a cost that is spread over the removals."""
        heap, buckets = self._heap, self._buckets
        while heap and heap[0] not in buckets:
            heappop(heap)
        if len(heap) > 2 * len(buckets) + 1000:
            heap[:] = buckets
            heapify(heap)

    def pop(self, count: int) -> list[Record]:
        """Take up to ``count`` records from the head."""
        heap, buckets = self._heap, self._buckets
        taken: list[Record] = []
        while heap and count:
            key = heap[0]
            bucket = buckets.get(key)
            if bucket is None:
                heappop(heap)
            elif isinstance(bucket, Record):
                taken.append(bucket)
                count -= 1
                del buckets[key]
                heappop(heap)
            else:
                block = bucket if isinstance(bucket, list) else bucket.blocks[0]
                if len(block) > count:
                    taken += block[:count]
                    del block[:count]
                    break
                taken += block
                count -= len(block)
                if isinstance(bucket, Blocks) and len(bucket.blocks) > 1:
                    del bucket.blocks[0]
                else:
                    del buckets[key]
                    heappop(heap)
        return taken

    def walk(self) -> Iterator[Record]:
        """The records in order, without touching them: a best-first walk over the heap, lazily."""
        heap, buckets = self._heap, self._buckets
        frontier = [(heap[0], 0)] if heap else []
        previous: int | None = None
        while frontier:
            key, position = heappop(frontier)
            for child in (2 * position + 1, 2 * position + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))
            bucket = buckets.get(key)
            if bucket is None or key == previous:
                continue
            previous = key
            if isinstance(bucket, Record):
                yield bucket
            elif isinstance(bucket, Blocks):
                for block in bucket.blocks:
                    yield from block
            else:
                yield from bucket
