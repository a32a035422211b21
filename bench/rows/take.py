"""Taking and acknowledging: one at a time, and in windows on several connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bench.load import Dialogue
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import drain, open_connections, run_for, sample_of
from bench.rows.put import BEANSTALKD, FLOOR, PENSTOCK, REDIS, measure_puts
from bench.servers import Beanstalkd, Broker, Floor, Penstock, Redis

FLOOR_PAIRS = "floor, two requests"
ACK_AND_TAKE = "penstock, ack-and-take"
_CONNECTIONS = 8
_WINDOW = 100
_RECORDS_ONE_AT_A_TIME = 10_000

_Kind = TypeVar("_Kind", bound=Broker)


def _measure_takes(
    make_server: type[_Kind], make_load: Callable[[_Kind], Dialogue], count: int, records_max: int | None = None
) -> Callable[[Bench], Sample]:
    """A load that empties a queue, on so many connections."""

    def measure(bench: Bench) -> Sample:
        records = min(bench.plan.fill_records_max, records_max or bench.plan.fill_records_max)
        with make_server(bench.workshop) as server, open_connections(count, server.connect) as sockets:
            return drain(server, sockets, lambda: make_load(server), bench.plan, records)

    return measure


def _measure_floor_pairs(bench: Bench) -> Sample:
    with Floor(bench.workshop) as server, open_connections(1, server.connect) as sockets:
        meter = server.meter()
        return sample_of(meter, run_for(meter, sockets, server.pairs, bench.plan.seconds))


def _one_at_a_time(server: Broker) -> Dialogue:
    return server.takes(1)


def _windows(server: Broker) -> Dialogue:
    return server.takes(_WINDOW)


ROWS = (
    Row(
        name="take-1",
        title="take + ack, 1 connection, one at a time (floor: one request per message)",
        entries=(
            Entry(FLOOR, measure_puts(Floor, 1, 1)),
            Entry(PENSTOCK, _measure_takes(Penstock, _one_at_a_time, 1, _RECORDS_ONE_AT_A_TIME)),
            Entry(ACK_AND_TAKE, _measure_takes(Penstock, Penstock.ack_and_takes, 1, _RECORDS_ONE_AT_A_TIME)),
            Entry(FLOOR_PAIRS, _measure_floor_pairs),
            Entry(REDIS, _measure_takes(Redis, _one_at_a_time, 1, _RECORDS_ONE_AT_A_TIME)),
            Entry(BEANSTALKD, _measure_takes(Beanstalkd, _one_at_a_time, 1, _RECORDS_ONE_AT_A_TIME)),
        ),
        goals=(
            Goal(PENSTOCK, "rate_per_s", Bound(0.42, FLOOR), Bound(2_600)),
            Goal(ACK_AND_TAKE, "rate_per_s", Bound(0.7, FLOOR), Bound(4_500)),
        ),
        known="beanstalkd 7,000, Redis 2,300, PostgreSQL 2,000, RabbitMQ 1,600",
    ),
    Row(
        name="take-8",
        title="take + ack, 8 connections, windows of 100",
        entries=(
            Entry(REDIS, _measure_takes(Redis, _windows, _CONNECTIONS)),
            Entry(PENSTOCK, _measure_takes(Penstock, _windows, _CONNECTIONS)),
            Entry(BEANSTALKD, _measure_takes(Beanstalkd, _windows, _CONNECTIONS)),
        ),
        goals=(
            Goal(PENSTOCK, "rate_per_s", Bound(0.6, REDIS), Bound(1.2, REDIS)),
            Goal(PENSTOCK, "cpu_us", Bound(10), Bound(6), most=True),
        ),
        known="Redis 158,000, PostgreSQL 109,000, RabbitMQ 88,000",
    ),
)
