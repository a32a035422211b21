"""Connections: how they are opened, kept, lost and made again, and what becomes of the calls meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import (
    Backoff,
    BadAnswer,
    BadUrl,
    ClientClosed,
    ConnectionLost,
    FrameTooLarge,
    HandshakeRefused,
    MemoryFull,
    NotLeader,
    OutcomeUnknown,
    PutResult,
    QueueFull,
    RequestTooLarge,
    Stopping,
    Timeout,
    connect,
)
from penstock.client.protocol import ANSWER_BYTES_MAX, IN_FLIGHT_MAX, LOSSES_MAX
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import Done, PutAnswer
from penstock.wire.native import messages as m
from penstock.wire.native.frames import HEADER, encode_frame
from tests.client.conftest import Run
from tests.client.scripted import Request, ScriptedNode, meet, refusal_bytes, settle, start

AT_ONCE = Backoff(first=0, cap=0)


# Opening.


def test_connect_can_be_awaited_and_entered(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            async with connect(node.url, name="me") as client:
                peer = await node.accept()
                assert peer.hello == m.Hello(client.link.producer, "me", ANSWER_BYTES_MAX)
                assert client.link.connected
            await peer.ended.wait()
            with pytest.raises(ClientClosed):
                await client.ping()
            async with await connect(node.url) as client:
                peer = await node.accept()
            await peer.ended.wait()

    run(main)


def test_each_client_is_a_producer_of_its_own(run: Run) -> None:
    """63 bits, never 0: 0 means on the wire that there is no producer."""

    async def main() -> None:
        async with ScriptedNode() as node, connect(node.url) as one, connect(node.url) as other:
            assert one.link.producer != other.link.producer
            assert all(0 < each.link.producer < 2**63 for each in (one, other))

    run(main)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal_bytes(b"a", "no"), "no"),
        (b"a\x01" + refusal_bytes(b"b", "version 1 only"), "version 1 only"),
        (b"a\x01" + refusal_bytes(b"b", ""), "no reason was given"),
        (b"a\x01b\x00\x7f\xff\xff\xff", "cannot be read"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak the protocol"),
    ],
)
def test_a_refused_handshake_names_the_endpoint_and_the_reason(run: Run, answer: bytes, reason: str) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.handshake_answer = answer
            with pytest.raises(HandshakeRefused, match=reason) as caught:
                await connect(node.url)
            assert caught.value.endpoint == f"127.0.0.1:{node.port}"

    run(main)


def test_a_peer_that_hangs_up_in_the_handshake_is_no_node(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.handshake_answer = b"a\x01b"
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await connect(node.url)

    run(main)


def test_nobody_listening_is_told_at_once(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.deafen()
            with pytest.raises(ConnectionLost, match=f"127.0.0.1:{node.port}"):
                await connect(node.url)

    run(main)


def test_a_host_that_cannot_be_a_name_is_told_like_one_that_is_not_there(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost):
            await connect(f"penstock://{'a' * 70}.invalid:1")

    run(main)


def test_a_silent_peer_is_given_up_after_the_connect_timeout(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.answers_hello = lambda peer, request: None
            with pytest.raises(ConnectionLost, match=r"no answer within 0\.05 s"):
                await connect(node.url, connect_timeout=0.05)

    run(main)


def test_endpoints_are_tried_in_turn(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as deaf, ScriptedNode() as node:
            deaf.deafen()
            async with connect(f"{deaf.url},127.0.0.1:{node.port}") as client:
                await node.accept()
                assert client.link.connected

    run(main)


def test_a_refused_hello_is_raised(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.answers_hello = lambda peer, request: peer.refuse(request, codes.STOPPING)
            with pytest.raises(Stopping):
                await connect(node.url)

    run(main)


def test_a_bad_url_is_told_before_anything_is_tried() -> None:
    with pytest.raises(BadUrl):
        connect("http://localhost")


# Calls.


def test_many_calls_are_in_flight_and_answered_in_any_order(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            puts = [start(client.queue("q").put(bytes([n]), n)) for n in range(5)]
            requests = [await peer.receive(c.PUT) for _ in puts]
            assert [request.body.items[0].key for request in requests] == [0, 1, 2, 3, 4]
            numbers = [request.number for request in requests]
            assert numbers == sorted(set(numbers))
            for request in reversed(requests):
                peer.answer(request, PutAnswer(100 + request.body.items[0].key, 1))
            assert await asyncio.gather(*puts) == [PutResult(100 + n, False) for n in range(5)]
            await client.close()

    run(main)


def test_a_refusal_is_raised_as_its_class(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            peer.refuse(await peer.receive(c.PUT), codes.QUEUE_FULL, "full", (5,))
            with pytest.raises(QueueFull) as caught:
                await put
            assert (caught.value.limit, caught.value.detail, caught.value.name) == (5, "full", "QUEUE_FULL")
            await client.close()

    run(main)


def test_an_answer_that_cannot_be_read_hurts_its_call_alone(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put, ping = start(client.queue("q").put(b"x")), start(client.ping())
            request, other = await peer.receive(c.PUT), await peer.receive(m.PING)
            peer.write(encode_frame(m.ANSWER, request.number, b"\xc1"))
            peer.answer(other, Done())
            with pytest.raises(BadAnswer):
                await put
            await ping
            await client.close()

    run(main)


def test_no_more_than_a_thousand_are_in_flight_and_the_rest_wait(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            puts = [start(client.queue("q").put(b"x", n)) for n in range(IN_FLIGHT_MAX + 2)]
            requests = [await peer.receive(c.PUT) for _ in range(IN_FLIGHT_MAX)]
            await settle()
            assert peer.received_none()
            peer.answer(requests[3], PutAnswer(1, 1))
            late = await peer.receive(c.PUT)
            assert late.body.items[0].key == IN_FLIGHT_MAX
            await settle()
            assert peer.received_none()
            await client.close()
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            assert sum(isinstance(each, OutcomeUnknown) for each in outcomes) == IN_FLIGHT_MAX
            assert isinstance(outcomes[-1], ClientClosed)

    run(main)


def test_callers_wait_while_the_node_does_not_read(run: Run) -> None:
    """The socket's buffers and ours fill up; then puts wait, and go on when the node reads again."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            node.may_read.clear()
            payload = bytes(1 << 20)
            puts = [start(client.queue("q").put(payload)) for _ in range(64)]
            await settle()
            assert client.link.in_flight < 60
            node.may_read.set()
            for _ in puts:
                peer.answer(await peer.receive(c.PUT), PutAnswer(1, 1))
            await asyncio.gather(*puts)
            await client.close()

    run(main)


