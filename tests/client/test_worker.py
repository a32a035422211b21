"""Workers: what becomes of a message when its function returns, raises, takes long, or is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import textwrap
import threading
from typing import Any

import pytest

from penstock.client import Backoff, Client, Message, NoSuchQueue, Worker, sync, worker
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import Done, Handled, Taken
from penstock.engine.views import QueueView
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.scripted import Peer, Request, ScriptedNode, delivery, meet, settle, start, taken

BACKOFF = Backoff(first=1, factor=2, cap=10, jitter=0)


async def begin(work: Worker, client: Client, peer: Peer) -> tuple[asyncio.Task[None], Request]:
    """A worker that has subscribed with a lease of its own, and the request by which it did."""
    serving = start(work.serve(client))
    request = await peer.receive(m.SUBSCRIBE)
    peer.answer(request, Done())
    return serving, request


async def answer_unsubscribe(peer: Peer) -> None:
    peer.answer(await peer.receive(m.UNSUBSCRIBE), Done())


async def end(work: Worker, serving: asyncio.Task[None], client: Client, peer: Peer) -> None:
    """Stop an idle worker."""
    work.stop()
    await answer_unsubscribe(peer)
    await serving
    await client.close()


def test_a_message_is_acknowledged_when_its_function_returns(run: Run) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        @worker("q", lease=60)
        async def work(message: Message) -> None:
            seen.append(message.payload)

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            assert request.body == m.Subscribe("q", 1, 60_000)
            peer.push(request, Taken(7, [delivery(1, b"hello")]))
            ack = await peer.receive(c.ACK)
            assert (ack.body, seen) == (c.Ack("q", [(1, 7)]), [b"hello"])
            peer.answer(ack, Handled(1))
            await end(work, serving, client, peer)

    run(main)


@pytest.mark.parametrize(("deliveries", "delay_ms"), [(1, 1_000), (2, 2_000), (4, 8_000), (5, 10_000), (90, 10_000)])
def test_a_message_comes_back_later_and_later_when_its_function_raises(
    run: Run, deliveries: int, delay_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        @worker("q", lease=60, backoff=BACKOFF)
        async def work(message: Message) -> None:
            raise RuntimeError("out of order")

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, Taken(7, [delivery(1, deliveries=deliveries)]))
            nack = await peer.receive(c.RETURN)
            assert nack.body == c.Return("q", [(1, 7)], c.NACK, delay_ms, 0, "RuntimeError: out of order")
            peer.answer(nack, Handled(1))
            await end(work, serving, client, peer)

    run(main)
    assert "out of order" in caplog.text


def test_a_function_may_settle_its_message_itself(run: Run) -> None:
    async def main() -> None:
        @worker("q", lease=60)
        async def work(message: Message) -> None:
            await message.bury()
            raise RuntimeError("this changes nothing any more")

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            for number in (1, 2):
                peer.push(request, taken(number))
                bury = await peer.receive(c.BURY)
                assert bury.body.handles == [(number, 7)]
                peer.answer(bury, Handled(1))
            await end(work, serving, client, peer)

    run(main)


def test_no_more_functions_run_than_the_concurrency_says(run: Run) -> None:
    """Even if the node pushes more, as it can after a reconnect."""

    async def main() -> None:
        running: set[int] = set()
        go_on = asyncio.Event()

        @worker("q", concurrency=2, lease=60)
        async def work(message: Message) -> None:
            running.add(message.id)
            await go_on.wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            assert request.body.window == 2
            peer.push(request, taken(1, 2, 3))
            while len(running) < 2:
                await asyncio.sleep(0)
            await settle()
            assert running == {1, 2}
            go_on.set()
            for _ in range(3):
                peer.answer(await peer.receive(c.ACK), Handled(1))
            assert running == {1, 2, 3}
            await end(work, serving, client, peer)

    run(main)


def test_leases_are_extended_at_half_of_their_time_together(run: Run) -> None:
    async def main() -> None:
        @worker("q", concurrency=2, lease=0.2)
        async def work(message: Message) -> None:
            await asyncio.Event().wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            began = asyncio.get_running_loop().time()
            until_us = node.log_time_us + 200_000
            records = [delivery(n, lease_until_us=until_us) for n in (1, 2)]
            peer.push(request, Taken(7, records))
            for rounds in (1, 2):
                extend = await peer.receive(c.EXTEND)
                # Not before half of it is over; how late, only a quiet machine can tell.
                assert asyncio.get_running_loop().time() - began >= 0.08 * rounds
                assert sorted(extend.body.handles) == [(1, 7), (2, 7)]
                assert extend.body.lease_ms == 200
                peer.answer(extend, Handled(2))
            work.stop(now=True)
            seen: list[int] = []
            while seen.count(c.RETURN) < 2 or m.UNSUBSCRIBE not in seen:
                request = await peer.receive()
                seen.append(request.op)
                peer.answer(request, Done() if request.op == m.UNSUBSCRIBE else Handled(1))
            await serving
            await client.close()

    run(main)


def test_a_lost_lease_is_told_once_and_not_acknowledged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        @worker("q", lease=0.05)
        async def work(message: Message) -> None:
            await go_on.wait()
            go_on.clear()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, Taken(7, [delivery(1, lease_until_us=node.log_time_us + 50_000)]))
            peer.answer(await peer.receive(c.EXTEND), Handled(0, [0]))
            while "was lost" not in caplog.text:
                await asyncio.sleep(0)
            go_on.set()
            peer.push(request, taken(2))
            while go_on.is_set():
                await asyncio.sleep(0)
            go_on.set()
            ack = await peer.receive(c.ACK)
            assert ack.body.handles == [(2, 7)]
            peer.answer(ack, Handled(1))
            await end(work, serving, client, peer)

    run(main)


def test_the_length_of_a_lease_is_the_queues_unless_said(run: Run) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        @worker("q")
        async def work(message: Message) -> None:
            await go_on.wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving = start(work.serve(client))
            settings = c.QueueSettings(lease_ms=100)
            info = QueueView("q", 1, settings, False, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
            peer.answer(await peer.receive(m.SHOW_QUEUE), info)
            request = await peer.receive(m.SUBSCRIBE)
            assert request.body.lease_ms is None
            peer.answer(request, Done())
            peer.push(request, Taken(7, [delivery(1, lease_until_us=node.log_time_us + 100_000)]))
            extend = await peer.receive(c.EXTEND)
            assert extend.body.lease_ms == 100
            go_on.set()
            peer.answer(extend, Handled(1))
            peer.answer(await peer.receive(c.ACK), Handled(1))
            await end(work, serving, client, peer)

    run(main)


def test_stopping_takes_no_more_and_lets_what_runs_finish(run: Run) -> None:
    async def main() -> None:
        go_on, began = asyncio.Event(), asyncio.Event()

        @worker("q", lease=60)
        async def work(message: Message) -> None:
            began.set()
            await go_on.wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, taken(1, 2))
            await began.wait()
            work.stop()
            await answer_unsubscribe(peer)
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(2, 7)], c.UNSENT), "it never reached the function"
            peer.answer(back, Handled(1))
            await settle()
            assert not serving.done()
            go_on.set()
            ack = await peer.receive(c.ACK)
            assert ack.body.handles == [(1, 7)]
            peer.answer(ack, Handled(1))
            await serving
            await client.close()

    run(main)


@pytest.mark.parametrize("how", ["grace", "now", "cancel"])
def test_what_is_unfinished_after_the_grace_is_given_back(run: Run, how: str) -> None:
    async def main() -> None:
        began = asyncio.Event()

        @worker("q", lease=60, grace=0.02 if how == "grace" else 60)
        async def work(message: Message) -> None:
            began.set()
            await asyncio.Event().wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, taken(1))
            await began.wait()
            if how == "cancel":
                serving.cancel()
            else:
                work.stop(now=how == "now")
            await answer_unsubscribe(peer)
            back = await peer.receive(c.RETURN)
            assert back.body == c.Return("q", [(1, 7)], c.RELEASE)
            peer.answer(back, Handled(1))
            await asyncio.wait({serving})
            assert serving.cancelled() == (how == "cancel")
            await client.close()

    run(main)


def test_without_a_connection_a_worker_ends_without_giving_back(run: Run) -> None:
    """Its leases run out; waiting for a node that may never come back would be worse."""

    async def main() -> None:
        began = asyncio.Event()

        @worker("q", lease=60)
        async def work(message: Message) -> None:
            began.set()
            await asyncio.Event().wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, taken(1))
            await began.wait()
            node.deafen()
            await peer.drop()
            while client.link.connected:
                await asyncio.sleep(0)
            work.stop(now=True)
            await serving
            await client.close()

    run(main)


def test_a_lease_longer_than_the_workers_is_not_cut_short(run: Run) -> None:
    """The message has one of its own. It is extended when half of that is over, and by as much."""

    async def main() -> None:
        go_on = asyncio.Event()

        @worker("q", lease=0.05)
        async def work(message: Message) -> None:
            await go_on.wait()

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            peer.push(request, Taken(7, [delivery(1, lease_until_us=node.log_time_us + 400_000)]))
            extend = await peer.receive(c.EXTEND)
            assert extend.body.lease_ms == 1_000, "whole seconds, so that many can go together"
            peer.answer(extend, Handled(1))
            go_on.set()
            peer.answer(await peer.receive(c.ACK), Handled(1))
            await end(work, serving, client, peer)

    run(main)


def test_plain_functions_run_in_threads_with_blocking_messages(run: Run) -> None:
    async def main() -> None:
        threads: list[str] = []

        @worker("q", lease=60, backoff=BACKOFF)
        def work(message: sync.Message) -> None:
            threads.append(threading.current_thread().name)
            if message.id == 1:
                message.nack(delay=3)
            elif message.id == 2:
                raise RuntimeError("out of order")

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, request = await begin(work, client, peer)
            wanted: list[tuple[int, Any]] = [
                (1, c.Return("q", [(1, 7)], c.NACK, 3_000)),
                (2, c.Return("q", [(2, 7)], c.NACK, 1_000, 0, "RuntimeError: out of order")),
                (3, c.Ack("q", [(3, 7)])),
            ]
            for number, body in wanted:
                peer.push(request, taken(number))
                settling = await peer.receive()
                assert settling.body == body
                peer.answer(settling, Handled(1))
            assert all("penstock-worker" in name for name in threads)
            await end(work, serving, client, peer)

    run(main)


def test_a_worker_outlives_a_broken_connection(run: Run) -> None:
    async def main() -> None:
        @worker("q", lease=60)
        async def work(message: Message) -> None: ...

        async with ScriptedNode() as node:
            client, peer = await meet(node, retry_timeout=0.05)
            serving, _ = await begin(work, client, peer)
            node.deafen()
            await peer.drop()
            while client.link.connected or not any("going on" in text for text in texts):
                await asyncio.sleep(0.01)
            await node.listen()
            peer = await node.accept()
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            peer.push(request, taken(1))
            peer.answer(await peer.receive(c.ACK), Handled(1))
            await end(work, serving, client, peer)

    texts: list[str] = []

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    notes = Notes()
    logger = logging.getLogger("penstock.worker")
    logger.addHandler(notes)
    try:
        run(main)
    finally:
        logger.removeHandler(notes)


def test_a_missing_queue_ends_the_worker(run: Run) -> None:
    async def main() -> None:
        @worker("q")
        async def work(message: Message) -> None: ...

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving = start(work.serve(client))
            peer.refuse(await peer.receive(m.SHOW_QUEUE), codes.NO_SUCH_QUEUE)
            with pytest.raises(NoSuchQueue):
                await serving
            await client.close()

    run(main)


def test_a_worker_serves_once_at_a_time(run: Run) -> None:
    async def main() -> None:
        @worker("q", lease=60)
        async def work(message: Message) -> None: ...

        async with ScriptedNode() as node:
            client, peer = await meet(node)
            serving, _ = await begin(work, client, peer)
            with pytest.raises(RuntimeError, match="serving already"):
                await work.serve(client)
            await end(work, serving, client, peer)

    run(main)


def test_a_worker_can_be_called_like_its_function() -> None:
    @worker("q")
    def work(message: Any) -> None:
        """Doubles."""
        message.append(2)

    messages: list[int] = []
    work(messages)
    assert (messages, work.__doc__) == ([2], "Doubles.")


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": 10**6}, {"lease": 0}])
def test_workers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a worker"):
        worker("q", **wrong)(lambda message: None)


PROGRAM = """
    import asyncio, sys
    from penstock.client import worker

    @worker("q", lease=60, grace=60)
    async def work(message):
        if message.payload == b"stuck":
            await message.extend(60)
            await asyncio.Event().wait()

    work.run(sys.argv[1])
    print("ended in good order")
"""


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stuck", [False, True])
def test_signals_end_a_program_in_good_order(run: Run, stop_signal: signal.Signals, stuck: bool) -> None:
    """The first signal waits for what runs, the second gives it back."""

    async def main() -> None:
        async with ScriptedNode() as node:
            program = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                textwrap.dedent(PROGRAM),
                node.url,
                stdout=asyncio.subprocess.PIPE,
            )
            peer = await node.accept()
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            peer.push(request, Taken(7, [delivery(1, b"stuck" if stuck else b"quick")]))
            peer.answer(await peer.receive(c.EXTEND if stuck else c.ACK), Handled(1))
            program.send_signal(stop_signal)
            await answer_unsubscribe(peer)
            if stuck:
                program.send_signal(stop_signal)
                back = await peer.receive(c.RETURN)
                assert back.body == c.Return("q", [(1, 7)], c.RELEASE)
                peer.answer(back, Handled(1))
            output, _ = await program.communicate()
            assert (program.returncode, output) == (0, b"ended in good order\n")

    run(main)
