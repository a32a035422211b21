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
SHARDS = 256
SHARD_FROM_KEYS = 16_384
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
    """Ready records, to be popped in order.

    Keys here are those of the order: negated in a descending queue. The dictionary of keys is split into shards when
    it has grown, for the same reason as the table of records: one dictionary of a million keys stops the world as it
    grows. The heap may name a key whose records were all taken out of the middle, or name a key twice; a key without a
    bucket is dropped when it reaches the top.
    """

    __slots__ = ("_ascending", "_heap", "_keys", "_mask", "_shards")

    def __init__(self, descending: bool = False) -> None:
        self._ascending = not descending
        self._shards: list[dict[int, Bucket]] = [{}]
        self._mask = 0
        self._keys = 0
        self._heap: list[int] = []

    @property
    def keys(self) -> int:
        """How many different keys the ready records have."""
        return self._keys

    def append(self, record: Record) -> None:
        """Add a record whose place is greater than that of every other record of its key."""
        key = record.key if self._ascending else -record.key
        shard = self._shards[key & self._mask]
        bucket = shard.get(key)
        if bucket is None:
            shard[key] = record
            heappush(self._heap, key)
            self._keys += 1
            if self._keys == SHARD_FROM_KEYS and not self._mask:
                self._split()
        elif isinstance(bucket, list):
            if len(bucket) < BLOCK_RECORDS:
                bucket.append(record)
            else:
                shard[key] = blocks = Blocks(bucket)
                blocks.append(record)
        elif isinstance(bucket, Record):
            shard[key] = [bucket, record]
        else:
            bucket.append(record)

    def _split(self) -> None:
        buckets = self._shards[0]
        self._mask = SHARDS - 1
        self._shards = [{} for _ in range(SHARDS)]
        for key, bucket in buckets.items():
            self._shards[key & self._mask][key] = bucket

    def insert(self, record: Record) -> None:
        """Add a record at the place it has."""
        key = record.key if self._ascending else -record.key
        shard = self._shards[key & self._mask]
        bucket = shard.get(key)
        if bucket is None:
            self.append(record)
        elif isinstance(bucket, Record):
            shard[key] = [bucket, record] if bucket.place < record.place else [record, bucket]
        elif isinstance(bucket, Blocks):
            if bucket.last().place < record.place:
                bucket.append(record)
            else:
                bucket.insert(record)
        elif len(bucket) < BLOCK_RECORDS:
            insort(bucket, record, key=_place)
        else:
            shard[key] = blocks = Blocks(bucket)
            blocks.insert(record)

    def remove(self, record: Record) -> None:
        """Take a record out, wherever it stands."""
        key = record.key if self._ascending else -record.key
        shard = self._shards[key & self._mask]
        bucket = shard[key]
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
            del shard[key]
            self._keys -= 1
            self._shed()

    def _shed(self) -> None:
        """Keep the heap's stale names within what is alive, at a cost that is spread over the removals."""
        heap, shards, mask = self._heap, self._shards, self._mask
        while heap and heap[0] not in shards[heap[0] & mask]:
            heappop(heap)
        if len(heap) > 2 * self._keys + 1000:
            heap[:] = [key for shard in shards for key in shard]
            heapify(heap)

    def pop(self, count: int) -> list[Record]:
        """Take up to ``count`` records from the head."""
        heap, shards, mask = self._heap, self._shards, self._mask
        taken: list[Record] = []
        while heap and count:
            key = heap[0]
            shard = shards[key & mask]
            bucket = shard.get(key)
            if bucket is None:
                heappop(heap)
            elif isinstance(bucket, Record):
                taken.append(bucket)
                count -= 1
                del shard[key]
                self._keys -= 1
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
                    del shard[key]
                    self._keys -= 1
                    heappop(heap)
        return taken

    def free(self, count: int) -> bool:
        """Let go of about ``count`` records of an order that nobody uses any more; true when none is left."""
        for shard in self._shards:
            while shard and count > 0:
                key, bucket = shard.popitem()
                count -= 1
                if isinstance(bucket, Blocks) and len(bucket.blocks) > 1:
                    count -= len(bucket.blocks.pop())
                    shard[key] = bucket
                else:
                    self._keys -= 1
                    count -= 0 if isinstance(bucket, Record) else BLOCK_RECORDS
        del self._heap[-max(count, 1000) :]
        return not self._keys and not self._heap

    def walk(self) -> Iterator[Record]:
        """The records in order, without touching them: a best-first walk over the heap, lazily."""
        heap = self._heap
        frontier = [(heap[0], 0)] if heap else []
        previous: int | None = None
        while frontier:
            key, position = heappop(frontier)
            for child in (2 * position + 1, 2 * position + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))
            bucket = self._shards[key & self._mask].get(key)
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
