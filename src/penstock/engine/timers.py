"""What is due when: a calendar of buckets of about 8 ms.

A timer costs one dictionary entry and nothing more until it is due; cancelling is one deletion. A bucket is due when
it has wholly passed, so a timer is never early and at most one bucket late. Due timers come in the order of (due time,
name), which depends on nothing but the state: a node that started from a snapshot fires them as one that never stopped.
"""

from __future__ import annotations

from heapq import heappop, heappush

BUCKET_BITS = 13

# Kinds of timers, the first part of a timer's name.
LEASE_END = 0  # (LEASE_END, queue uid, lease serial, until_us)
DELAY_END = 1  # (DELAY_END, queue uid, record id)
EXPIRY = 2  # (EXPIRY, queue uid, record id)
DEDUP_END = 3  # (DEDUP_END, queue uid)
STAGE_END = 4  # (STAGE_END, serial of the staged attempt)
OWNER_END = 5  # (OWNER_END, owner)
JOB_STEP = 6  # (JOB_STEP, job)

TimerName = tuple[int, ...]


class Timers:
    """Timers by their due time."""

    __slots__ = ("_buckets", "_heap", "_soon")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[TimerName, int]] = {}
        self._heap: list[int] = []
        self._soon: list[TimerName] = []

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
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = {name: due_us}
            heappush(self._heap, number)
        else:
            bucket[name] = due_us

    def cancel(self, due_us: int, name: TimerName) -> None:
        """Forget a timer; one that is not set is no mistake."""
        number = due_us >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is not None:
            bucket.pop(name, None)
            # An empty bucket that is not the next to come stays in the heap until its time; it costs 200 bytes.
            if not bucket and self._heap[0] == number:
                heappop(self._heap)
                del self._buckets[number]

    def next_due_us(self) -> int | None:
        """When the earliest timer can fire, or None."""
        if self._soon:
            return 0
        heap, buckets = self._heap, self._buckets
        while heap and not buckets[heap[0]]:
            del buckets[heappop(heap)]
        return (heap[0] + 1) << BUCKET_BITS if heap else None

    def any_due(self, now_us: int) -> bool:
        """Whether an entry at this time has timers to fire."""
        return bool(self._soon) or bool(self._heap and self._heap[0] < now_us >> BUCKET_BITS)

    def pop_due(self, now_us: int, count_max: int) -> list[tuple[int, TimerName]]:
        """Take out up to ``count_max`` timers that are due, in order."""
        due: list[tuple[int, TimerName]] = []
        now_number = now_us >> BUCKET_BITS
        while self._heap and self._heap[0] < now_number and len(due) < count_max:
            number = self._heap[0]
            bucket = self._buckets[number]
            ordered = sorted((due_us, name) for name, due_us in bucket.items())
            room = count_max - len(due)
            due += ordered[:room]
            if len(ordered) > room:
                for _, name in ordered[:room]:
                    del bucket[name]
                break
            heappop(self._heap)
            del self._buckets[number]
        return due
