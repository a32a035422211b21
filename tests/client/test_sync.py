"""The blocking client: what threads add to the asynchronous one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.client import ClientClosed, ConnectionLost, LeaseLost, OutcomeUnknown, connect_sync, sync
from penstock.client.portal import Portal, ThreadPortal
from penstock.engine import commands as c
from penstock.engine.answers import Done, Handled, PutAnswer
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.scripted import Peer, ScriptedNode, start, taken


async def meet(node: ScriptedNode, **options: Any) -> tuple[sync.Client, Peer]:
    client = await asyncio.to_thread(connect_sync, node.url, **options)
    return client, await node.accept()


def background(function: Any, *args: Any) -> asyncio.Task[Any]:
    return start(asyncio.to_thread(function, *args))


def test_threads_share_a_client(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            puts = [background(client.queue("q").put, b"x", n) for n in range(4)]
            for _ in puts:
                request = await peer.receive(c.PUT)
                peer.answer(request, PutAnswer(request.body.items[0].key + 10, 1))
            assert [(await put).id for put in puts] == [10, 11, 12, 13]
            await asyncio.to_thread(client.close)

    run(main)


def test_errors_arrive_as_they_are(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            taking = background(client.queue("q").take)
            peer.answer(await peer.receive(c.TAKE), taken(1))
            message = await taking
            acking = background(message.ack)
            peer.answer(await peer.receive(c.ACK), Handled(0, [0]))
            with pytest.raises(LeaseLost):
                await acking
            assert message.lost
            await asyncio.to_thread(client.close)

    run(main)


def test_closing_from_another_thread_ends_calls_that_wait(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            putting, asking = background(client.queue("q").put, b"x"), background(client.queues)
            for _ in range(2):
                await peer.receive()
            await asyncio.to_thread(client.close)
            with pytest.raises(OutcomeUnknown):
                await putting
            with pytest.raises(ClientClosed):
                await asking
            for _ in range(2):
                with pytest.raises(ClientClosed):
                    client.ping()
                client.close()

    run(main)


def test_a_subscription_is_a_context_manager_and_an_iterator(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)

            def use() -> list[int]:
                ids = []
                with client.queue("q").subscribe(window=4) as messages:
                    for message in messages:
                        ids.append(message.id)
                        message.ack()
                        if len(ids) == 2:
                            break
                return ids

            using = background(use)
            request = await peer.receive(m.SUBSCRIBE)
            assert request.body.window == 4
            peer.answer(request, Done())
            peer.push(request, taken(1, 2))
            for _ in range(2):
                peer.answer(await peer.receive(c.ACK), Handled(1))
            peer.answer(await peer.receive(m.UNSUBSCRIBE), Done())
            assert await using == [1, 2]
            await asyncio.to_thread(client.close)

    run(main)


def test_a_queue_can_be_iterated_and_a_break_ends_the_subscription(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)

            def use() -> int:
                for message in client.queue("q"):
                    return message.id
                return 0

            using = background(use)
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            peer.push(request, taken(1, 2))
            peer.answer(await peer.receive(m.UNSUBSCRIBE), Done())
            back = await peer.receive(c.RETURN)
            assert back.body.handles == [(2, 7)]
            peer.answer(back, Handled(1))
            assert await using == 1
            await asyncio.to_thread(client.close)

    run(main)


def test_a_failed_connect_leaves_no_thread_behind(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.deafen()
            before = set(threading.enumerate())
            with pytest.raises(ConnectionLost):
                connect_sync(node.url)
            assert {thread for thread in set(threading.enumerate()) - before if "penstock" in thread.name} == set()

    run(main)


def test_an_interrupted_wait_ends_the_work(run: Run) -> None:
    """As Ctrl-C does: the caller leaves, and what it waited for must not go on without it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        class Interrupted(Portal):
            def _submit(self, work: Any) -> Any:
                future = super()._submit(work)
                asyncio.run_coroutine_threadsafe(began.wait(), loop).result()
                real_cancel = future.cancel

                class Stub:
                    cancel = staticmethod(real_cancel)

                    def result(self) -> None:
                        raise KeyboardInterrupt

                return Stub()

        def call() -> str:
            try:
                Interrupted(loop).call(work())
            except KeyboardInterrupt:
                return "interrupted"
            return "returned"

        assert await asyncio.to_thread(call) == "interrupted"
        await ended.wait()

    run(main)


def test_the_blocking_client_refuses_to_wait_for_itself(run: Run) -> None:
    async def main() -> None:
        portal = Portal(asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="its own event loop"):
            portal.call(asyncio.sleep(0))

    run(main)


def test_what_is_handed_in_before_the_end_is_cancelled_by_it() -> None:
    portal = ThreadPortal()
    results: list[str] = []

    def wait_for_ever() -> None:
        try:
            portal.call(asyncio.Event().wait())
        except ClientClosed:
            results.append("closed")

    threads = [threading.Thread(target=wait_for_ever) for _ in range(8)]
    for thread in threads:
        thread.start()
    portal.close()
    for thread in threads:
        thread.join()
    assert results == ["closed"] * 8
    with pytest.raises(ClientClosed):
        portal.call(asyncio.sleep(0))
    portal.close()
