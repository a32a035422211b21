"""Putting records: one at a time on one and on many connections, and as fast as a window allows."""

from __future__ import annotations

from collections.abc import Callable

from bench.load import Dialogue
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import open_connections, run_for, sample_of
from bench.servers import Beanstalkd, Broker, Floor, InlineFloor, Penstock, Redis

_WINDOW = 1_000
_FRAMES_IN_FLIGHT = 10

FLOOR = "floor"
INLINE_FLOOR = "floor, sync in its loop"
REDIS = "redis"
BEANSTALKD = "beanstalkd"
PENSTOCK = "penstock"
BATCHED = "penstock, frames of 100"
SINGLE = "penstock, single frames"


def measure_puts(make_server: type[Floor] | type[Broker], count: int, window: int) -> Callable[[Bench], Sample]:
    """Puts on so many connections, each with a window of its own."""

    def measure(bench: Bench) -> Sample:
        with make_server(bench.workshop) as server, open_connections(count, server.connect) as sockets:
            meter = server.meter()
            return sample_of(meter, run_for(meter, sockets, lambda: server.puts(window), bench.plan.seconds))

    return measure


def _measure_batched_puts(bench: Bench) -> Sample:
    with Penstock(bench.workshop) as server, open_connections(1, server.connect) as sockets:
        meter = server.meter()

        def make() -> Dialogue:
            return server.batched_puts(_FRAMES_IN_FLIGHT)

        return sample_of(meter, run_for(meter, sockets, make, bench.plan.seconds))


def _one_at_a_time(count: int) -> tuple[Entry, ...]:
    servers: list[tuple[str, type[Floor] | type[Broker]]] = [
        (FLOOR, Floor),
        (PENSTOCK, Penstock),
        (INLINE_FLOOR, InlineFloor),
        (REDIS, Redis),
        (BEANSTALKD, Beanstalkd),
    ]
    return tuple(Entry(label, measure_puts(server, count, 1)) for label, server in servers)


ROWS = (
    Row(
        name="put-1",
        title="put, 1 connection, one at a time",
        entries=_one_at_a_time(1),
        goals=(Goal(PENSTOCK, "rate_per_s", Bound(0.8, FLOOR), Bound(5_500)),),
        known="floor 5,200; beanstalkd 7,900, PostgreSQL 4,800, Redis 4,000, NATS 3,100, RabbitMQ quorum 1,600",
    ),
    Row(
        name="put-64",
        title="put, 64 connections, one at a time each",
        entries=_one_at_a_time(64),
        goals=(Goal(PENSTOCK, "rate_per_s", Bound(0.5, FLOOR), Bound(55_000)),),
        known="floor 74,600; Redis 55,000, RabbitMQ 19,000, PostgreSQL 19,000, beanstalkd 8,500, NATS 5,400",
    ),
    Row(
        name="put-batch",
        title="put, 1 connection, window of 1,000",
        entries=(
            Entry(REDIS, measure_puts(Redis, 1, _WINDOW)),
            Entry(BATCHED, _measure_batched_puts),
            Entry(SINGLE, measure_puts(Penstock, 1, _WINDOW)),
            Entry(FLOOR, measure_puts(Floor, 1, _WINDOW)),
            Entry(BEANSTALKD, measure_puts(Beanstalkd, 1, _WINDOW)),
        ),
        goals=(
            Goal(BATCHED, "rate_per_s", Bound(0.7, REDIS), Bound(1.5, REDIS)),
            Goal(BATCHED, "cpu_us", Bound(7), Bound(2.5), most=True),
        ),
        known="Redis 210,000 to 290,000 at 3 µs, PostgreSQL in batches 258,000, RabbitMQ 46,000 to 70,000",
    ),
)
