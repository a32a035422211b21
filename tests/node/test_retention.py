"""The age of log segments in a running node: by log time, and not after one start with a wrong clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.doors.server import Server
from penstock.node.clock import LogClock
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage.layout import Layout
from penstock.testing import OTHER_DOORS_CLOSED
from tests.node.support import Told, put, until

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
SEGMENT_BYTES = 4096


class Clocks:
    """Clocks that stand still until they are moved."""

    def __init__(self) -> None:
        self.monotonic_ns = 5 * 10**9
        self.wall_ns = 1_700_000_000 * 10**9

    def make(self) -> LogClock:
        return LogClock(lambda: self.monotonic_ns, lambda: self.wall_ns)

    def advance(self, duration_ns: int) -> None:
        self.monotonic_ns += duration_ns
        self.wall_ns += duration_ns


def _settings(directory: Path) -> Settings:
    return Settings(
        data_dir=str(directory),
        storage=StorageSettings(segment_bytes=SEGMENT_BYTES, reserve_bytes=0, snapshot_bytes=1 << 40),
        taskflux=TaskfluxSettings(enabled=False),
        **OTHER_DOORS_CLOSED,
    )


async def _serve(directory: Path, clocks: Clocks, *, puts: int, waits_ns: int = 0) -> list[int]:
    """Start, put, let time pass, put again, take two snapshots, stop; the archived segments that are left."""
    server = Server(_settings(directory), clock=clocks.make())
    await server.start()
    await until(lambda: not server.node.is_busy)  # the first entry of the term has its stamp
    told = Told()
    for ref in range(puts):
        server.node.submit(put("", bytes(1000)), told, ref)
        await until(lambda ref=ref: ref in told.answers)
    clocks.advance(waits_ns)
    for ref in (puts, puts + 1):
        server.node.submit(put("", b"later"), told, ref)
        await until(lambda ref=ref: ref in told.answers)
        server.node.snapshots.begin()
        await server.node.snapshots.done.wait()
    await server.stop()
    return Layout(directory).sealed_first_indexes()


def test_a_start_with_the_clock_days_ahead_deletes_no_history(tmp_path: Path) -> None:
    clocks = Clocks()
    kept = asyncio.run(_serve(tmp_path, clocks, puts=20))
    assert len(kept) >= 4
    clocks.wall_ns += 8 * DAY_NS
    assert asyncio.run(_serve(tmp_path, clocks, puts=0)) == kept
    clocks.wall_ns -= 8 * DAY_NS
    assert asyncio.run(_serve(tmp_path, clocks, puts=0)) == kept
    assert asyncio.run(_serve(tmp_path, clocks, puts=0, waits_ns=169 * HOUR_NS)) == kept, "a slow clock ages nothing"


def test_segments_age_while_the_node_runs(tmp_path: Path) -> None:
    clocks = Clocks()
    kept = asyncio.run(_serve(tmp_path, clocks, puts=20, waits_ns=167 * HOUR_NS))
    assert kept[0] == 0
    left = asyncio.run(_serve(tmp_path, clocks, puts=0, waits_ns=2 * HOUR_NS))
    assert left == []


def test_after_a_jump_segments_go_when_they_were_kept_for_the_whole_time_again(tmp_path: Path) -> None:
    clocks = Clocks()
    kept = asyncio.run(_serve(tmp_path, clocks, puts=20))
    clocks.wall_ns += 8 * DAY_NS
    assert asyncio.run(_serve(tmp_path, clocks, puts=0, waits_ns=167 * HOUR_NS)) == kept
    assert asyncio.run(_serve(tmp_path, clocks, puts=0, waits_ns=2 * HOUR_NS)) == []
