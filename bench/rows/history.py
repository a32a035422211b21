"""What a reader of the whole history costs those who put meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from bench.history_reader import ReaderProcess
from bench.load import drive
from bench.model import Bench, Bound, Entry, Goal, Row, Sample
from bench.rows.common import open_connections, run_for, sample_of
from bench.servers import Penstock

ALONE = "puts alone"
BESIDE = "puts beside a reader"
_FILL_SECONDS = 60.0
_SECONDS_FACTOR = 3


def _measure_puts(with_reader: bool) -> Callable[[Bench], Sample]:
    """Puts one at a time on one connection, after a history was made; a reader reads it over and over meanwhile."""

    def measure(bench: Bench) -> Sample:
        with Penstock(bench.workshop) as server, ExitStack() as stack:
            with server.connect() as filler:
                drive([(filler, server.fill(bench.plan.fill_records_max))], _FILL_SECONDS)
            (connection,) = stack.enter_context(open_connections(1, server.connect))
            meter = server.meter()
            reader = ReaderProcess(f"penstock://127.0.0.1:{server.port}") if with_reader else None
            if reader is not None:
                stack.enter_context(reader)
            seconds = bench.plan.seconds * _SECONDS_FACTOR
            sample = sample_of(meter, run_for(meter, [connection], lambda: server.puts(1), seconds))
            stack.close()
            return sample if reader is None else {**sample, "read_mb_per_s": reader.megabytes_per_s}

    return measure


ROWS = (
    Row(
        name="put-history",
        title="put latency, 1 connection, while the whole history is read",
        entries=(Entry(ALONE, _measure_puts(with_reader=False)), Entry(BESIDE, _measure_puts(with_reader=True))),
        goals=(
            Goal(BESIDE, "p50_ms", Bound(1.5, ALONE), Bound(1.1, ALONE), most=True),
            Goal(BESIDE, "p99_ms", Bound(2, ALONE), Bound(1.3, ALONE), most=True),
        ),
    ),
)
