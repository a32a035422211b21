"""Every operation of the engine and of the wire can be reached, and says on the wire what the caller said.

The table below is the list: a new operation without a row fails the first test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from penstock.client import Item, LeaseLost, Message, NoSuchRecord, PutResult, connect_sync
from penstock.client.messages import Record
from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine.views import BindingView, EventView, JobView, Page, QueueView, RecordView, StagedView
from penstock.wire.native import messages as m
from tests.client.conftest import Run
from tests.client.scripted import Peer, ScriptedNode, meet, start, status, taken

QUEUE = QueueView("q", 1, c.QueueSettings(), False, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
RECORD = RecordView(3, 5, b"hi", 0, 1, 1_000_000, 0, 0, 0, 0)
JOB = JobView(9, "q", None, 0, 0, False)
BINDING = BindingView("b", "s", "t", "q", 1000, False)
STAGED = StagedView("w", 1, 2, 3, 4, 5, 6, 7)
EVENT = EventView(1, 0, 0, 1, 1, 0, 5, 0, 1, 3, 5, 0, 0, 0, 0)
AT = datetime(2030, 1, 1, tzinfo=UTC)
AT_US = int(AT.timestamp()) * 1_000_000


class Row(NamedTuple):
    """How an operation is called, what must arrive, what is answered, and what the caller gets."""

    call: Callable[[Any], Any]
    """From a client, asynchronous or blocking: the call."""
    request: Any
    answer: Any
    result: Any = None


def message_call(method: str, *args: Any, **options: Any) -> Callable[[Any], Any]:
    """A call on a message that has been taken; ``is_message_row`` knows it by this function's name."""
    return lambda _client: (method, args, options)


HANDLES = [(3, 7)]

