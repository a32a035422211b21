"""Subscriptions: pushes come in order, what nobody asked for goes back, and a broken connection is mended."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from penstock.client import Client, ClientClosed, ConnectionLost, NoSuchQueue, Subscription
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import Done, Handled, Taken
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.scripted import Peer, Request, ScriptedNode, delivery, meet, settle, start, taken


async def subscribe(client: Client, peer: Peer, **options: Any) -> tuple[Subscription, Request]:
    """A subscription that the node has agreed to, and the request that made it."""
    subscription = client.queue("q").subscribe(**options)
    entering = start(subscription.__aenter__())
    request = await peer.receive(m.SUBSCRIBE)
    peer.answer(request, Done())
    await entering
    return subscription, request


async def end(subscription: Subscription, peer: Peer, request: Request) -> None:
    """Close a subscription that holds nothing."""
    closing = start(subscription.close())
    stop = await peer.receive(m.UNSUBSCRIBE)
    assert stop.body == m.Unsubscribe(request.number)
    peer.answer(stop, Done())
    await closing


def test_pushes_are_handed_out_in_order_with_their_tokens(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer, window=5, lease=2)
            assert request.body == m.Subscribe("q", 5, 2_000)
            peer.push(request, taken(1, 2, token=7))
            peer.push(request, taken(3, token=9))
            messages = [await anext(subscription) for _ in range(3)]
            assert [message.handle for message in messages] == [(1, 7), (2, 7), (3, 9)]
            acking = start(messages[0].ack())
            ack = await peer.receive(c.ACK)
            assert ack.body == c.Ack("q", [(1, 7)])
            peer.answer(ack, Handled(1))
            await acking
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_pushes_may_come_before_the_answer(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription = client.queue("q").subscribe()
            entering = start(subscription.__aenter__())
            request = await peer.receive(m.SUBSCRIBE)
            peer.push(request, taken(1))
            peer.answer(request, Done())
            await entering
            assert (await anext(subscription)).id == 1
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_what_nobody_asked_for_goes_back_when_it_ends(run: Run) -> None:
    """Also what the node pushed while it was being told to stop."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            peer.push(request, taken(1, 2, 3))
            assert (await anext(subscription)).id == 1
            closing = start(subscription.close())
            stop = await peer.receive(m.UNSUBSCRIBE)
            peer.push(request, taken(4, token=8))
            peer.answer(stop, Done())
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(2, 7), (3, 7), (4, 8)], c.UNSENT)
            peer.answer(back, Handled(3))
            await closing
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
            await client.close()

    run(main)


def test_a_closed_subscription_ends_iterations_that_wait(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)

            ids: list[int] = []
            came = asyncio.Event()

            async def iterate() -> None:
                async for message in subscription:
                    ids.append(message.id)
                    came.set()

            iterating = start(iterate())
            peer.push(request, taken(1))
            await came.wait()
            await end(subscription, peer, request)
            await iterating
            assert ids == [1]
            await client.close()

    run(main)


