"""What a backlog costs in memory, and that nothing is left of it when it is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine import commands as c
from penstock.engine import producers
from penstock.engine.memory import ANSWER_BYTES, PRODUCER_BYTES
from penstock.engine.queue import Queue
from tests.engine.driving import Drive, handles, item
from tests.engine.memory_kinds import KINDS, RESTORED
from tests.engine.recounting import recount

RECORDS = 200_000
BYTES_PER_RECORD_MAX = 450

PROGRAM = """
import gc, os
from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry

RECORDS, STEP = {records}, 1000
engine, index = Engine(), -1

def do(args):
    global index
    index += 1
    body = c.encode(args)
    data = encode_entry(Entry(1_700_000_000_000_000, [Command(c.OPS[type(args)], 2, 1 << 32 | 1, 0, 0, body, None)]))
    (answer,) = engine.apply(index, 1, decode_entry(data))
    engine.state.rows.clear()
    return answer

def rss_bytes():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

do(c.NewTerm(1))
do(c.Put("", [c.Item(-n, b"warm" * 25) for n in range(STEP)]))
do(c.Take("", STEP, None, 0, False, True))
before = rss_bytes()
for first in range(0, RECORDS, STEP):
    # Keys in an order that is neither rising nor falling, all different.
    do(c.Put("", [c.Item(n * 7919 % 1_000_003, b"%0100d" % n) for n in range(first, first + STEP)]))
queue = engine.state.by_name[""]
assert queue.counts == [RECORDS, 0, 0, 0]
print((rss_bytes() - before) // RECORDS)

for _ in range(0, RECORDS, STEP):
    taken = do(c.Take("", STEP))
    assert len(taken.records) == STEP
    do(c.Ack("", [(record.id, taken.token) for record in taken.records]))
assert queue.counts == [0, 0, 0, 0] and queue.payload_bytes == 0
assert len(queue.table.chunks) <= 1 and list(queue.scan(0)) == []
assert list(queue.order.walk()) == [] and queue.order.pop(1) == []
assert queue.leases == {{}} and engine.state.owners == {{}}
assert engine.next_due_us() is None
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_backlog_with_all_keys_different_costs_little_and_leaves_nothing() -> None:
    """100-byte payloads included; the million that must fit 500 MB would have 500 bytes each."""
    program = PROGRAM.format(records=RECORDS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bytes_per_record = int(done.stdout)
    assert 100 < bytes_per_record < BYTES_PER_RECORD_MAX


def test_reading_the_account_looks_only_at_queues_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues there are: 10,000 of them halved the throughput of puts when each read looked at all."""
    drive = Drive()
    for number in range(300):
        drive.create(f"q{number}")
        drive.put(f"q{number}")
    drive.engine.state.memory_bytes()
    looked: list[str] = []
    right = Queue.memory_by_kind

    def watched(queue: Queue) -> tuple[int, int, int, int, int]:
        looked.append(queue.name)
        return right(queue)

    monkeypatch.setattr(Queue, "memory_by_kind", watched)
    drive.put("q7")
    before_bytes = drive.engine.state.memory_bytes()
    drive.engine.state.memory_bytes()
    taken = drive.take("q9")
    drive.ack("q9", handles(taken))
    assert drive.engine.state.memory_bytes() < before_bytes
    assert looked == ["q7", "q9"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_account_is_within_a_fifth_of_the_real_memory_for_each_kind(tmp_path: Path) -> None:
    """Of a state that was built by commands, and of one that was restored from a snapshot."""
    command = [sys.executable, "-m", "tests.engine.memory_kinds", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split(":") for line in done.stdout.splitlines()]
    ratios = {name: int(counted_bytes) / int(real_bytes) for name, real_bytes, counted_bytes in rows}
    assert len(ratios) == len(KINDS) + len(RESTORED), done.stderr
    assert {name: ratio for name, ratio in ratios.items() if not 0.8 <= ratio <= 1.2} == {}


# --- answers kept for producers ---------------------------------------------------------------------------------------


def ask(drive: Drive, producer: int, request: int) -> int:
    """A put of a producer; the id of its record, which is an old one where the answer is remembered."""
    first: int = drive.do(c.Put("", [item()]), producer=producer, request=request).first
    return first


def test_a_producers_oldest_answers_are_forgotten_beyond_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "ANSWERS_BYTES_MAX", 5 * ANSWER_BYTES + 100)
    drive = Drive()
    for request in range(1, 11):
        assert ask(drive, 1, request) == request
    drive.restart()
    kept = list(drive.engine.state.producers[1].answers)
    assert kept == [6, 7, 8, 9, 10]
    assert ask(drive, 1, 6) == 6
    assert ask(drive, 1, 5) == 11
    assert drive.engine.state.memory_by_kind() == recount(drive.engine.state)


def test_beyond_the_bytes_of_all_the_producer_that_was_silent_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_BYTES_MAX", 4 * PRODUCER_BYTES + 5 * ANSWER_BYTES + 200)
    drive = Drive()
    for producer in (1, 2, 1, 3, 4, 5):
        ask(drive, producer, producer * 10 + len(drive.log))
    assert list(drive.engine.state.producers) == [1, 3, 4, 5]
    assert drive.engine.state.memory_by_kind() == recount(drive.engine.state)


def test_answers_are_not_forgotten_by_their_bytes_under_the_rules_of_an_older_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeated request in such a log was answered from memory; replay must do the same."""
    monkeypatch.setattr(producers, "ANSWERS_BYTES_MAX", 5 * ANSWER_BYTES + 100)
    drive = Drive(rules=1)
    for request in range(1, 11):
        ask(drive, 1, request)
    assert ask(drive, 1, 1) == 1
