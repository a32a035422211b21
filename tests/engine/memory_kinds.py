"""States of one kind each, and what they really cost: a program that ``test_memory`` runs.

Each kind is built in a process of its own, forked from one that has done a little of everything. It prints the name of
the kind, the growth of the process's memory and the growth of the account, in bytes.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.snapshot import begin, restore

RECORDS = 40_000
STEP = 1000
HOUR_MS = 3_600_000
UUID = "00000000-0000-0000-0000-{:012d}"


class World:
    """An engine that keeps nothing but its state."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.now_us = 1_700_000_000_000_000
        self.do(c.NewTerm(1, rules=c.RULES))

    def do(self, args: Any, owner: int = 1 << 32 | 1, producer: int = 0, request: int = 0) -> Any:
        """One entry with one command, by way of its log form."""
        st = self.engine.state
        asked = Command(c.OPS[type(args)], 2, owner, producer, request, c.encode(args), None)
        entry = decode_entry(encode_entry(Entry(self.now_us, [asked])))
        (answer,) = self.engine.apply(st.index + 1, 1, entry)
        for yielded in (st.rows, st.woken, st.broadcasts):
            yielded.clear()
        return answer

    def sweep(self) -> None:
        """Free what was dropped."""
        while self.engine.sweep():
            pass

    def put(self, make: Callable[[int], c.Item], count: int = RECORDS, queue: str = "", step: int = STEP) -> None:
        """Records in the default queue."""
        for first in range(0, count, step):
            self.do(c.Put(queue, [make(n) for n in range(first, first + step)], create=True))
            self.now_us += 1000

    def put_and_end(self, item: c.Item, producer: int = 0, request: int = 0) -> None:
        """A record that leaves nothing but what is remembered of it."""
        self.do(c.Put("", [item]), producer=producer, request=request)
        self.do(c.Take("", 1, final=True))

    def take_all(self, count: int, lease_ms: int = HOUR_MS, records: int = RECORDS) -> None:
        """Lease all records, ``count`` with each take, by connections of ten leases each."""
        for number in range(records // count):
            self.do(c.Take("", count, lease_ms), owner=1 << 32 | 1 + number // 10)
            self.now_us += 10_000


def small(number: int, **options: Any) -> c.Item:
    """A record of 20 bytes."""
    return c.Item(0, b"%020d" % number, c.Options(**options) if options else None)


def headers_of(text: str) -> Raw:
    return Raw(c.encode({"header": text}))


def plain(world: World) -> None:
    world.put(small)


def without_payload(world: World) -> None:
    world.put(lambda n: c.Item(0, b""))


def distinct_keys(world: World) -> None:
    world.put(lambda n: c.Item(1000 + n * 7919 % 1_000_003, b"%0100d" % n))


def large_payloads(world: World) -> None:
    world.put(lambda n: c.Item(0, bytes([n % 251]) * 100_000), 200, step=10)


def headers(world: World) -> None:
    world.put(lambda n: small(n, headers=headers_of("x" * 200 + str(n))))


def large_headers(world: World) -> None:
    world.put(lambda n: small(n, headers=headers_of("x" * 50_000 + str(n))), 300, step=10)


def delayed(world: World) -> None:
    world.put(lambda n: small(n, delay_ms=HOUR_MS + n))


def expiring(world: World) -> None:
    world.put(lambda n: small(n, expires_ms=HOUR_MS))


def expiring_one_by_one(world: World) -> None:
    world.put(lambda n: small(n, expires_ms=HOUR_MS + 20 * n))


def with_deduplication_keys(world: World) -> None:
    world.put(lambda n: small(n, dedup_key=UUID.format(n)))


def deduplication_keys(world: World) -> None:
    for number in range(RECORDS):
        world.put_and_end(small(number, dedup_key=UUID.format(number)))


def leased(world: World) -> None:
    world.put(small)
    world.take_all(STEP)


def leased_one_by_one(world: World) -> None:
    world.put(small)
    world.take_all(1)


def leased_to_connections(world: World) -> None:
    world.put(small)
    world.take_all(1, 0)


def dead_letters(world: World) -> None:
    world.do(c.CreateQueue("dead", c.QueueSettings()))
    world.do(c.CreateQueue("jobs", c.QueueSettings(deliveries_max=1, dead_letter="dead")))
    world.put(small, queue="jobs")
    while (taken := world.do(c.Take("jobs", STEP))).records:
        world.do(c.Return("jobs", [(record.id, taken.token) for record in taken.records]))


def producers(world: World) -> None:
    for number in range(RECORDS):
        world.put_and_end(small(0), producer=(1 + number % 100) << 40, request=1 + number // 100)


def producers_of_one_answer(world: World) -> None:
    for number in range(9_000):
        world.put_and_end(small(0), producer=(1 + number) << 40, request=1)


def staged(world: World) -> None:
    for part in range(40):
        world.do(c.Stage("query", 1, 0, 0, part, [("", [small(n) for n in range(STEP)])]))


def staged_without_payload(world: World) -> None:
    for part in range(40):
        world.do(c.Stage("query", 1, 0, 0, part, [("", [c.Item(0, b"")] * STEP)]))


def staged_with_headers(world: World) -> None:
    for part in range(20):
        items = [small(n, headers=headers_of("x" * 100), dedup_key=UUID.format(n)) for n in range(STEP)]
        world.do(c.Stage("query", 1, 0, 0, part, [("", items)]))


def staged_attempts(world: World) -> None:
    for number in range(10_000):
        world.do(c.Stage(f"query{number}", 1, 0, 0, 0, [("", [c.Item(0, b"")])]))


def publication(world: World) -> None:
    staged(world)
    world.do(c.Publish("query", 1, [(0, 0)]))


def bindings(world: World) -> None:
    for number in range(10_000):
        world.do(c.Bind(f"binding{number}", f"spec{number}", f"type{number}", ""))


def topic_messages(world: World) -> None:
    for number in range(1_000):
        world.do(c.Bind(f"binding{number}", "", "", f"queue{number % 4}"))
    for number in range(20):
        world.do(c.Broadcast(1, b"t" * 1000, bytes([number]) * 100_000))


def queues(world: World) -> None:
    for number in range(10_000):
        world.do(c.CreateQueue(f"queue{number}", c.QueueSettings()))


def queues_of_one_record(world: World) -> None:
    for number in range(2_000):
        world.put(small, 1, f"queue{number}", 1)


def purged(world: World) -> None:
    world.put(small)
    world.do(c.Purge(""))


KINDS: dict[str, Callable[[World], None]] = {
    make.__name__: make
    for make in (
        *(plain, without_payload, distinct_keys, large_payloads, headers, large_headers, delayed, expiring),
        *(expiring_one_by_one, with_deduplication_keys, deduplication_keys, leased, leased_one_by_one),
        *(leased_to_connections, dead_letters, producers, producers_of_one_answer, staged, staged_without_payload),
        *(
            staged_with_headers,
            staged_attempts,
            publication,
            bindings,
            topic_messages,
            queues,
            queues_of_one_record,
            purged,
        ),
    )
}
RESTORED = (
    "plain",
    "distinct_keys",
    "headers",
    "expiring",
    "with_deduplication_keys",
    "dead_letters",
    "staged",
    "topic_messages",
)


def resident_bytes() -> int:
    """What the process occupies in memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(name: str) -> tuple[int, int]:
    """Growth of the process and of the account by a state of this kind."""
    world = World()
    before_bytes, counted_before_bytes = resident_bytes(), world.engine.state.memory_bytes()
    KINDS[name](world)
    return resident_bytes() - before_bytes, world.engine.state.memory_bytes() - counted_before_bytes


def measure_restored(name: str) -> tuple[int, int]:
    """The same of a state that was restored from a snapshot, which another process made."""
    path = f"{sys.argv[1]}/{name}"
    if not os.fork():
        world = World()
        KINDS[name](world)
        with open(path, "wb") as file:
            for block in begin(world.engine):
                file.write(len(block).to_bytes(4, "little") + block)
        os._exit(0)
    os.wait()
    before_bytes = resident_bytes()
    with open(path, "rb") as file:
        engine = restore(file.read(int.from_bytes(size, "little")) for size in iter(lambda: file.read(4), b""))
    return resident_bytes() - before_bytes, engine.state.memory_bytes()


def main() -> None:
    """Print a line for each kind."""
    warm = World()
    warm.put(lambda n: small(n, headers=headers_of("x"), dedup_key=str(n), delay_ms=1), STEP)
    restore(list(begin(warm.engine)))
    measures = [(name, measure) for name in KINDS] + [(name, measure_restored) for name in RESTORED]
    for name, how in measures:
        sys.stdout.flush()
        if not os.fork():
            real_bytes, counted_bytes = how(name)
            print(f"{name}{'' if how is measure else ', restored'}:{real_bytes}:{counted_bytes}", flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
