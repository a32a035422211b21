"""Large payloads beside Redis, and many queues beside one."""

from __future__ import annotations

from collections.abc import Callable

from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import open_connections, run_for, sample_of
from bench.rows.put import PENSTOCK, REDIS
from bench.servers import Penstock, Redis

_CONNECTIONS = 8
_KIB = 1024
_SIZES = {"16 KiB": 16 * _KIB, "256 KiB": 256 * _KIB, "1 MiB": 1024 * _KIB}
_QUEUES = 9_000
ONE_QUEUE = "penstock, 1 queue"
MANY_QUEUES = "penstock, 9,000 queues"


def _measure_large(make_server: type[Redis] | type[Penstock], payload_bytes: int) -> Callable[[Bench], Sample]:
    def measure(bench: Bench) -> Sample:
        with make_server(bench.workshop) as server, open_connections(_CONNECTIONS, server.connect) as sockets:
            meter = server.meter()
            loads = run_for(meter, sockets, lambda: server.large_puts(payload_bytes), bench.plan.seconds)
            sample = sample_of(meter, loads)
            return {**sample, "written_mb_per_s": sample["rate_per_s"] * payload_bytes / 1e6}

    return measure


def _measure_queues(count: int) -> Callable[[Bench], Sample]:
    def measure(bench: Bench) -> Sample:
        with Penstock(bench.workshop) as server, open_connections(64, server.connect) as sockets:
            server.create_queues(count)
            meter = server.meter()
            return sample_of(meter, run_for(meter, sockets, lambda: server.puts(1), bench.plan.seconds))

    return measure


ROWS = (
    *(
        Row(
            name=f"put-{label.replace(' ', '').lower()}",
            title=f"put {label} payloads, {_CONNECTIONS} connections, one at a time each",
            entries=(
                Entry(REDIS, _measure_large(Redis, payload_bytes)),
                Entry(PENSTOCK, _measure_large(Penstock, payload_bytes)),
            ),
            goals=(Goal(PENSTOCK, "rate_per_s", Bound(0.9, REDIS), Bound(1.0, REDIS)),),
        )
        for label, payload_bytes in _SIZES.items()
    ),
    Row(
        name="put-queues",
        title="put, 64 connections, beside many queues that are empty",
        entries=(Entry(ONE_QUEUE, _measure_queues(0)), Entry(MANY_QUEUES, _measure_queues(_QUEUES))),
        goals=(Goal(MANY_QUEUES, "rate_per_s", Bound(0.95, ONE_QUEUE), Bound(1.0, ONE_QUEUE)),),
    ),
)
