"""From put to take: how old a record is when a waiting worker gets it, at a rate that keeps nobody busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bench.dialogues.shapes import Taking
from bench.load import drive
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import latencies_ms
from bench.rows.put import BEANSTALKD, PENSTOCK, REDIS
from bench.servers import Beanstalkd, Broker, Penstock, Redis

SUBSCRIBED = "penstock, subscription"
_RATE_PER_S = 200
_SECONDS_FACTOR = 3
"""So many times longer than other loads: at this rate a second has but two records above its 99th percentile."""
_WARM_UP_SHARE = 0.1

_Kind = TypeVar("_Kind", bound=Broker)


def _measure_latency(make_server: type[_Kind], make_taker: Callable[[_Kind], Taking]) -> Callable[[Bench], Sample]:
    """A producer that sends by the clock and a taker that waits, each on a connection of its own."""

    def measure(bench: Bench) -> Sample:
        with make_server(bench.workshop) as server, server.connect() as puts, server.connect() as takes:
            producer, taker = server.stamped_puts(_RATE_PER_S), make_taker(server)
            taker.watch(producer)
            meter = server.meter()
            with meter:
                drive([(takes, taker), (puts, producer)], bench.plan.seconds * _SECONDS_FACTOR)
            del taker.latencies_ns[: int(len(taker.latencies_ns) * _WARM_UP_SHARE)]
            return {**meter.figures(producer.sent), **latencies_ms([taker])}

    return measure


ROWS = (
    Row(
        name="latency",
        title="put → take latency at 200/s",
        entries=(
            Entry(REDIS, _measure_latency(Redis, Redis.waiting_takes)),
            Entry(PENSTOCK, _measure_latency(Penstock, Penstock.waiting_takes)),
            Entry(SUBSCRIBED, _measure_latency(Penstock, Penstock.subscription)),
            Entry(BEANSTALKD, _measure_latency(Beanstalkd, Beanstalkd.waiting_takes)),
        ),
        goals=(
            Goal(PENSTOCK, "p50_ms", Bound(1.3, REDIS), Bound(0.35), most=True),
            Goal(PENSTOCK, "p99_ms", Bound(1.3, REDIS), Bound(0.7), most=True),
        ),
        known="beanstalkd 0.38 / 0.7 ms, Redis 0.43 / 0.8, RabbitMQ quorum 0.94 / 1.3",
    ),
)
