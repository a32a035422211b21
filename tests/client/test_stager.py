"""The blocking link and the stager on it: parts under way, repeats after a loss, and who is told of a refusal.

They block, so here they run on a thread while the loop plays the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import blocking
from penstock.client.errors import (
    BatchIncomplete,
    BatchNotStaged,
    ConnectionLost,
    HandshakeRefused,
    KeyOutOfRange,
    OutcomeUnknown,
    Refused,
)
from penstock.client.stager import PARTS_IN_FLIGHT_MAX, Stager
from penstock.engine import commands as c
from penstock.engine.answers import Created, Done, Published
from penstock.engine.errors import (
    BATCH_INCOMPLETE,
    BATCH_NOT_STAGED,
    KEY_OUT_OF_RANGE,
    NO_SUCH_QUEUE,
    NOT_LEADER,
    OUTCOME_UNKNOWN,
    QUEUE_EXISTS,
    STOPPING,
)
from penstock.testing import TestServer
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.proxy import CuttingProxy
from tests.client.scripted import ScriptedNode, refusal_bytes, start

PUTS = [("q", [c.Item(0, b"payload")])]


class Explained(Exception):
    """What a test raises for a refusal."""


def explain(refusal: Refused) -> Exception:
    return Explained(refusal)


def staging(stager: Stager, parts: int) -> Callable[[], None]:
    """Stages so many parts and waits for them; to be run on a thread."""

    def work() -> None:
        for part in range(parts):
            stager.stage(1, 2, part, PUTS, explain)
        stager.flush()

    return work


def beside(work: Callable[..., Any], *args: Any) -> asyncio.Task[Any]:
    return start(asyncio.to_thread(work, *args))


def test_parts_are_under_way_at_a_time_but_not_too_many(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(staging(stager, PARTS_IN_FLIGHT_MAX + 1))
                peer = await node.accept()
                requests = [await peer.receive(c.STAGE) for _ in range(PARTS_IN_FLIGHT_MAX)]
                assert [request.body for request in requests] == [
                    c.Stage("w", 3, 1, 2, part, PUTS) for part in range(PARTS_IN_FLIGHT_MAX)
                ]
                # The connection is made when the first answer is waited for, so all that is under way came at once.
                assert peer.received_none()
                peer.answer(requests[2], Done(1))
                last = await peer.receive(c.STAGE)
                assert last.body.part == PARTS_IN_FLIGHT_MAX
                for request in (requests[0], requests[1], *requests[3:], last):
                    assert not work.done()
                    peer.answer(request, Done(1))
                await work

    run(main)


def test_what_a_lost_connection_leaves_is_sent_again_in_its_order(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(staging(stager, 3))
                peer = await node.accept()
                first, *others = [await peer.receive(c.STAGE) for _ in range(3)]
                peer.answer(first, Done(1))
                await asyncio.sleep(0)
                await peer.drop()
                peer = await node.accept()
                for request in others:
                    repeat = await peer.receive(c.STAGE)
                    assert repeat == request
                    peer.answer(repeat, Done(1))
                await work

    run(main)


@pytest.mark.parametrize("code", [NOT_LEADER, STOPPING, OUTCOME_UNKNOWN])
def test_a_node_that_sends_us_on_is_left_and_the_next_one_asked(run: Run, code: int) -> None:
    async def main() -> None:
        async with ScriptedNode() as node, ScriptedNode() as other:
            url = f"{node.url},127.0.0.1:{other.port}"
            with Stager(url, "w", 3) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                peer = await node.accept()
                peer.refuse(await peer.receive(c.PUBLISH), code)
                peer = await other.accept()
                request = await peer.receive(c.PUBLISH)
                assert request.body == c.Publish("w", 3, [(1, 2)], 5)
                peer.answer(request, Published(5, True))
                assert await work == Published(5, True)

    run(main)


def test_a_refused_part_is_explained_by_who_sent_it(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(staging(stager, 2))
                peer = await node.accept()
                peer.answer(await peer.receive(c.STAGE), Done(1))
                peer.refuse(await peer.receive(c.STAGE), KEY_OUT_OF_RANGE, "too great", (0, 9, 17))
                with pytest.raises(Explained) as told:
                    await work
                refusal = told.value.args[0]
                assert isinstance(refusal, KeyOutOfRange)
                assert refusal.position == 17

    run(main)


def test_a_refused_publication_is_raised_with_its_figures(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                peer = await node.accept()
                peer.refuse(await peer.receive(c.PUBLISH), BATCH_INCOMPLETE, "4 are staged", (4, 5))
                with pytest.raises(BatchIncomplete) as told:
                    await work
                assert told.value.figures == (4, 5)

    run(main)


def test_queues_are_found_and_made(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(stager.has_queue, "there")
                peer = await node.accept()
                peer.refuse(await peer.receive(m.SHOW_QUEUE), NO_SUCH_QUEUE)
                assert await work is False
                work = beside(stager.create_queue, "there")
                request = await peer.receive(c.CREATE_QUEUE)
                assert request.body == c.CreateQueue("there", c.QueueSettings(), True)
                peer.answer(request, Created(7, True))
                await work
                work = beside(stager.create_queue, "there")  # as somebody else just did, with settings of his own
                peer.refuse(await peer.receive(c.CREATE_QUEUE), QUEUE_EXISTS)
                await work

    run(main)


def test_when_nobody_answers_a_publication_that_was_sent_has_an_unknown_outcome(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3, retry_timeout=0.0) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                peer = await node.accept()
                await peer.receive(c.PUBLISH)
                node.deafen()
                await peer.drop()
                with pytest.raises(OutcomeUnknown, match="Publish"):
                    await work
            message = f"no connection to 127.0.0.1:{node.port}"
            with Stager(node.url, "w", 3, retry_timeout=0.0) as stager, pytest.raises(ConnectionLost, match=message):
                await beside(stager.publish, [(1, 2)], 5)

    run(main)


def test_a_request_that_ends_every_connection_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "_RETRY_EVERY_S", 0.0)

    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                for _ in range(10):
                    peer = await node.accept()
                    await peer.receive(c.PUBLISH)
                    await peer.drop()
                with pytest.raises(OutcomeUnknown):
                    await work

    run(main)


def test_a_refused_handshake_is_told_with_the_address(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.handshake_answer = b"a\x01" + refusal_bytes(b"b", "too new")
            message = f"127.0.0.1:{node.port} refused the handshake: too new"
            with Stager(node.url, "w", 3) as stager, pytest.raises(HandshakeRefused, match=message):
                await beside(stager.abort)

    run(main)


def test_a_part_whose_answer_was_lost_is_kept_once(run: Run) -> None:
    async def main() -> None:
        async with TestServer() as server, CuttingProxy(server.port) as proxy:
            with Stager(proxy.url, "w", 0) as stager:
                await beside(stager.create_queue, "q")
                cut = start(proxy.cut_after_the_next_answer())
                await asyncio.sleep(0)
                await beside(staging(stager, 3))
                await cut
                cut = start(proxy.cut_after_the_next_answer())
                await asyncio.sleep(0)
                published = await beside(stager.publish, [(1, 2)], 3)
                await cut
                # It was published when the first answer was lost; the repeat is told so, and adds nothing.
                assert published == Published(0, False)
            assert proxy.cuts == 2
            queue = server.server.node.engine.state.by_name["q"]
            assert queue.totals.put == 3

    run(main)


# The last batch of a query, which the node does not remember.


def test_a_last_batch_whose_answer_was_lost_is_told_what_it_was_told_first(run: Run) -> None:
    """The node has forgotten the query by then, but not what it told the producer."""

    async def main() -> None:
        async with TestServer() as server, CuttingProxy(server.port) as proxy:
            with Stager(server.url, "w", 0, is_last=True) as stager:
                await beside(stager.create_queue, "q")
                await beside(staging(stager, 3))
            state = server.server.node.engine.state
            with Stager(proxy.url, "w", 0, is_last=True) as stager:
                cut = start(proxy.cut_after_the_next_answer(lambda: state.by_name["q"].totals.put > 0))
                await asyncio.sleep(0)
                assert await beside(stager.publish, [(1, 2)], 3) == Published(3, True)
                await cut
            assert proxy.cuts == 1
            assert state.by_name["q"].totals.put == 3
            assert state.published == {}
            assert [len(producer.answers) for producer in state.producers.values()] == [1]

    run(main)


def test_every_connection_says_the_same_producer_before_a_last_batch(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3, is_last=True) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                peer = await node.accept()
                request = await peer.receive(c.PUBLISH)
                assert request.body == c.Publish("w", 3, [(1, 2)], 5, True)
                assert peer.hello is not None
                producer = peer.hello.producer
                assert producer > 0
                await peer.drop()
                peer = await node.accept()
                assert await peer.receive(c.PUBLISH) == request
                assert peer.hello is not None
                assert peer.hello.producer == producer
                peer.answer(request, Published(5, True))
                assert await work == Published(5, True)
                # Parts need no producer: each would cost the node the memory of another one.
                work = beside(staging(stager, 1))
                peer = await node.accept()
                part = await peer.receive(c.STAGE)
                assert part.body == c.Stage("w", 3, 1, 2, 0, PUTS, True)
                assert peer.hello is not None
                assert peer.hello.producer == 0
                peer.answer(part, Done(1))
                await work

    run(main)


@pytest.mark.parametrize(("losses", "expected"), [(0, BatchNotStaged), (1, OutcomeUnknown)])
def test_a_last_batch_that_is_not_staged_may_have_been_published_by_the_first_try(
    run: Run, losses: int, expected: type[Exception]
) -> None:
    """It was, if the node has forgotten the producer meanwhile. Nobody may be told then to write it again."""

    async def main() -> None:
        async with ScriptedNode() as node:
            with Stager(node.url, "w", 3, is_last=True) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                for _ in range(losses):
                    peer = await node.accept()
                    await peer.receive(c.PUBLISH)
                    await peer.drop()
                peer = await node.accept()
                peer.refuse(await peer.receive(c.PUBLISH), BATCH_NOT_STAGED, "nothing is staged", (1, 2))
                with pytest.raises(expected, match="nothing is staged"):
                    await work

    run(main)


def test_a_node_that_stops_while_it_is_greeted_is_left(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node, ScriptedNode() as other:
            node.answers_hello = lambda peer, request: peer.refuse(request, STOPPING, "it stops")
            with Stager(f"{node.url},127.0.0.1:{other.port}", "w", 3, is_last=True) as stager:
                work = beside(stager.publish, [(1, 2)], 5)
                peer = await other.accept()
                peer.answer(await peer.receive(c.PUBLISH), Published(5, True))
                assert await work == Published(5, True)

    run(main)
