"""The client against the real engine and the real door, without a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.client import (
    Backoff,
    Client,
    Item,
    KeyOutOfRange,
    LeaseLost,
    Message,
    NoSuchQueue,
    NoSuchRecord,
    PayloadTooLarge,
    PutResult,
    Queue,
    QueueExists,
    QueueFull,
    connect,
    connect_sync,
    sync,
    worker,
)
from tests.client.conftest import Run
from tests.client.proxy import CuttingProxy
from tests.client.scripted import start

testing = pytest.importorskip("penstock.testing")


@asynccontextmanager
async def meet() -> AsyncIterator[tuple[Client, Queue]]:
    """A client of a fresh server, and a queue."""
    async with testing.TestServer() as server, connect(server.url) as client:
        queue = client.queue("q")
        await queue.create()
        yield client, queue


async def ids_of(queue: Queue, **options: Any) -> list[int]:
    return [record.id async for record in queue.browse(**options)]


def test_a_client_without_a_url_goes_where_the_environment_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous and blocking, and over the default: nothing listens there in a test."""

    async def main() -> None:
        async with testing.TestServer() as server:
            monkeypatch.setenv("PENSTOCK_URL", server.url)
            async with connect() as client:
                await client.queue("q").create()

            def look() -> list[str]:
                with connect_sync() as blocking:
                    return [queue.name for queue in blocking.queues()]

            assert "q" in await asyncio.to_thread(look)

    run(main)


def test_the_life_of_a_message(run: Run) -> None:
    async def main() -> None:
        async with meet() as (_, queue):
            assert await queue.put("later", 5, headers={"a": "b"}) == PutResult(1, False)
            assert (await queue.put(b"sooner", -5)).id == 2
            assert [record.text for record in await queue.peek(2)] == ["sooner", "later"]
            first, second = await queue.take_many(10)
            assert (first.payload, second.text, second.headers) == (b"sooner", "later", {"a": "b"})
            assert abs(datetime.now(UTC) - second.published_at) < timedelta(minutes=5)
            assert second.lease_until is not None
            assert await queue.take() is None
            await first.ack()
            with pytest.raises(LeaseLost):
                await first.ack()
            await second.nack()
            again = await queue.take()
            assert again is not None
            assert (again.id, again.deliveries) == (1, 2)
            await again.release()
            record = await queue.get(1)
            assert (record.state, record.failures, record.releases, record.deliveries) == ("ready", 1, 1, 2)
            assert [event.id for event in await queue.history(1)] == [1] * 5
            with pytest.raises(NoSuchRecord):
                await queue.get(2)

    run(main)


def test_delays_and_deduplication(run: Run) -> None:
    async def main() -> None:
        async with meet() as (_, queue):
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            items = [Item("a", delay=3600), Item("b", at=tomorrow), Item("c", dedup_key="c"), Item("d", dedup_key="c")]
            outcomes = await queue.put_each(items)
            assert outcomes == [PutResult(1, False), PutResult(2, False), PutResult(3, False), PutResult(3, True)]
            assert await ids_of(queue, state="delayed") == [1, 2]
            moment = (await queue.get(2)).available_at
            assert moment is not None
            assert abs(moment - tomorrow) < timedelta(milliseconds=1)
            await queue.edit(1, key=-1, delay=0)
            assert await queue.kick(2) == 1
            assert [message.id for message in await queue.take_many(10)] == [1, 2, 3]

    run(main)


def test_limits_are_told_with_their_figures(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, _):
            small = client.queue("small")
            await small.create(implementation="qa", size_max=2, key_range=(0, 9), payload_bytes_max=3)
            with pytest.raises(KeyOutOfRange):
                await small.put("x", 10)
            with pytest.raises(PayloadTooLarge) as too_large:
                await small.put("long")
            assert too_large.value.limit == 3
            with pytest.raises(QueueFull) as full:
                await small.put_many(["1", "2", "3"])
            assert (full.value.limit, full.value.position) == (2, 2)
            with pytest.raises(KeyOutOfRange) as out_of_range:
                await client.put_many({"q": ["1"], "small": [Item("2", 77)]})
            assert (out_of_range.value.minimum, out_of_range.value.maximum, out_of_range.value.position) == (0, 9, 1)
            assert (await client.queue("q").info()).ready == 0, "all or none"
            outcomes = await small.put_each(["1", "2", "3"])
            assert outcomes[:2] == [PutResult(1, False), PutResult(2, False)]
            assert isinstance(outcomes[2], QueueFull)
            assert (outcomes[2].limit, outcomes[2].position) == (2, 2)

    run(main)


