"""The TaskFlux door: what existing clients of that protocol get."""

from __future__ import annotations

from bench.dialogues import taskflux
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import drain, open_connections, run_for, sample_of
from bench.servers import Penstock

ENQUEUE = "penstock, enqueue with ack"
DEQUEUE = "penstock, dequeue with ack"
_CONNECTIONS = 32
_RECORDS = 30_000


def _measure_enqueue(bench: Bench) -> Sample:
    with Penstock(bench.workshop) as server, open_connections(_CONNECTIONS, server.connect_taskflux) as sockets:
        meter = server.meter()
        return sample_of(meter, run_for(meter, sockets, taskflux.Enqueue, bench.plan.seconds))


def _measure_dequeue(bench: Bench) -> Sample:
    records = min(_RECORDS, bench.plan.fill_records_max)
    with Penstock(bench.workshop) as server, open_connections(_CONNECTIONS, server.connect_taskflux) as sockets:
        return drain(server, sockets, taskflux.Dequeue, bench.plan, records)


ROWS = (
    Row(
        name="taskflux",
        title="TaskFlux door, 32 connections, one at a time each",
        entries=(Entry(ENQUEUE, _measure_enqueue), Entry(DEQUEUE, _measure_dequeue)),
        goals=(
            Goal(ENQUEUE, "rate_per_s", Bound(15_000), Bound(25_000)),
            Goal(DEQUEUE, "rate_per_s", Bound(8_000), Bound(15_000)),
        ),
        known="the original program 7,000 / 490",
    ),
)