ROWS: list[Row] = [
    Row(
        lambda client: client.queue("q").create(
            implementation="qa",
            size_max=5,
            key_range=(0, 9),
            descending=True,
            lease=30,
            deliveries_max=3,
            dead_letter="dead",
            expires=60,
            dead_letter_expired=True,
            dedup_window=10,
            dedup_keys_max=100,
            payload_bytes_max=1000,
            if_absent=True,
        ),
        c.CreateQueue(
            "q", c.QueueSettings(c.QA, 5, 1000, (0, 9), True, 30_000, 3, "dead", 60_000, True, 10_000, 100), True
        ),
        a.Created(1, True),
        a.Created(1, True),
    ),
    Row(
        lambda client: client.queue("q").create(),
        c.CreateQueue("q", c.QueueSettings()),
        a.Created(1, True),
        a.Created(1, True),
    ),
    Row(
        lambda client: client.queue("q").set(size_max=None, lease=5, dead_letter="dead"),
        c.ChangeQueue("q", c.QueueChanges(size_max=None, lease_ms=5_000, dead_letter="dead")),
        a.Done(),
    ),
    Row(lambda client: client.queue("q").drop(), c.DeleteQueue("q"), a.Done()),
    Row(
        lambda client: client.queue("q").put("hi", 5, create=True),
        c.Put("q", [c.Item(5, b"hi")], True),
        a.PutAnswer(3, 1),
        PutResult(3, False),
    ),
    Row(
        lambda client: client.queue("q").put(b"hi", dedup_key="k"),
        c.Put("q", [c.Item(0, b"hi", c.Options(headers=Raw(b"\xc0"), dedup_key="k"))]),
        a.PutAnswer(0, 0, [(0, 0, 2)]),
        PutResult(2, True),
    ),
    Row(
        lambda client: client.queue("q").put_each([b"a", Item("b", 1)]),
        c.Put("q", [c.Item(0, b"a"), c.Item(1, b"b")]),
        a.PutAnswer(3, 2),
        [PutResult(3, False), PutResult(4, False)],
    ),
    Row(
        lambda client: client.queue("q").put_many(["a", "b"]),
        c.PutMany([("q", [c.Item(0, b"a"), c.Item(0, b"b")])]),
        a.PutManyAnswer([a.PutAnswer(3, 2)]),
        [PutResult(3, False), PutResult(4, False)],
    ),
    Row(
        lambda client: client.put_many({"q": ["a"], "r": [Item("b", 2)]}),
        c.PutMany([("q", [c.Item(0, b"a")]), ("r", [c.Item(2, b"b")])]),
        a.PutManyAnswer([a.PutAnswer(3, 1), a.PutAnswer(8, 0, [(0, 0, 6)])]),
        {"q": [PutResult(3, False)], "r": [PutResult(6, True)]},
    ),
    Row(lambda client: client.queue("q").take(), c.Take("q"), taken()),
    Row(
        lambda client: client.queue("q").take_many(10, lease=2.5, final=True),
        c.Take("q", 10, 2_500, 0, False, True),
        taken(),
        [],
    ),
    Row(lambda client: client.queue("q").ack([(3, 7)]), c.Ack("q", HANDLES), a.Handled(1), a.Handled(1)),
    Row(message_call("ack"), c.Ack("q", HANDLES), a.Handled(1)),
    Row(
        lambda client: client.queue("q").ack_and_take((3, 7), lease=4),
        c.AckTake("q", HANDLES, 1, 4_000),
        a.AckTaken(a.Handled(1), taken()),
    ),
    Row(
        lambda client: client.queue("q").ack_and_take_many([(3, 7)], 5),
        c.AckTake("q", HANDLES, 5),
        a.AckTaken(a.Handled(0, [0]), taken()),
        [],
    ),
    Row(
        lambda client: client.queue("q").nack([(3, 7)], delay=1),
        c.Return("q", HANDLES, c.NACK, 1_000),
        a.Handled(1),
        a.Handled(1),
    ),
    Row(
        lambda client: client.queue("q").release([(3, 7)]),
        c.Return("q", HANDLES, c.RELEASE),
        a.Handled(1),
        a.Handled(1),
    ),
    Row(message_call("nack", delay=2), c.Return("q", HANDLES, c.NACK, 2_000), a.Handled(1)),
    Row(message_call("release", delay=2), c.Return("q", HANDLES, c.RELEASE, 2_000), a.Handled(1)),
    Row(
        lambda client: client.queue("q").extend([(3, 7)], 9), c.Extend("q", HANDLES, 9_000), a.Handled(1), a.Handled(1)
    ),
    Row(message_call("extend", 9), c.Extend("q", HANDLES, 9_000), a.Handled(1)),
    Row(lambda client: client.queue("q").bury([3, 4]), c.Bury("q", [(3, 0), (4, 0)]), a.Handled(2), a.Handled(2)),
    Row(message_call("bury"), c.Bury("q", HANDLES), a.Handled(1)),
    Row(lambda client: client.queue("q").kick(3), c.Kick("q", [3]), a.Done(1), 1),
    Row(lambda client: client.queue("q").kick(count=8), c.Kick("q", [], 8), a.Done(2), 2),
    Row(lambda client: client.queue("q").edit(3, key=-1, delay=0), c.Edit("q", 3, -1, 0), a.Done()),
    Row(lambda client: client.queue("q").delete([3, 4]), c.Delete("q", [3, 4]), a.Handled(1, [1]), a.Handled(1, [1])),
    Row(lambda client: client.queue("q").move(3, "r"), c.Move("q", [3], "r"), a.Handled(1), a.Handled(1)),
    Row(
        lambda client: client.queue("q").redrive("r", key_range=(1, 2), reason=3, count_max=4, rate_per_s=5, new_key=6),
        c.Redrive("q", "r", (1, 2), 3, 4, 5, 6),
        a.JobStarted(9),
        9,
    ),
    Row(lambda client: client.cancel_job(9), c.CancelJob(9), a.Done()),
    Row(lambda client: client.queue("q").purge(), c.Purge("q"), a.Done(12), 12),
    Row(lambda client: client.queue("q").pause(), c.Pause("q", True), a.Done()),
    Row(lambda client: client.queue("q").resume(), c.Pause("q", False), a.Done()),
    Row(
        lambda client: client.stage("job", 4, {"q": ["a"]}, partition=1, attempt=2, part=3, is_last=True),
        c.Stage("job", 4, 1, 2, 3, [("q", [c.Item(0, b"a")])], True),
        a.Done(1),
        1,
    ),
    Row(
        lambda client: client.publish("job", 4, [(1, 2)], records=1, is_last=True),
        c.Publish("job", 4, [(1, 2)], 1, True),
        a.Published(1, True),
        a.Published(1, True),
    ),
    Row(lambda client: client.abort("job", 4), c.Abort("job", 4), a.Done()),
    Row(
        lambda client: client.broadcast(1, b"tag", "body", spec="s", type="t", expires_at=AT),
        c.Broadcast(1, b"tag", b"body", "s", "t", AT_US),
        a.Done(2),
        2,
    ),
    Row(
        lambda client: client.bind("b", "q", spec="s", type="t", timeout=1, paused=True),
        c.Bind("b", "s", "t", "q", 1_000, True),
        a.Done(),
    ),
    Row(lambda client: client.unbind("b"), c.Unbind("b"), a.Done()),
    Row(lambda client: client.queues(), m.ListQueues(), [QUEUE], [QUEUE]),
    Row(lambda client: client.queue("q").info(), m.ShowQueue("q"), QUEUE, QUEUE),
    Row(lambda client: client.queue("q").peek(2), m.Peek("q", 2), [RECORD], [Record.of("q", RECORD)]),
    Row(
        lambda client: client.queue("q").browse(state="buried", key_range=(1, 2), page=10),
        m.Browse("q", 3, (1, 2), 0, 10),
        Page([RECORD], 0),
        [Record.of("q", RECORD)],
    ),
    Row(lambda client: client.queue("q").get(3), m.Get("q", 3), RECORD, Record.of("q", RECORD)),
    Row(lambda client: client.queue("q").history(3), m.History("q", 3), [EVENT], [EVENT]),
    Row(lambda client: client.jobs(), m.ListJobs(), [JOB], [JOB]),
    Row(lambda client: client.bindings(), m.ListBindings(), [BINDING], [BINDING]),
    Row(lambda client: client.staged(), m.ListStaged(), [STAGED], [STAGED]),
    Row(lambda client: client.status(), m.Status(), status(), status()),
    Row(lambda client: client.ping(), m.Ping(), a.Done(), float),
]

