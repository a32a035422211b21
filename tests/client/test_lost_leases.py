"""A worker or subscription whose leases end early goes on working: no place in its window is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.client import Client, LeaseLost, Message, Queue, connect, connect_sync, subscription, sync, worker
from penstock.engine.views import QueueView
from tests.client.conftest import Run
from tests.client.scripted import start

testing = pytest.importorskip("penstock.testing")


@pytest.fixture(autouse=True)
def _often_reminded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "REMIND_SECONDS", 0.05)


@asynccontextmanager
async def meet() -> AsyncIterator[tuple[Client, Queue]]:
    async with testing.TestServer() as server, connect(server.url) as client:
        queue = client.queue("q")
        await queue.create()
        yield client, queue


async def until(condition: Callable[[QueueView], bool], queue: Queue) -> None:
    """Wait until the figures of a queue satisfy a condition."""
    while not condition(await queue.info()):
        await asyncio.sleep(0.01)


def test_a_worker_goes_on_while_the_function_of_a_lost_message_hangs(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        began, hang = asyncio.Event(), asyncio.Event()
        done: list[str] = []

        @worker("q", lease=0.2)
        async def work(message: Message) -> None:
            if message.text == "lost":
                began.set()
                await hang.wait()
            done.append(message.text)

        async with meet() as (client, queue):
            serving = start(work.serve(client))
            lost = await queue.put("lost")
            await began.wait()
            await queue.delete(lost.id)
            await queue.put_many(["a", "b"])
            await until(lambda info: info.acked == 2, queue)
            assert done == ["a", "b"]
            hang.set()
            await queue.put("c")
            await until(lambda info: info.acked == 3, queue)
            assert done == ["a", "b", "lost", "c"]
            work.stop()
            await serving

    run(main)
    assert "was lost while its function runs" in caplog.text


def test_no_more_than_the_concurrency_of_lost_functions_run_beside_others(run: Run) -> None:
    async def main() -> None:
        running: set[str] = set()
        most = 0
        hang = asyncio.Event()

        @worker("q", lease=0.2)
        async def work(message: Message) -> None:
            nonlocal most
            running.add(message.text)
            most = max(most, len(running))
            await hang.wait()
            running.discard(message.text)

        async with meet() as (client, queue):
            serving = start(work.serve(client))
            for text in ("a", "b"):
                put = await queue.put(text)
                while text not in running:
                    await asyncio.sleep(0.01)
                await queue.delete(put.id)
            await queue.put("c")
            # The third is pushed, and given back when its lease ends: two hang, and there is no place for another.
            await until(lambda info: info.returned >= 1, queue)
            assert (running, most) == ({"a", "b"}, 2)
            hang.set()
            await until(lambda info: info.acked == 1, queue)
            work.stop()
            await serving

    run(main)


def test_a_message_whose_lease_ends_before_it_is_handed_out_leaves_its_place(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a function blocks the loop for longer than the lease: the message must be given up, not forgotten."""
    monkeypatch.setattr(subscription, "REMIND_SECONDS", 1000)

    async def main() -> None:
        async with meet() as (_, queue), queue.subscribe(window=1, lease=0.1) as messages:
            await queue.put("a")
            await until(lambda info: info.returned == 1, queue)
            again = await anext(messages)
            assert (again.text, again.deliveries) == ("a", 2)

    run(main)


def test_a_function_may_block_the_loop_for_longer_than_the_lease(run: Run) -> None:
    async def main() -> None:
        @worker("q", concurrency=2, lease=0.1)
        async def work(message: Message) -> None:
            if message.deliveries == 1:
                time.sleep(0.2)

        async with meet() as (client, queue):
            await queue.put_many(["a", "b", "c"])
            serving = start(work.serve(client))
            await until(lambda info: info.acked == 3, queue)
            work.stop()
            await serving

    run(main)


def test_a_plain_function_may_outlive_its_lease(run: Run) -> None:
    async def main() -> None:
        seen: list[int] = []

        @worker("q", lease=0.1)
        def work(message: sync.Message) -> None:
            seen.append(message.id)
            if message.deliveries == 1:
                delete_and_wait(message.id)

        async with meet() as (client, queue):

            def delete_and_wait(id: int) -> None:
                asyncio.run_coroutine_threadsafe(queue.delete(id), loop).result()
                time.sleep(0.3)

            loop = asyncio.get_running_loop()
            serving = start(work.serve(client))
            await queue.put_many(["a", "b", "c"])
            while len(seen) < 3:
                await asyncio.sleep(0.01)
            work.stop()
            await serving
            assert seen == [1, 2, 3]

    run(main)


def test_messages_that_were_forgotten_come_again(run: Run) -> None:
    """A client that neither acknowledges nor extends gets them again when their leases end and the window is free."""

    async def main() -> None:
        async with meet() as (_, queue):
            await queue.put_many(["a", "b"])
            async with queue.subscribe(window=1, lease=0.1) as messages:
                forgotten = await anext(messages)
                again = await anext(messages)
                assert (forgotten.text, again.text, again.deliveries) == ("a", "a", 2)
                await again.ack()
                following = await anext(messages)
                await queue.delete(following.id)
                await queue.put("c")
                assert (await anext(messages)).text == "c"

    run(main)


def test_a_long_job_without_extension_finds_its_lease_lost_and_the_next_message_comes(run: Run) -> None:
    async def main() -> None:
        async with meet() as (_, queue):
            await queue.put_many(["a", "b", "c"])
            done = []
            async with queue.subscribe(window=2, lease=0.1) as messages:
                async for message in messages:
                    if message.deliveries == 1:
                        await asyncio.sleep(0.3)
                        with pytest.raises(LeaseLost):
                            await message.ack()
                    else:
                        await message.ack()
                        done.append(message.text)
                    if len(done) == 3:
                        break
            assert sorted(done) == ["a", "b", "c"]

    run(main)


def test_the_blocking_client_goes_on_after_lost_leases() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put_many(["a", "b"])
        with queue.subscribe(window=1, lease=0.1) as messages:
            forgotten = next(messages)
            assert (forgotten.text, forgotten.deliveries) == ("a", 1)
            late = next(messages)
            assert (late.text, late.deliveries) == ("a", 2)
            while queue.get(late.id).state == "leased":
                time.sleep(0.01)
            with pytest.raises(LeaseLost):
                late.ack()
            last = next(messages)
            assert (last.text, last.deliveries) == ("a", 3)
            last.ack()
            assert next(messages).text == "b"
