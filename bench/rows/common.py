"""What rows share: connections, warming up, filling, and turning a drive into a sample."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from bench.cpu import Meter
from bench.errors import ServerFailed
from bench.load import Dialogue, drive
from bench.model import Plan, Sample
from bench.quantiles import quantile
from bench.servers import Broker

_WARM_UP_SHARE = 0.2
_FILL_SECONDS = 0.5


@contextmanager
def open_connections(count: int, connect: Callable[[], socket.socket]) -> Iterator[list[socket.socket]]:
    """So many connections, closed at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect()) for _ in range(count)]


def latencies_ms(dialogues: Iterable[Dialogue]) -> Sample:
    """Median and 99th percentile of all latencies that were noted; nothing where none were."""
    values = [value for dialogue in dialogues for value in dialogue.latencies_ns]
    if not values:
        return {}
    return {"p50_ms": quantile(values, 0.5) / 1e6, "p99_ms": quantile(values, 0.99) / 1e6}


def run_for(meter: Meter, sockets: list[socket.socket], make: Callable[[], Dialogue], seconds: float) -> list[Dialogue]:
    """The same load on each connection, after a short one that is not measured."""
    drive([(connection, make()) for connection in sockets], seconds * _WARM_UP_SHARE)
    dialogues = [make() for _ in sockets]
    with meter:
        drive([*zip(sockets, dialogues, strict=True)], seconds)
    return dialogues


def sample_of(meter: Meter, dialogues: Iterable[Dialogue]) -> Sample:
    """Rate, CPU and latencies of what was run."""
    loads = [*dialogues]
    return {**meter.figures(sum(load.completed for load in loads)), **latencies_ms(loads)}


def drain(
    server: Broker, sockets: list[socket.socket], make: Callable[[], Dialogue], plan: Plan, records: int
) -> Sample:
    """Measure a load that empties a queue: fill, drain, fill again, until enough time was spent draining."""
    meter = server.meter()
    done: list[Dialogue] = []
    warm = False
    with server.connect() as filler:
        while meter.wall_s < plan.seconds * 0.95:
            drive([(filler, server.fill(records))], _FILL_SECONDS)
            if not warm:
                drive([(connection, make()) for connection in sockets], plan.seconds * _WARM_UP_SHARE)
                drive([(filler, server.fill(records))], _FILL_SECONDS)
                warm = True
            dialogues = [make() for _ in sockets]
            with meter:
                drive([*zip(sockets, dialogues, strict=True)], plan.seconds - meter.wall_s)
            if not any(dialogue.completed for dialogue in dialogues):
                raise ServerFailed(server.name, "it was filled, and nothing could be taken")
            done += dialogues
    return sample_of(meter, done)