def test_call_timeout_ends_reads_and_makes_commands_unknown(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, call_timeout=0.02)
            with pytest.raises(Timeout):
                await client.queues()
            with pytest.raises(OutcomeUnknown) as caught:
                await client.queue("q").put(b"x")
            await peer.receive(m.LIST_QUEUES)
            request = await peer.receive(c.PUT)
            assert caught.value.request == request.number
            # Both stay in flight until the node answers, so that their numbers keep their meaning.
            peer.answer(request, PutAnswer(1, 1))
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            await client.close()

    run(main)


# Losing the connection.


def test_a_lost_connection_is_made_again_and_calls_are_repeated_with_their_numbers(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            queue = client.queue("q")
            calls = [start(queue.put(b"a")), start(queue.info()), start(queue.purge())]
            first = [await peer.receive() for _ in calls]
            await peer.drop()
            again = await node.accept()
            second = [await again.receive() for _ in calls]
            assert second == first
            assert again.hello == peer.hello
            fresh = start(queue.put(b"b"))
            assert (await again.receive(c.PUT)).number > max(request.number for request in first)
            again.answer(second[0], PutAnswer(1, 1))
            assert await calls[0] == PutResult(1, False)
            await client.close()
            await asyncio.gather(*calls[1:], fresh, return_exceptions=True)

    run(main)


def test_a_connection_that_served_is_made_again_at_once(run: Run) -> None:
    """Waits are for those who tried in vain."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, reconnect=Backoff(first=60, cap=60))
            for _ in range(3):
                ping = start(client.ping())
                peer.answer(await peer.receive(m.PING), Done())
                await ping
                await peer.drop()
                peer = await node.accept()
            await client.close()

    run(main)


def test_calls_made_while_there_is_no_connection_wait_for_one(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            node.deafen()
            await peer.drop()
            put = start(client.queue("q").put(b"x"))
            await settle()
            assert not client.link.connected
            await node.listen()
            peer = await node.accept()
            peer.answer(await peer.receive(c.PUT), PutAnswer(1, 1))
            assert (await put).id == 1
            await client.close()

    run(main)


def test_when_the_retry_timeout_is_over_each_call_learns_what_is_known(run: Run) -> None:
    """Sent commands: unknown. Reads, and commands that were never sent: not done."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, retry_timeout=0.1)
            queue = client.queue("q")
            sent, read = start(queue.put(b"x")), start(queue.info())
            request = await peer.receive(c.PUT)
            await peer.receive(m.SHOW_QUEUE)
            node.deafen()
            await peer.drop()
            unsent = start(queue.put(b"y"))
            with pytest.raises(OutcomeUnknown) as unknown:
                await sent
            assert (unknown.value.request, unknown.value.operation) == (request.number, "Put")
            for call in (read, unsent):
                with pytest.raises(ConnectionLost):
                    await call
            # The link goes on trying, and a later call finds its way.
            await node.listen()
            peer = await node.accept()
            ping = start(client.ping())
            peer.answer(await peer.receive(m.PING), Done())
            await ping
            await client.close()

    run(main)


def test_a_node_that_cannot_tell_makes_the_outcome_unknown(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            peer.refuse(await peer.receive(c.PUT), codes.OUTCOME_UNKNOWN, "leadership was lost")
            with pytest.raises(OutcomeUnknown, match="leadership was lost"):
                await put
            await client.close()

    run(main)


def test_a_repeat_that_the_node_turns_away_is_unknown_too(run: Run) -> None:
    """Memory was full for the repeat; the first one may have been done before."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            await peer.receive(c.PUT)
            await peer.drop()
            peer = await node.accept()
            peer.refuse(await peer.receive(c.PUT), codes.MEMORY_FULL)
            with pytest.raises(OutcomeUnknown) as caught:
                await put
            assert isinstance(caught.value.__cause__, MemoryFull)
            await client.close()

    run(main)


def test_a_repeat_that_the_engine_refuses_is_refused(run: Run) -> None:
    """The engine knows its first answer, so this one is the truth."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            await peer.receive(c.PUT)
            await peer.drop()
            peer = await node.accept()
            peer.refuse(await peer.receive(c.PUT), codes.QUEUE_FULL)
            with pytest.raises(QueueFull):
                await put
            await client.close()

    run(main)


def test_another_cluster_at_the_address_is_not_asked_about_the_first_ones_deeds(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put, read = start(client.queue("q").put(b"x")), start(client.ping())
            await peer.receive(c.PUT)
            await peer.receive(m.PING)
            node.cluster = "cluster-2"
            await peer.drop()
            peer = await node.accept()
            with pytest.raises(OutcomeUnknown, match="another cluster"):
                await put
            peer.answer(await peer.receive(m.PING), Done())
            await read
            await client.close()

    run(main)


def test_a_call_that_ends_every_connection_is_given_up(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, reconnect=AT_ONCE)
            put = start(client.queue("q").put(b"x"))
            for losses in range(1, LOSSES_MAX + 1):
                await peer.receive(c.PUT)
                if losses % 2:
                    # A frame that is too long is as good as a lost connection.
                    peer.write(b"\xff" * 16)
                    await peer.ended.wait()
                else:
                    await peer.drop()
                peer = await node.accept()
            with pytest.raises(OutcomeUnknown):
                await put
            await client.close()

    run(main)


def test_a_node_that_falls_silent_is_left(run: Run) -> None:
    """An idle connection is tried every interval; without a sign of life until the next, it is made anew."""

    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, ping_interval=0.05)
            while peer.statuses < 3:
                await asyncio.sleep(0.01)
            assert client.link.connected
            node.answers_status = False
            await node.accept()
            await peer.ended.wait()
            await client.close()

    run(main)


# Clusters.


def test_not_leader_moves_on_to_the_next_endpoint(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as follower, ScriptedNode() as leader:
            client = await connect(f"{follower.url},{leader.url}")
            peer = await follower.accept()
            puts = [start(client.queue("q").put(b"x", n)) for n in range(3)]
            requests = [await peer.receive(c.PUT) for _ in puts]
            for request in requests:
                peer.refuse(request, codes.NOT_LEADER, figures=(2,))
            peer = await leader.accept()
            for request in requests:
                assert await peer.receive(c.PUT) == request
                peer.answer(request, PutAnswer(1, 1))
            await asyncio.gather(*puts)
            await client.close()

    run(main)


def test_where_nobody_leads_the_client_goes_round_until_the_retry_timeout(run: Run) -> None:
    async def main() -> None:
        async def follow(node: ScriptedNode, seen: list[Request]) -> None:
            while True:
                peer = await node.accept()
                seen.append(await peer.receive(c.PUT))
                peer.refuse(seen[-1], codes.NOT_LEADER, figures=(3,))

        async with ScriptedNode() as one, ScriptedNode() as two:
            client = await connect(f"{one.url},{two.url}", retry_timeout=0.3)
            seen: list[list[Request]] = [[], []]
            followers = [start(follow(node, seen[n])) for n, node in enumerate((one, two))]
            with pytest.raises(NotLeader) as caught:
                await client.queue("q").put(b"x")
            assert caught.value.leader == 3
            assert all(seen)
            assert len(seen[0] + seen[1]) < 30, "there must be pauses between the rounds"
            for follower in followers:
                follower.cancel()
            await client.close()

    run(main)


def test_with_one_endpoint_not_leader_is_raised(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            peer.refuse(await peer.receive(c.PUT), codes.NOT_LEADER, figures=(2,))
            with pytest.raises(NotLeader):
                await put
            await client.close()

    run(main)


def test_a_stopping_node_is_asked_again_when_it_is_back(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node)
            put = start(client.queue("q").put(b"x"))
            request = await peer.receive(c.PUT)
            peer.refuse(request, codes.STOPPING)
            peer = await node.accept()
            assert await peer.receive(c.PUT) == request
            peer.answer(request, PutAnswer(1, 1))
            await put
            await client.close()

    run(main)


def test_a_stopping_node_that_does_not_come_back_is_a_refusal_not_a_doubt(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            client, peer = await meet(node, retry_timeout=0.1)
            put = start(client.queue("q").put(b"x"))
            node.deafen()
            peer.refuse(await peer.receive(c.PUT), codes.STOPPING)
            with pytest.raises(Stopping):
                await put
            await client.close()

    run(main)


# Frames that are longer than what the client reads.


def too_long(request: Request, status: int = m.ANSWER) -> bytes:
    """The beginning of a frame of 200 MiB."""
    return HEADER.pack(200 << 20, status, request.number)


def test_an_answer_that_is_too_long_fails_its_call_at_once_and_no_other(run: Run) -> None:
    """Repeating it would only bring the same answer again."""

    async def main() -> None:
        async with ScriptedNode() as node, connect(node.url, reconnect=AT_ONCE) as client:
            peer = await node.accept()
            take = start(client.queue("q").take())
            put = start(client.queue("q").put(b"x"))
            first, second = await peer.receive(c.TAKE), await peer.receive(c.PUT)
            peer.write(too_long(first))
            with pytest.raises(FrameTooLarge, match=r"209715200 bytes; .* 134217728 \(frame_bytes_max\)") as caught:
                await take
            assert (caught.value.size_bytes, caught.value.limit_bytes) == (200 << 20, ANSWER_BYTES_MAX)
            peer = await node.accept()
            repeated = await peer.receive(c.PUT)
            assert repeated.number == second.number
            peer.answer(repeated, PutAnswer(1, 1, []))
            assert (await put).id == 1
            assert peer.received_none()

    run(main)


def test_a_push_that_is_too_long_ends_its_subscription(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node, connect(node.url, reconnect=AT_ONCE) as client:

            async def take_first() -> None:
                async with client.queue("q").subscribe() as messages:
                    await messages.take_next()

            peer = await node.accept()
            waiting = start(take_first())
            request = await peer.receive(m.SUBSCRIBE)
            peer.answer(request, Done())
            await settle()
            peer.write(too_long(request, m.PUSH))
            with pytest.raises(FrameTooLarge):
                await waiting
            peer = await node.accept()
            await settle()
            assert peer.received_none()

    run(main)


def test_a_client_says_how_long_frames_may_be_and_heeds_what_the_node_says(run: Run) -> None:
    async def main() -> None:
        async with ScriptedNode() as node:
            node.answers_hello = lambda peer, request: peer.answer(
                request, m.Welcome("0", "cluster-1", 1, 1, 1 << 20, 3 << 20)
            )
            async with connect(node.url, frame_bytes_max=2 << 20) as client:
                peer = await node.accept()
                assert peer.hello is not None
                assert peer.hello.frame_bytes_max == 2 << 20
                with pytest.raises(RequestTooLarge, match="the node reads frames up to 3145728"):
                    await client.queue("q").put(bytes(3 << 20))
                assert peer.received_none()

    run(main)


def test_frames_may_not_be_limited_to_less_than_a_mebibyte(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="frame_bytes_max must be at least 1048576"):
            await connect("penstock://127.0.0.1:1", frame_bytes_max=1000)

    run(main)
