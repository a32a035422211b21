"""What a backlog costs in memory, and that nothing is left of it when it is done."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
