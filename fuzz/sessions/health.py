"""What must still work on a node after whatever its clients did."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import penstock
from penstock.client.history import HistoryReader
from penstock.wire.native import messages as m

_WITHIN_S: Final = 60.0
"""How long each thing may take; on a healthy node all of them take a second."""


class Unhealthy(Exception):
    """Something that a healthy node does did not happen."""

    code = "unhealthy"


async def check_health(url: str) -> None:
    """Puts, takes, leases, delays, events, snapshots and the history. Raises ``Unhealthy``."""
    async with penstock.connect(url) as client:
        queue = client.queue(f"health-{time.monotonic_ns()}")
        await queue.create()
        await _within("put, take and ack", _work(queue))
        await _within("the end of a delay", _delay(queue))
        await _within("the end of a lease", _lease(queue))
        await _within("a snapshot", _snapshot(client))
        await queue.drop()
    await _within("reading the history", asyncio.to_thread(_read_history, url))


async def wait_until_alone(url: str) -> None:
    """Wait until no connection is left but this one. Raises ``Unhealthy``."""

    async def alone() -> None:
        async with penstock.connect(url) as client:
            while (await client.status()).connections > 1:  # noqa: ASYNC110 - the node tells nobody when one leaves
                await asyncio.sleep(0.05)

    await _within("the end of all connections", alone())


async def _within(what: str, work: object) -> None:
    try:
        await asyncio.wait_for(work, _WITHIN_S)  # type: ignore[arg-type]
    except TimeoutError:
        raise Unhealthy(f"{what} did not happen within {_WITHIN_S:.0f} s") from None


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Unhealthy(what)


async def _work(queue: penstock.Queue) -> None:
    put = await queue.put_many([penstock.Item(b"work", key=key) for key in (3, 1, 2)])
    taken = await queue.take_many(10)
    _expect([message.key for message in taken] == [1, 2, 3], f"taken in the order {[each.key for each in taken]}")
    await queue.ack(taken)
    events = await queue.history(put[0].id)
    _expect(len(events) == 3, f"{len(events)} events of a message that was put, taken and acknowledged")


async def _delay(queue: penstock.Queue) -> None:
    await queue.put(b"later", delay=0.2)
    message = await queue.take(wait=_WITHIN_S)
    _expect(message is not None, "a delayed message did not come")
    assert message is not None
    await message.ack()


async def _lease(queue: penstock.Queue) -> None:
    await queue.put(b"leased")
    await queue.take(lease=0.2)
    again = await queue.take(wait=_WITHIN_S)
    _expect(again is not None and again.deliveries == 2, f"after a lease timed out: {again}")
    assert again is not None
    await again.ack()


async def _snapshot(client: penstock.Client) -> None:
    last = (await client.status()).applied_index
    while (await client.link.call(m.Snapshot(last, 10_000), m.SnapshotTaken)).index < 0:
        pass


def _read_history(url: str) -> None:
    with HistoryReader(url) as reader:
        reach = reader.reach()
        entries = 0
        for piece in reader.pieces(reach.first_index, reach.applied_index):
            entries += piece.last_index - piece.first_index + 1
        wanted = reach.applied_index - reach.first_index + 1
        _expect(entries == wanted, f"the history gave {entries} of {wanted} entries")