def test_a_waiter_that_is_cancelled_takes_nothing_with_it(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            waiter = start(subscription.take_next())
            await settle()
            # The push wakes the waiter, which is cancelled before it can run.
            subscription.pushed(taken(1))
            waiter.cancel()
            await asyncio.wait({waiter})
            assert waiter.cancelled()
            assert (await anext(subscription)).id == 1
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_several_consumers_share_a_subscription(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            consumers = [start(subscription.take_next()) for _ in range(3)]
            await settle()
            for number in (1, 2, 3):
                peer.push(request, taken(number))
            assert sorted([(await consumer).id for consumer in consumers]) == [1, 2, 3]
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_a_queue_can_be_iterated_and_a_break_ends_the_subscription(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)

            async def first_two() -> list[int]:
                ids = []
                async for message in client.queue("q"):
                    ids.append(message.id)
                    if len(ids) == 2:
                        break
                return ids

            iterating = start(first_two())
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            peer.push(request, taken(1, 2, 3))
            assert await iterating == [1, 2]
            gc.collect()
            peer.answer(await peer.receive(m.UNSUBSCRIBE), Done())
            back = await peer.receive(c.RETURN)
            assert back.body.handles == [(3, 7)]
            peer.answer(back, Handled(1))
            await client.close()

    run(main)


def test_a_refused_subscription_raises(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            entering = start(client.queue("q").subscribe().__aenter__())
            peer.refuse(await peer.receive(m.SUBSCRIBE), codes.NO_SUCH_QUEUE)
            with pytest.raises(NoSuchQueue):
                await entering
            await client.close()

    run(main)


def test_a_cancelled_subscription_is_taken_back(run: Run) -> None:
    """It was asked for and may yet be made: so the node is told to forget it, in that order."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            entering = start(client.queue("q").subscribe().__aenter__())
            request = await peer.receive(m.SUBSCRIBE)
            entering.cancel()
            stop = await peer.receive(m.UNSUBSCRIBE)
            assert stop.body == m.Unsubscribe(request.number)
            peer.answer(request, Done())
            peer.push(request, taken(1))
            peer.answer(stop, Done())
            back = await peer.receive(c.RETURN)
            peer.answer(back, Handled(1))
            await asyncio.wait({entering})
            assert entering.cancelled()
            await client.close()

    run(main)


def test_after_a_reconnect_it_is_made_again_and_what_waited_goes_back_first(run: Run) -> None:
    """Else the window would be filled twice. The node pushes it again, in its order."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer, window=3)
            peer.push(request, taken(1, 2, 3))
            held = await anext(subscription)
            await peer.drop()
            peer = await node.accept()
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(2, 7), (3, 7)], c.UNSENT)
            peer.answer(back, Handled(2))
            again = await peer.receive(m.SUBSCRIBE)
            assert again.body == request.body
            assert again.number > request.number
            peer.answer(again, Done())
            peer.push(again, taken(2, token=11))
            assert (await anext(subscription)).handle == (2, 11)
            acking = start(held.ack())
            peer.answer(await peer.receive(c.ACK), Handled(1))
            await acking
            await end(subscription, peer, again)
            await client.close()

    run(main)


def test_a_subscription_asked_for_on_a_connection_that_broke_is_asked_for_again(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription = client.queue("q").subscribe()
            entering = start(subscription.__aenter__())
            request = await peer.receive(m.SUBSCRIBE)
            await peer.drop()
            peer = await node.accept()
            again = await peer.receive(m.SUBSCRIBE)
            assert again == request
            peer.answer(again, Done())
            await entering
            peer.push(again, taken(1))
            assert (await anext(subscription)).id == 1
            await end(subscription, peer, again)
            await client.close()

    run(main)


def test_a_subscription_that_cannot_be_made_again_raises(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, retry_timeout=0.05)
            subscription, _ = await subscribe(client, peer)
            node.deafen()
            await peer.drop()
            with pytest.raises(ConnectionLost):
                await anext(subscription)
            await subscription.close()
            await client.close()

    run(main)


def test_a_subscription_closed_while_there_is_no_connection_is_not_made_again(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, _ = await subscribe(client, peer)
            node.deafen()
            await peer.drop()
            while client.link.connected:
                await asyncio.sleep(0)
            await settle()
            await subscription.close()
            await node.listen()
            peer = await node.accept()
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            await client.close()

    run(main)


def test_a_subscription_that_the_node_ends_raises_and_is_taken_back(run: Run) -> None:
    """Its queue was deleted, say. What came before is handed out first."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            peer.push(request, taken(1))
            peer.refuse(request, codes.NO_SUCH_QUEUE)
            assert (await anext(subscription)).id == 1
            with pytest.raises(NoSuchQueue):
                await anext(subscription)
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_a_subscription_of_a_stopping_node_is_made_again(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            peer.refuse(request, codes.STOPPING)
            peer = await node.accept()
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            peer.push(request, taken(1))
            assert (await anext(subscription)).id == 1
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_what_waited_beyond_its_lease_is_not_handed_out(run: Run) -> None:
    """The node has given it to somebody else by now, or pushes it again."""

    async def main() -> None:
        async with ScriptedNode() as node:
            node.log_time_us = 1_000_000_000
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            past, future = 999_000_000, 1_600_000_000
            records = [delivery(1, lease_until_us=past), delivery(2, lease_until_us=future), delivery(3)]
            peer.push(request, Taken(7, records))
            assert [(await anext(subscription)).id for _ in range(2)] == [2, 3]
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(1, 7)], c.UNSENT), "its place in the window must come back"
            peer.answer(back, Handled(0, [0]))
            await end(subscription, peer, request)
            await client.close()

    run(main)


def test_closing_the_client_ends_its_subscriptions_and_gives_back(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            subscription, request = await subscribe(client, peer)
            peer.push(request, taken(1, 2))
            assert (await anext(subscription)).id == 1
            closing = start(client.close())
            peer.answer(await peer.receive(m.UNSUBSCRIBE), Done())
            back = await peer.receive(c.RETURN)
            assert back.body.handles == [(2, 7)]
            peer.answer(back, Handled(1))
            await closing
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)

    run(main)


def test_a_subscription_on_a_closed_client_raises(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, _ = await meet(node)
            await client.close()
            with pytest.raises(ClientClosed):
                async with client.queue("q").subscribe():
                    pass

    run(main)
