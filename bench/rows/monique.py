"""The MoniQue door: messages that components push by ZeroMQ, delivered to subscribers on ZeroMQ and on WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Callable

from bench.dialogues import monique
from bench.load import drive
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.quantiles import quantile
from bench.rows.common import open_connections
from bench.servers import MoniquePenstock

ZEROMQ = "penstock, 10 ZeroMQ subscribers"
WEBSOCKET = "penstock, 100 WebSocket subscribers"
WEBSOCKET_HALF = "the same, 2,500/s"
_ZEROMQ_SUBSCRIBERS = 10
_WEBSOCKET_SUBSCRIBERS = 100
_RATE_PER_S = 2_500
_WINDOW = 800
"""Below the thousand messages that ZeroMQ holds for a subscriber before it drops what comes next."""
_WARM_UP_SHARE = 0.3


def _measure(
    connect: Callable[[MoniquePenstock], socket.socket],
    make: Callable[[], monique.Subscriber],
    subscribers: int,
    rate_per_s: float | None = None,
) -> Callable[[Bench], Sample]:
    """One publisher, and so many subscribers that each get all of it."""

    def measure(bench: Bench) -> Sample:
        with (
            MoniquePenstock(bench.workshop) as server,
            server.connect_component() as component,
            open_connections(subscribers, lambda: connect(server)) as sockets,
        ):
            if connect is MoniquePenstock.connect_zeromq_subscriber:
                monique.await_subscriptions(component, sockets)
            _publish(component, sockets, make, rate_per_s, bench.plan.seconds * _WARM_UP_SHARE)
            meter = server.meter()
            with meter:
                publisher = _publish(component, sockets, make, rate_per_s, bench.plan.seconds)
            latencies_ns = publisher.delivery_latencies_ns()
            return {
                **meter.figures(publisher.sent),
                "p50_ms": quantile(latencies_ns, 0.5) / 1e6,
                "p99_ms": quantile(latencies_ns, 0.99) / 1e6,
            }

    return measure


def _publish(
    component: socket.socket,
    sockets: list[socket.socket],
    make: Callable[[], monique.Subscriber],
    rate_per_s: float | None,
    seconds: float,
) -> monique.Publisher:
    subscribers = [make() for _ in sockets]
    publisher = monique.Publisher(subscribers, _WINDOW, rate_per_s)
    drive([(component, publisher), *zip(sockets, subscribers, strict=True)], seconds)
    return publisher


_by_zeromq = (MoniquePenstock.connect_zeromq_subscriber, monique.zeromq_subscriber, _ZEROMQ_SUBSCRIBERS)
_by_websocket = (MoniquePenstock.connect_websocket_subscriber, monique.websocket_subscriber, _WEBSOCKET_SUBSCRIBERS)

ROWS = (
    Row(
        name="monique",
        title="MoniQue door, pushed by ZeroMQ, each message to every subscriber",
        entries=(
            Entry(ZEROMQ, _measure(*_by_zeromq)),
            Entry(WEBSOCKET, _measure(*_by_websocket)),
            Entry(WEBSOCKET_HALF, _measure(*_by_websocket, _RATE_PER_S)),
        ),
        goals=(
            Goal(ZEROMQ, "rate_per_s", Bound(20_000)),
            Goal(WEBSOCKET, "rate_per_s", Bound(5_000)),
            Goal(WEBSOCKET_HALF, "p99_ms", Bound(50), most=True),
        ),
    ),
)
