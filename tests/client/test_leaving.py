"""Leaving early: calls that are cancelled, clients that are closed. Nothing is stuck, nothing is leaked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import (
    ClientClosed,
    OutcomeUnknown,
)
from penstock.client.protocol import IN_FLIGHT_MAX
from penstock.engine import commands as c
from penstock.engine.answers import AckTaken, Done, Handled, PutAnswer
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.scripted import ScriptedNode, meet, settle, start, taken

# Cancelling.


def test_a_cancelled_call_leaves_the_connection_as_it_was(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            request = await peer.receive(c.PUT)
            put.cancel()
            with pytest.raises(asyncio.CancelledError):
                await put
            peer.answer(request, PutAnswer(1, 1))
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            assert client.link.in_flight == 0
            await client.close()

    run(main)


def test_calls_cancelled_while_they_wait_for_room_take_none(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            for _ in range(IN_FLIGHT_MAX + 100):
                put = start(client.queue("q").put(b"x"))
                request = await peer.receive(c.PUT)
                put.cancel()
                peer.answer(request, PutAnswer(1, 1))
                await asyncio.wait({put})
            node.deafen()
            await peer.drop()
            for _ in range(IN_FLIGHT_MAX + 100):
                put = start(client.queue("q").put(b"x"))
                await asyncio.sleep(0)
                put.cancel()
                await asyncio.wait({put})
            await node.listen()
            peer = await node.accept()
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            await client.close()

    run(main)


def test_what_a_cancelled_take_gets_is_given_back(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take_many(2, wait=10))
            request = await peer.receive(c.TAKE)
            take.cancel()
            await asyncio.wait({take})
            peer.answer(request, taken(3, 4, token=9))
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(3, 9), (4, 9)], c.UNSENT)
            peer.answer(back, Handled(2))
            await client.close()

    run(main)


def test_a_take_cancelled_in_the_moment_of_its_answer_is_given_back(run: Run) -> None:
    """The answer has been read, but the caller has not run since."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take(wait=10))
            request = await peer.receive(c.TAKE)
            peer.answer(request, taken(3))
            while client.link.in_flight:
                await asyncio.sleep(0)
            take.cancel()
            with pytest.raises(asyncio.CancelledError):
                await take
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(3, 7)], c.UNSENT)
            peer.answer(back, Handled(1))
            await client.close()

    run(main)


def test_what_a_cancelled_ack_and_take_gets_is_given_back(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").ack_and_take((1, 2)))
            request = await peer.receive(c.ACK_TAKE)
            take.cancel()
            await asyncio.wait({take})
            peer.answer(request, AckTaken(Handled(1), taken(3)))
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(3, 7)], c.UNSENT)
            peer.answer(back, Handled(1))
            await client.close()

    run(main)


def test_a_cancelled_take_is_asked_about_after_a_reconnect_but_waits_no_more(run: Run) -> None:
    """If it was done before the connection broke, its records are leased and must be found."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take, put = start(client.queue("q").take(wait=10)), start(client.queue("q").put(b"x"))
            request = await peer.receive(c.TAKE)
            await peer.receive(c.PUT)
            assert 0 < request.body.wait_ms <= 10_000
            for call in (take, put):
                call.cancel()
                await asyncio.wait({call})
            await peer.drop()
            peer = await node.accept()
            again = await peer.receive(c.TAKE)
            assert (again.number, again.body.wait_ms) == (request.number, 0)
            peer.answer(again, taken(3))
            back = await peer.receive(c.RETURN)
            assert back.body.handles == [(3, 7)]
            peer.answer(back, Handled(1))
            await client.close()

    run(main)


def test_a_cancelled_final_take_gives_nothing_back(run: Run) -> None:
    """Its records have ended: there is no lease to return."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take(wait=10, final=True))
            request = await peer.receive(c.TAKE)
            take.cancel()
            await asyncio.wait({take})
            peer.answer(request, taken(3))
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            await client.close()

    run(main)


# Closing.


def test_closing_tells_every_call(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put, read = start(client.queue("q").put(b"x")), start(client.ping())
            await peer.receive(c.PUT)
            await client.close()
            with pytest.raises(OutcomeUnknown, match="closed"):
                await put
            with pytest.raises(ClientClosed):
                await read
            with pytest.raises(ClientClosed):
                await client.ping()
            await client.close()

    run(main)


def test_closing_ends_the_attempts_to_reconnect(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            node.deafen()
            await peer.drop()
            waiting = start(client.ping())
            await settle()
            await client.close()
            with pytest.raises(ClientClosed):
                await waiting
            assert asyncio.all_tasks() <= {asyncio.current_task(), *_outer_tasks()}

    run(main)


def _outer_tasks() -> set[Any]:
    """The task of the test's own frame, which waits for this one."""
    return {task for task in asyncio.all_tasks() if "guarded" in repr(task.get_coro())}


def test_status_is_asked_on_every_connection_for_the_clock(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.log_time_us = 5_000_000_000
            client, peer = await meet(node)
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            left = client.link.clock.seconds_until(5_060_000_000, asyncio.get_running_loop().time())
            assert left is not None
            assert 50 < left <= 60
            await client.close()

    run(main)
