"""`penstock bench`: a small load test against a running node, in a queue of its own.

The load comes from one Python process through the SDK, so what it measures is node and client together, on this
machine and this network.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from penstock.cli.connecting import DEFAULT_URL, client_name, client_options
from penstock.cli.output import progress, write_json, write_table
from penstock.cli.parameters import DURATION

if TYPE_CHECKING:
    from penstock.client import Queue

SECONDS_MAX: Final = 600.0
CONNECTIONS_MAX: Final = 1_000
SIZE_BYTES_MAX: Final = 16 * 1024 * 1024


class Load(NamedTuple):
    """What is asked of the node."""

    seconds: float
    size_bytes: int
    connections: int
    batch: int


class Result(NamedTuple):
    """What one kind of work came to. Latencies are those of single requests."""

    work: str
    messages: int
    seconds: float
    latencies: list[float]

    @property
    def per_second(self) -> float:
        """Messages in a second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def percentile_ms(self, percent: float) -> float:
        """The latency that so many percent of the requests stayed within."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000 if ordered else 0.0


@click.command()
@click.option("--seconds", type=DURATION, default=2, help="How long each kind of work lasts.  [default: 2s]")
@click.option("--size", "size_bytes", type=click.IntRange(0, SIZE_BYTES_MAX), default=100, help="Payload bytes.")
@click.option("--connections", type=click.IntRange(1, CONNECTIONS_MAX), default=8, help="Connections at a time.")
@click.option("--batch", type=click.IntRange(1, 1000), default=100, help="Messages per request where they are batched.")
@client_options
def bench(seconds: float, size_bytes: int, connections: int, batch: int, url: str | None, as_json: bool) -> None:
    """Measure a running node.

    It makes a queue of its own and deletes it at the end; other queues are not touched, but feel the load.
    """
    if not 0 < seconds <= SECONDS_MAX:
        raise click.UsageError(f"--seconds lies between 0 and {SECONDS_MAX:g}.")
    load = Load(seconds, size_bytes, connections, batch)
    results = asyncio.run(_measure(url or DEFAULT_URL, load))
    if as_json:
        for result in results:
            write_json(_shape(result))
        return
    rows = [
        (
            f"{result.per_second:,.0f}",
            f"{result.percentile_ms(50):.2f}",
            f"{result.percentile_ms(99):.2f}",
            result.messages,
            result.work,
        )
        for result in results
    ]
    write_table(("MESSAGES/S", "P50 MS", "P99 MS", "MESSAGES", "WORK"), rows)


def _shape(result: Result) -> dict[str, object]:
    return {
        "work": result.work,
        "messages": result.messages,
        "seconds": result.seconds,
        "per_second": result.per_second,
        "p50_ms": result.percentile_ms(50),
        "p99_ms": result.percentile_ms(99),
    }


async def _measure(url: str, load: Load) -> list[Result]:
    from penstock.client import connect

    name = f"penstock-bench-{secrets.token_hex(6)}"
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(url, name=client_name())) for _ in range(load.connections)]
        queues = [client.queue(name) for client in clients]
        await queues[0].create()
        try:
            return await _run_all(queues, load)
        finally:
            await queues[0].drop()


async def _run_all(queues: list[Queue], load: Load) -> list[Result]:
    payload = secrets.token_bytes(load.size_bytes)
    batch = [payload] * load.batch

    async def put_one(queue: Queue) -> int:
        await queue.put(payload)
        return 1

    async def put_batch(queue: Queue) -> int:
        await queue.put_each(batch)
        return len(batch)

    async def take_one(queue: Queue) -> int:
        message = await queue.take()
        if message is None:
            return 0
        await message.ack()
        return 1

    async def take_batch(queue: Queue) -> int:
        messages = await queue.take_many(load.batch)
        if messages:
            await queue.ack(messages)
        return len(messages)

    async def put_and_take(queue: Queue) -> int:
        waiting = asyncio.ensure_future(queue.take(wait=10))
        await queue.put(payload)
        message = await waiting
        if message is not None:
            await message.ack()
        return 1

    single = f"{load.connections} connections, one at a time"
    batched = f"{load.connections} connections, {load.batch} at a time"
    works: list[tuple[str, list[Queue], Callable[[Queue], Awaitable[int]]]] = [
        (f"put, {single}", queues, put_one),
        (f"take and ack, {single}", queues, take_one),
        (f"put, {batched}", queues, put_batch),
        (f"take and ack, {batched}", queues, take_batch),
        ("put to a waiting take and ack, 1 connection", queues[:1], put_and_take),
    ]
    results = []
    with progress("measuring", len(works)) as bar:
        for number, (work, chosen, step) in enumerate(works, 1):
            results.append(await _run(work, chosen, step, load.seconds))
            if step in (take_one, take_batch):
                await queues[0].purge()
            bar.update(number)
    return results


async def _run(work: str, queues: list[Queue], step: Callable[[Queue], Awaitable[int]], seconds: float) -> Result:
    """Do one kind of work on all connections until the time is over, or there is nothing left to do it with."""
    latencies: list[float] = []
    clock = time.perf_counter
    began = clock()

    async def repeat(queue: Queue) -> int:
        done = 0
        while clock() - began < seconds:
            before = clock()
            count = await step(queue)
            latencies.append(clock() - before)
            if not count:
                break
            done += count
        return done

    counts = await asyncio.gather(*(repeat(queue) for queue in queues))
    return Result(work, sum(counts), clock() - began, latencies)
