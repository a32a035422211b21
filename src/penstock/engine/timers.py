"""What is due when: a calendar of buckets of about 8 ms.

A bucket is due when it has wholly passed, so a timer is never early and at most one bucket late. Due timers come in the
order of (due time, name), which depends on nothing but the state: a node that started from a snapshot fires them as one
that never stopped.

No step costs more for a million timers than for a thousand:

- A bucket is a dictionary, in which setting and cancelling a timer is one step, until it has ``SORTED_FROM_TIMERS``
  timers or is due. Then it is put in order once and stays so (``SortedBlocks``).
- The buckets lie in many dictionaries, because one large dictionary stops the world when it grows.
- A bucket goes when its last timer is cancelled. Only the one that was used last stays, or a timer that is set and
  cancelled in turn would make and drop it each time.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.sortedblocks import SortedBlocks

BUCKET_BITS: Final = 13
SORTED_FROM_TIMERS: Final = 16_384
"""More than the largest command sets. Putting this many in order takes some milliseconds, once."""
_SHARD_MASK: Final = 0xFF
_NEVER: Final = 1 << 64

# Kinds of timers, the first part of a timer's name.
LEASE_END = 0  # (LEASE_END, queue uid, lease serial, until_us)
DELAY_END = 1  # (DELAY_END, queue uid, record id)
EXPIRY = 2  # (EXPIRY, queue uid, record id)
DEDUP_END = 3  # (DEDUP_END, queue uid)
STAGE_END = 4  # (STAGE_END, serial of the staged attempt)
OWNER_END = 5  # (OWNER_END, owner)
JOB_STEP = 6  # (JOB_STEP, job)

TimerName = tuple[int, ...]
Timer = tuple[int, TimerName]
"""When it is due, and its name."""
Bucket = dict[TimerName, int] | SortedBlocks[Timer]


def _in_order(bucket: dict[TimerName, int]) -> SortedBlocks[Timer]:
    return SortedBlocks(sorted((due_us, name) for name, due_us in bucket.items()))


class Timers:
    """Timers by their due time."""

    __slots__ = ("_count", "_first_number", "_last", "_last_bucket", "_numbers", "_shards", "_soon")

    def __init__(self) -> None:
        self._shards: list[dict[int, Bucket]] = [{} for _ in range(_SHARD_MASK + 1)]
        self._numbers = SortedBlocks[int]()
        """The numbers of the buckets."""
        self._first_number = _NEVER
        """The least of them."""
        self._last = -1
        """The bucket in which a timer was set last; the only one that may be empty."""
        self._last_bucket: dict[TimerName, int] | None = None
        """The same bucket while it is there and a dictionary: mostly the next timer goes there too."""
        self._soon: list[TimerName] = []
        self._count = 0

    @property
    def buckets(self) -> int:
        """How many buckets have timers."""
        last = self._shards[self._last & _SHARD_MASK].get(self._last)
        return self._count - 1 if last is not None and not last else self._count

    def add_soon(self, name: TimerName) -> None:
        """Set a timer that fires with the next entry, but not with this one."""
        self._soon.append(name)

    def admit_soon(self) -> None:
        """An entry begins: what was to wait for it is due now."""
        for name in self._soon:
            self.add(0, name)
        self._soon.clear()

    def add(self, due_us: int, name: TimerName) -> None:
        """Set a timer."""
        number = due_us >> BUCKET_BITS
        if number != self._last or self._last_bucket is None:
            self._add_elsewhere(number, due_us, name)
            return
        bucket = self._last_bucket
        bucket[name] = due_us
        if len(bucket) >= SORTED_FROM_TIMERS:
            self._put_in_order(number, bucket)

    def _put_in_order(self, number: int, bucket: dict[TimerName, int]) -> SortedBlocks[Timer]:
        if number == self._last:
            self._last_bucket = None
        ordered = self._shards[number & _SHARD_MASK][number] = _in_order(bucket)
        return ordered

    def _add_elsewhere(self, number: int, due_us: int, name: TimerName) -> None:
        """Set a timer in another bucket than the one before, or in a large one."""
        if number != self._last:
            self._use(number)
        shard = self._shards[number & _SHARD_MASK]
        bucket = shard.get(number)
        if bucket is None:
            self._last_bucket = shard[number] = {name: due_us}
            self._numbers.add(number)
            self._count += 1
            if number < self._first_number:
                self._first_number = number
        elif isinstance(bucket, dict):
            self._last_bucket = bucket
            bucket[name] = due_us
            if len(bucket) >= SORTED_FROM_TIMERS:
                self._put_in_order(number, bucket)
        else:
            bucket.add((due_us, name))

    def _use(self, number: int) -> None:
        """Timers are set in another bucket from now on: the former one goes if it is empty."""
        former = self._last
        self._last, self._last_bucket = number, None
        if former >= 0 and not self._shards[former & _SHARD_MASK].get(former, True):
            self._drop(former)

    def _drop(self, number: int) -> None:
        del self._shards[number & _SHARD_MASK][number]
        if number == self._last:
            self._last_bucket = None
        self._numbers.discard(number)
        self._count -= 1
        if number == self._first_number:
            self._first_number = self._numbers.first() if self._count else _NEVER

    def cancel(self, due_us: int, name: TimerName) -> None:
        """Forget a timer; one that is not set is no mistake."""
        number = due_us >> BUCKET_BITS
        bucket = self._shards[number & _SHARD_MASK].get(number)
        if bucket is None:
            return
        if isinstance(bucket, dict):
            bucket.pop(name, None)
        else:
            bucket.discard((due_us, name))
        if not bucket and number != self._last:
            self._drop(number)

    def next_due_us(self) -> int | None:
        """When the earliest timer can fire, or None."""
        if self._soon:
            return 0
        number = self._first()
        return None if number is None else (number + 1) << BUCKET_BITS

    def _first(self) -> int | None:
        """The number of the first bucket that has timers."""
        while (number := self._first_number) != _NEVER:
            if self._shards[number & _SHARD_MASK][number]:
                return number
            self._drop(number)
        return None

    def any_due(self, now_us: int) -> bool:
        """Whether an entry at this time has timers to fire."""
        return self._first_number < now_us >> BUCKET_BITS or bool(self._soon)

    def pop_due(self, now_us: int) -> Timer | None:
        """Take out the first timer that is due, if one is."""
        number = self._first()
        if number is None or number >= now_us >> BUCKET_BITS:
            return None
        bucket = self._shards[number & _SHARD_MASK][number]
        if isinstance(bucket, dict):
            bucket = self._put_in_order(number, bucket)
        timer = bucket.pop_first()
        if not bucket:
            self._drop(number)
        return timer