ELSEWHERE = {
    m.HELLO: "test_link.py: said by connect() on every connection",
    m.SUBSCRIBE: "test_subscription.py: queue.subscribe()",
    m.UNSUBSCRIBE: "test_subscription.py: subscription.close()",
    m.LATEST: "tests/doors/native/test_history.py: HistoryReader.reach()",
    m.READ_JOURNAL: "the same: HistoryReader.pieces()",
    m.READ_ENTRIES: "the same: HistoryReader.entries()",
    m.QUEUE_NAMES: "the same: HistoryReader.queue_names()",
    m.FIND_TIME: "the same: HistoryReader.find_time()",
    m.CUT_JOURNAL: "the same: HistoryReader.cuts()",
    m.SNAPSHOT: "the same: HistoryReader.state()",
    m.READ_SNAPSHOT: "the same: HistoryReader.state()",
}


def name_of(row: Row) -> str:
    return type(row.request).__name__


def test_no_operation_is_missing() -> None:
    reached = {m.CODES[type(row.request)] for row in ROWS} | set(ELSEWHERE)
    wanted = (set(c.TYPES) - c.INTERNAL_OPS) | set(m.REQUESTS)
    assert reached == wanted


async def answer_row(peer: Peer, row: Row) -> None:
    """The node's part: check the request, and answer it."""
    request = await peer.receive(m.CODES[type(row.request)])
    assert request.body == row.request
    peer.answer(request, row.answer)


async def hold_message(client: Any, peer: Peer) -> Any:
    take = start(client.queue("q").take())
    peer.answer(await peer.receive(c.TAKE), taken(3))
    return await take


def check(result: Any, row: Row) -> None:
    if row.result is float:
        assert isinstance(result, float)
    else:
        assert result == row.result


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_an_operation_says_what_was_said(run: Run, row: Row) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.answers_status = not isinstance(row.request, m.Status)
            client, peer = await meet(node)
            if isinstance(row.request, m.Status):
                peer.answer(await peer.receive(m.STATUS), row.answer)
            work = row.call(client)
            if is_message_row(row):
                message = await hold_message(client, peer)
                method, args, options = work
                work = getattr(message, method)(*args, **options)
            elif isinstance(work, AsyncIterator):
                work = collect(work)
            call = start(work)
            await answer_row(peer, row)
            check(await call, row)
            await client.close()

    run(main)


async def collect(records: AsyncIterator[Any]) -> list[Any]:
    return [record async for record in records]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_blocking_client_says_the_same(run: Run, row: Row) -> None:
    def use(url: str) -> None:
        with connect_sync(url) as client:
            work = row.call(client)
            if is_message_row(row):
                message = client.queue("q").take()
                assert message is not None
                method, args, options = work
                work = getattr(message, method)(*args, **options)
            elif isinstance(work, Iterator):
                work = list(work)
            check(work, row)

    async def main() -> None:
        async with ScriptedNode() as node:
            node.answers_status = not isinstance(row.request, m.Status)
            using = start(asyncio.to_thread(use, node.url))
            peer = await node.accept()
            if isinstance(row.request, m.Status):
                peer.answer(await peer.receive(m.STATUS), row.answer)
            if is_message_row(row):
                peer.answer(await peer.receive(c.TAKE), taken(3))
            await answer_row(peer, row)
            await using

    run(main)


def is_message_row(row: Row) -> bool:
    return row.call.__qualname__.startswith("message_call")


# What the table cannot tell.


