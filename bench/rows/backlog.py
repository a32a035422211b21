"""What a large backlog costs: memory and stalls while it grows, the time to start with it, puts during its snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.cpu import memory_bytes
from bench.dialogues.shapes import Pings, Pipelined
from bench.errors import ServerFailed
from bench.load import drive
from bench.model import Bench, Bound, Entry, Goal, Plan, Row, Sample
from bench.rows.common import latencies_ms, open_connections, sample_of
from bench.servers import Penstock

_FILL_LIMIT_S = 300.0
_PING_INTERVAL_S = 0.001
_STALL_MS_MAX = 20
_SNAPSHOT_BYTES = 64 * 1024
"""So little that the next snapshot begins soon after the last one ends."""
_SNAPSHOTS_AWAITED = 3
_SNAPSHOT_LIMIT_FACTOR = 15
_STATUS_INTERVAL_S = 0.02
_PUTTERS = 8

TEN_KEYS = "ten keys"
ALL_DIFFERENT = "all keys different"
FULL = "ten keys, largest"
AFTER_STOP = "after SIGTERM"
AFTER_KILL = "after kill -9"
CALM = "no snapshot"
DURING = "during snapshots"


def _grow(server: Penstock, load: Pipelined) -> Pings:
    """Put a backlog while a second connection asks for a sign of life every millisecond."""
    with server.connect() as filler, server.connect() as watcher:
        pings = server.pings(_PING_INTERVAL_S)
        drive([(filler, load), (watcher, pings)], _FILL_LIMIT_S)
    return pings


def _measure_growth(records: int, fill: Callable[[Penstock, int], Pipelined]) -> Callable[[Bench], Sample]:
    """Memory before and after, and how long the server kept silent meanwhile."""

    def measure(bench: Bench) -> Sample:
        with Penstock(bench.workshop) as server:
            empty_bytes = memory_bytes(server.pids())
            load, meter = fill(server, records), server.meter()
            with meter:
                pings = _grow(server, load)
            full_bytes = memory_bytes(server.pids())
            return {
                **meter.figures(load.completed),
                **latencies_ms([pings]),
                "max_ms": max(pings.latencies_ns) / 1e6,
                "memory_mb": full_bytes / 1e6,
                "bytes_per_record": max(0, full_bytes - empty_bytes) / load.completed,
            }

    return measure


def _measure_start(end: Callable[[Penstock], None]) -> Callable[[Bench], Sample]:
    """From the command to an answer that counts all records."""

    def measure(bench: Bench) -> Sample:
        with Penstock(bench.workshop) as server:
            with server.connect() as filler:
                load = server.fill(bench.plan.backlog_records)
                drive([(filler, load)], _FILL_LIMIT_S)
            end(server)
            began = time.perf_counter()
            server.start()
            status = server.status()
            start_s = time.perf_counter() - began
            if status.records != load.completed:
                raise ServerFailed(server.name, f"{load.completed} records were put, {status.records} came back")
            return {"start_s": start_s, "memory_mb": memory_bytes(server.pids()) / 1e6}

    return measure


def _measure_snapshot(snapshots: bool) -> Callable[[Bench], Sample]:
    """Puts on a few connections beside a large backlog, with a snapshot always under way or with none at all."""

    def measure(bench: Bench) -> Sample:
        with Penstock(bench.workshop) as server:
            with server.connect() as filler:
                drive([(filler, server.fill(bench.plan.backlog_records))], _FILL_LIMIT_S)
            if snapshots:
                # Only now, or the backlog would be snapshotted over and over while it grows.
                server.stop()
                server.flags = ("--storage-snapshot-bytes", str(_SNAPSHOT_BYTES))
                server.start()
            return _put_beside_snapshots(server, bench.plan, _SNAPSHOTS_AWAITED if snapshots else 0)

    return measure


def _put_beside_snapshots(server: Penstock, plan: Plan, awaited: int) -> Sample:
    limit_s = plan.seconds * _SNAPSHOT_LIMIT_FACTOR if awaited else plan.seconds
    with open_connections(_PUTTERS, server.connect) as sockets, server.connect() as watcher:
        watch = server.snapshot_watch(_STATUS_INTERVAL_S)
        puts = [server.puts(1) for _ in sockets]
        meter = server.meter()
        with meter:
            drive(
                [*zip(sockets, puts, strict=True), (watcher, watch)],
                limit_s,
                until=(lambda: watch.snapshots >= awaited) if awaited else None,
            )
    if watch.snapshots < min(1, awaited):
        raise ServerFailed(server.name, f"it made no snapshot in {limit_s:g} s")
    worst_ns = max(max(load.latencies_ns) for load in puts)
    return {**sample_of(meter, puts), "max_ms": worst_ns / 1e6, "snapshots": float(watch.snapshots)}


def rows(plan: Plan) -> tuple[Row, ...]:
    """The rows of this subject; the largest backlog only where it is planned."""
    count = f"{plan.backlog_records:,}"
    growth = [
        Entry(TEN_KEYS, _measure_growth(plan.backlog_records, Penstock.fill)),
        Entry(ALL_DIFFERENT, _measure_growth(plan.backlog_records, Penstock.fill_distinct)),
    ]
    limits_mb = {TEN_KEYS: 500, ALL_DIFFERENT: 500}
    if plan.full_records:
        growth.append(Entry(FULL, _measure_growth(plan.full_records, Penstock.fill)))
        limits_mb[FULL] = 2_000
    return (
        Row(
            name="start",
            title=f"start with a backlog of {count}, until it answers",
            entries=(
                Entry(AFTER_STOP, _measure_start(Penstock.stop)),
                Entry(AFTER_KILL, _measure_start(Penstock.kill)),
            ),
            goals=tuple(Goal(label, "start_s", Bound(6), Bound(2), most=True) for label in (AFTER_STOP, AFTER_KILL)),
        ),
        Row(
            name="memory",
            title=f"a backlog that grows to {count} records of 100 bytes; latencies of a ping every ms",
            entries=tuple(growth),
            goals=(
                *(Goal(label, "memory_mb", Bound(limit_mb), most=True) for label, limit_mb in limits_mb.items()),
                *(Goal(label, "max_ms", Bound(_STALL_MS_MAX), most=True) for label in limits_mb),
            ),
            rounds_max=1,
        ),
        Row(
            name="snapshot",
            title=f"put, 8 connections, one at a time each, beside a backlog of {count}",
            entries=(Entry(CALM, _measure_snapshot(False)), Entry(DURING, _measure_snapshot(True))),
            goals=(Goal(DURING, "p99_ms", Bound(_STALL_MS_MAX), most=True),),
            rounds_max=1,
        ),
    )