def test_queues_come_change_and_go(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            assert not (await queue.create(if_absent=True)).created
            with pytest.raises(QueueExists):
                await queue.create(lease=5)
            await queue.set(lease=5, size_max=10, deliveries_max=1, dead_letter="")
            await queue.set(size_max=None)
            settings = (await queue.info()).settings
            assert (settings.lease_ms, settings.size_max, settings.deliveries_max) == (5_000, None, 1)
            assert [view.name for view in await client.queues()] == ["", "q"]
            await queue.pause()
            await queue.put("x")
            assert await queue.take() is None
            assert (await queue.info()).paused
            await queue.resume()
            assert await queue.take() is not None
            await queue.drop()
            with pytest.raises(NoSuchQueue):
                await queue.info()
            await queue.put("x", create=True)
            assert await queue.purge() == 1

    run(main)


def test_an_operators_day(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            dead = client.queue("dead")
            await dead.create()
            await queue.set(deliveries_max=1, dead_letter="dead")
            await queue.put_many(["a", "b", "c", "d"])
            messages = await queue.take_many(2)
            handled = await queue.nack(messages)
            assert (handled.count, handled.lost) == (2, [])
            letters = [record async for record in dead.browse()]
            assert [(letter.text, letter.origin and letter.origin.id) for letter in letters] == [("a", 1), ("b", 2)]
            job = await dead.redrive()
            while not all(view.done for view in await client.jobs() if view.id == job):
                await client.ping()
            assert [record.text for record in await queue.peek(10)] == ["c", "d", "a", "b"]
            await queue.bury(3)
            assert await ids_of(queue, state="buried") == [3]
            assert await queue.kick(count=1) == 1
            assert (await queue.move(3, "dead")).count == 1
            assert (await queue.delete([4, 99])).lost == [1]
            with pytest.raises(NoSuchRecord):
                await queue.delete(99)

    run(main)


def test_staging_is_published_once(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            await client.stage("job", 1, {"q": ["a", "b"]}, partition=0, attempt=1)
            await client.stage("job", 2, {"q": ["z"]})
            assert (await queue.info()).ready == 0
            published = await client.publish("job", 1, [(0, 1)])
            assert (published.count, published.fresh) == (2, True)
            assert not (await client.publish("job", 1, [(0, 1)])).fresh
            await client.abort("job", 2)
            assert [message.text for message in await queue.take_many(10, wait=10)] == ["a", "b"]

    run(main)


def test_topics_reach_the_queues_bound_to_them(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            await client.bind("b", "q", spec="s", timeout=60)
            assert [(view.name, view.queue, view.timeout_ms) for view in await client.bindings()] == [
                ("b", "q", 60_000)
            ]
            await client.broadcast(1, b"tag", "body", spec="s", type="t")
            assert await queue.take(wait=10) is not None
            await client.unbind("b")
            assert await client.bindings() == []

    run(main)


def test_the_node_tells_of_itself(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, _):
            status = await client.status()
            welcome = client.link.welcome
            assert welcome is not None
            assert (status.cluster, status.node) == (welcome.cluster, welcome.node)
            assert await client.ping() < 10

    run(main)


def test_a_waiting_take_gets_what_is_put_later(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            take = start(queue.take(wait=None))
            await client.ping()
            await queue.put("x")
            message = await take
            following = start(queue.ack_and_take(message, wait=None))
            await client.ping()
            await queue.put("y")
            assert (await following).text == "y"
            assert message.settled

    run(main)


def test_a_cancelled_take_leaves_the_message_for_others_as_though_untouched(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            take = start(queue.take(wait=None))
            await client.ping()
            take.cancel()
            await asyncio.wait({take})
            await queue.put("x")
            message = await queue.take(wait=10)
            assert message is not None
            assert message.deliveries == 1

    run(main)


def test_a_subscription_keeps_to_its_window(run: Run) -> None:
    async def main() -> None:
        async with meet() as (client, queue):
            await queue.put_many([str(n) for n in range(10)])
            texts = []
            async with queue.subscribe(window=3) as messages:
                held = [await anext(messages) for _ in range(3)]
                await client.ping()
                assert (await queue.info()).leased == 3
                for message in held:
                    texts.append(message.text)
                    await message.ack()
                while len(texts) < 10:
                    message = await anext(messages)
                    texts.append(message.text)
                    await message.ack()
            assert texts == [str(n) for n in range(10)]
            info = await queue.info()
            assert (info.ready, info.leased, info.acked) == (0, 0, 10)

    run(main)


def test_what_a_subscription_holds_goes_back_when_it_ends(run: Run) -> None:
    async def main() -> None:
        async with meet() as (_, queue):
            await queue.put_many(["a", "b", "c"])
            async for message in queue:
                await message.ack()
                break
            while (await queue.info()).leased:
                pass
            assert [(record.text, record.deliveries) for record in await queue.peek(3)] == [("b", 0), ("c", 0)]

    run(main)


# Broken connections.


def test_puts_over_breaking_connections_are_done_once(run: Run) -> None:
    """The node does them, the answers are lost, the client repeats them: each is there once, in order."""

    async def main() -> None:
        async with testing.TestServer() as server, CuttingProxy(server.port) as proxy:
            client = await connect(proxy.url, reconnect=Backoff(first=0, cap=0))
            queue = client.queue("q")
            await queue.create()
            results: list[PutResult] = []
            for cut in range(10):
                puts = [start(queue.put(str(100 * cut + n))) for n in range(100)]
                await proxy.cut_after_the_next_answer()
                results += await asyncio.gather(*puts)
            assert proxy.cuts == 10
            assert [result.id for result in results] == list(range(1, 1001))
            texts = [record.text async for record in queue.browse(page=1000)]
            assert texts == [str(n) for n in range(1000)]
            await client.close()

    run(main)


def test_takes_over_breaking_connections_lose_nothing(run: Run) -> None:
    """What was taken for an answer that was lost is found again, or is back in its place."""

    async def main() -> None:
        async with testing.TestServer() as server, CuttingProxy(server.port) as proxy:
            client = await connect(proxy.url, reconnect=Backoff(first=0, cap=0))
            queue = client.queue("q")
            await queue.create()
            await queue.put_many([str(n) for n in range(110)])
            seen: list[str] = []
            for _ in range(10):
                takes = [start(queue.take_many(5, wait=10)) for _ in range(2)]
                await proxy.cut_after_the_next_answer()
                messages = [message for take in takes for message in await take]
                acks = [start(message.ack()) for message in messages]
                await proxy.cut_after_the_next_answer()
                for ack, message in zip(acks, messages, strict=True):
                    await ack
                    seen.append(message.text)
            while (message := await queue.take()) is not None:
                seen.append(message.text)
                await message.ack()
            assert sorted(seen, key=int) == [str(n) for n in range(110)]
            info = await queue.info()
            assert (info.ready, info.leased, info.acked) == (0, 0, 110)
            await client.close()

    run(main)


def test_a_take_that_emptied_the_queue_is_found_again(run: Run) -> None:
    async def main() -> None:
        async with testing.TestServer() as server, CuttingProxy(server.port) as proxy:
            client = await connect(proxy.url, reconnect=Backoff(first=0, cap=0))
            queue = client.queue("q")
            await queue.create()
            await queue.put("the only one")
            take = start(queue.take(wait=0.5))
            await proxy.cut_after_the_next_answer()
            message = await take
            await client.close()
            assert message is not None

    run(main)


def test_a_subscription_over_breaking_connections_loses_nothing(run: Run) -> None:
    """A record whose push was lost on the way comes back when its lease ends; all the others go on at once."""

    async def main() -> None:
        async with testing.TestServer() as server, CuttingProxy(server.port) as proxy:
            client = await connect(proxy.url, reconnect=Backoff(first=0, cap=0))
            queue = client.queue("q")
            await queue.create()
            await queue.put_many([str(n) for n in range(60)])
            seen: set[str] = set()
            async with queue.subscribe(window=10, lease=1.5) as messages:
                while len(seen) < 60:
                    message = await anext(messages)
                    if len(seen) % 10 == 5:
                        cutting = start(proxy.cut_after_the_next_answer())
                    seen.add(message.text)
                    await message.ack()
                    if len(seen) % 10 == 6:
                        await cutting
            assert proxy.cuts == 6
            info = await queue.info()
            assert (info.ready, info.leased, info.acked) == (0, 0, 60)
            await client.close()

    run(main)


# The blocking client.


def test_the_blocking_client_in_short() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        assert [result.id for result in queue.put_many(["a", "b", "c"])] == [1, 2, 3]
        message = queue.take()
        assert message is not None
        message.ack()
        with pytest.raises(LeaseLost):
            message.ack()
        texts = []
        for each in queue:
            texts.append(each.text)
            each.ack()
            if each.text == "c":
                break
        assert texts == ["b", "c"]
        assert list(queue.browse()) == []
        with pytest.raises(NoSuchQueue):
            client.queue("none").info()


def test_threads_share_the_work() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put_many([str(n) for n in range(100)])
        seen: list[str] = []

        def consume() -> None:
            while (message := queue.take()) is not None:
                seen.append(message.text)
                message.ack()

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen, key=int) == [str(n) for n in range(100)]


# Workers.


def test_a_worker_does_everything_once_and_tries_again_what_failed(run: Run) -> None:
    async def main() -> None:
        done: list[str] = []
        finished = asyncio.Event()

        @worker("q", concurrency=5, backoff=Backoff(first=0, cap=0))
        async def work(message: Message) -> None:
            if message.text.endswith("3") and message.deliveries < 3:
                raise RuntimeError("not yet")
            done.append(message.text)
            if len(done) == 50:
                finished.set()

        async with meet() as (client, queue):
            serving = start(work.serve(client))
            await queue.put_many([str(n) for n in range(50)])
            await finished.wait()
            work.stop()
            await serving
            info = await queue.info()
            assert (info.ready, info.delayed, info.leased, info.acked) == (0, 0, 0, 50)
            assert sorted(done, key=int) == [str(n) for n in range(50)]

    run(main)


def test_a_worker_keeps_its_lease_while_it_works(run: Run) -> None:
    async def main() -> None:
        done = asyncio.Event()
        async with meet() as (client, queue):

            @worker("q", lease=0.3)
            async def work(message: Message) -> None:
                first = (await queue.get(message.id)).lease_until
                while (await queue.get(message.id)).lease_until == first:
                    await asyncio.sleep(0.01)
                done.set()

            await queue.put("x")
            serving = start(work.serve(client))
            await done.wait()
            work.stop()
            await serving
            info = await queue.info()
            assert (info.acked, info.leased, info.ready, info.returned) == (1, 0, 0, 0)

    run(main)


def test_a_plain_function_works_in_threads(run: Run) -> None:
    async def main() -> None:
        finished = asyncio.Event()
        loop = asyncio.get_running_loop()
        lock, seen = threading.Lock(), set[str]()

        @worker("q", concurrency=3)
        def work(message: sync.Message) -> None:
            message.extend(30)
            with lock:
                seen.add(message.text)
                if len(seen) == 20:
                    loop.call_soon_threadsafe(finished.set)

        async with meet() as (client, queue):
            await queue.put_many([str(n) for n in range(20)])
            serving = start(work.serve(client))
            await finished.wait()
            work.stop()
            await serving
            assert (await queue.info()).acked == 20

    run(main)