def test_browse_goes_on_over_empty_pages_until_the_cursor_is_zero(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            records = start(collect(client.queue("q").browse()))
            for cursor, page in ((0, Page([RECORD], 50)), (50, Page([], 90)), (90, Page([RECORD], 0))):
                request = await peer.receive(m.BROWSE)
                assert request.body.cursor == cursor
                peer.answer(request, page)
            assert len(await records) == 2
            await client.close()

    run(main)


def test_a_message_tells_what_it_is(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take(lease=60))
            record = a.Delivery(3, -5, "ä".encode(), 2, 1_000_000, b"\x81\xa1a\xa1b", 2_000_000)
            peer.answer(await peer.receive(c.TAKE), a.Taken(7, [record]))
            message: Message = await take
            assert (message.queue, message.id, message.key, message.text) == ("q", 3, -5, "ä")
            assert (message.deliveries, message.headers, message.handle) == (2, {"a": "b"}, (3, 7))
            assert message.published_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
            assert message.lease_until == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
            assert not message.settled
            await client.close()

    run(main)


@pytest.mark.parametrize("method", ["ack", "nack", "release", "bury"])
def test_a_lost_lease_is_raised_and_noted(run: Run, method: str) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            message = await hold_message(client, peer)
            call = start(getattr(message, method)())
            peer.answer(await peer.receive(), a.Handled(0, [0]))
            with pytest.raises(LeaseLost):
                await call
            assert message.lost
            assert not message.settled
            await client.close()

    run(main)


def test_settling_many_notes_on_each_what_became_of_it(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take_many(3))
            peer.answer(await peer.receive(c.TAKE), taken(1, 2, 3))
            messages = await take
            ack = start(client.queue("q").ack(messages))
            peer.answer(await peer.receive(c.ACK), a.Handled(2, [1]))
            await ack
            assert [message.settled for message in messages] == [True, False, True]
            assert [message.lost for message in messages] == [False, True, False]
            await client.close()

    run(main)


def test_ack_and_take_hands_out_the_next_though_the_last_was_lost(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            message = await hold_message(client, peer)
            call = start(client.queue("q").ack_and_take(message))
            peer.answer(await peer.receive(c.ACK_TAKE), a.AckTaken(a.Handled(0, [0]), taken(4)))
            following = await call
            assert message.lost
            assert following.id == 4
            await client.close()

    run(main)


@pytest.mark.parametrize("method", ["delete", "bury", "move"])
def test_a_single_record_that_is_not_there_raises(run: Run, method: str) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            args = ("r",) if method == "move" else ()
            call = start(getattr(client.queue("q"), method)(3, *args))
            peer.answer(await peer.receive(), a.Handled(0, [0]))
            with pytest.raises(NoSuchRecord, match="3"):
                await call
            await client.close()

    run(main)


def test_a_long_wait_is_asked_for_in_slices(run: Run) -> None:
    """So that a wait that was cancelled here soon ends there. For ever is made of slices too."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            for wait in (3600, None):
                take = start(client.queue("q").take(wait=wait))
                for _ in range(3):
                    request = await peer.receive(c.TAKE)
                    assert request.body.wait_ms == 20_000
                    peer.answer(request, taken())
                peer.answer(await peer.receive(c.TAKE), taken(1))
                assert (await take).id == 1
            await client.close()

    run(main)


def test_a_short_wait_ends_with_nothing(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take(wait=0.01))
            while not take.done():
                request = asyncio.ensure_future(peer.receive(c.TAKE))
                await asyncio.wait({request, take}, return_when=asyncio.FIRST_COMPLETED)
                if request.done():
                    assert request.result().body.wait_ms <= 10
                    peer.answer(request.result(), taken())
                else:
                    request.cancel()
            assert await take is None
            await client.close()

    run(main)


def test_ack_and_take_goes_on_waiting_by_takes(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            call = start(client.queue("q").ack_and_take((3, 7), wait=None))
            peer.answer(await peer.receive(c.ACK_TAKE), a.AckTaken(a.Handled(1), taken()))
            peer.answer(await peer.receive(c.TAKE), taken(4))
            assert (await call).id == 4
            await client.close()

    run(main)


def test_a_final_take_is_settled(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            take = start(client.queue("q").take(final=True))
            peer.answer(await peer.receive(c.TAKE), taken(1))
            assert (await take).settled
            await client.close()

    run(main)


def test_an_unknown_implementation_or_state_is_refused_here(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, _ = await meet(node)
            with pytest.raises(ValueError, match="h4, qa"):
                await client.queue("q").create(implementation="heap")
            with pytest.raises(ValueError, match="not in tuple"):
                await collect(client.queue("q").browse(state="lost"))
            await client.close()

    run(main)
