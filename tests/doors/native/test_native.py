"""The native door over real sockets: every frame by hand."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from penstock.doors.native import NativeConnection
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Done, Handled, PutAnswer, Taken
from penstock.engine.errors import Refusal
from penstock.testing import TestServer
from penstock.wire.native import messages as m
from tests.doors.native.support import HANDSHAKE, HANDSHAKE_OK, RawClient, put


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as started:
        yield started


@pytest.fixture
def client(server: TestServer) -> Iterator[RawClient]:
    with RawClient(server.port) as raw:
        yield raw


@pytest.fixture
def queue(client: RawClient, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:200]
    client.call(c.CreateQueue(name, c.QueueSettings()))
    return name


def test_put_take_ack(client: RawClient, queue: str) -> None:
    uid = client.call(m.ShowQueue(queue)).uid
    assert client.call(put(queue, b"a", b"b")) == PutAnswer(1, 2, [], uid)
    taken = client.call(c.Take(queue, 10))
    assert taken.queue_uid == uid
    assert [(record.id, record.payload) for record in taken.records] == [(1, b"a"), (2, b"b")]
    assert client.call(c.Ack(queue, [(1, taken.token), (2, taken.token)])) == Handled(2)
    assert client.call(m.ShowQueue(queue)).leased == 0


def test_many_requests_in_flight_are_answered_each_under_its_number(client: RawClient, queue: str) -> None:
    requests = [client.send(put(queue, b"x")) for _ in range(500)]
    answers = [client.receive() for _ in requests]
    assert [request for _, request, _ in answers] == requests
    assert [answer.first for _, _, answer in answers] == list(range(1, 501))


def test_a_pipelined_read_sees_the_puts_before_it(client: RawClient, queue: str) -> None:
    client.send(put(queue, b"x"))
    client.send(m.ShowQueue(queue))
    client.receive()
    assert client.receive()[2].ready == 1


def test_a_frame_may_come_byte_by_byte(server: TestServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = msgspec.msgpack.encode(m.Ping())
        for byte in HANDSHAKE + struct.pack(">IBQ", 9 + len(body), m.PING, 77) + body:
            sock.sendall(bytes([byte]))
        reply = b""
        while len(reply) < len(HANDSHAKE_OK) + 13:
            reply += sock.recv(100)
        assert reply.startswith(HANDSHAKE_OK)
        assert struct.unpack_from(">IBQ", reply, len(HANDSHAKE_OK))[1:] == (m.ANSWER, 77)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (c.PUT, b"\xc1"),
        (c.PUT, msgspec.msgpack.encode(["q", [[2**63, b"key too large"]]])),
        (c.PUT, msgspec.msgpack.encode(["q", [[1, b"x", [0, 0, {"header": 5}]]]])),
        (c.PUT, b"\x91" * 100_000),
        (c.TAKE, b"\x91\xa1\xff"),
        (m.SHOW_QUEUE, b"\x91\xa1\xff"),
        (c.TAKE, msgspec.msgpack.encode(["q", 0])),
        (c.TAKE, msgspec.msgpack.encode(["q", 1_000_000])),
        (c.ACK, msgspec.msgpack.encode(["q", [[1]]])),
        (c.NEW_TERM, msgspec.msgpack.encode([0])),
        (c.OWNER_GONE, msgspec.msgpack.encode([1])),
        (63, b"\x90"),
        (200, b"\x90"),
        (m.BROWSE, b""),
    ],
)
def test_a_bad_request_is_told_and_the_connection_lives(client: RawClient, code: int, body: bytes) -> None:
    client.send_raw(code, 1000, body)
    status, request, refusal = client.receive()
    assert (status, request, refusal.code) == (m.REFUSED, 1000, e.BAD_REQUEST)
    assert client.call(m.Ping()) == Done()


@pytest.mark.parametrize("header", [struct.pack(">IBQ", 2**31, c.PUT, 1), struct.pack(">IBQ", 3, c.PUT, 1)])
def test_an_impossible_length_ends_only_that_connection(server: TestServer, client: RawClient, header: bytes) -> None:
    with RawClient(server.port) as bad:
        bad.sock.sendall(header)
        with pytest.raises((EOFError, ConnectionResetError)):
            bad.receive()
    assert client.call(m.Ping()) == Done()


def test_a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_taken(client: RawClient, queue: str) -> None:
    limit = 16 * 1024 * 1024
    assert client.call(put(queue, b"x" * limit)).count == 1
    assert client.call(put(queue, b"x" * (limit + 1))).exceptions == [(0, e.PAYLOAD_TOO_LARGE, limit)]
    assert client.call(c.Purge(queue)) == Done(1)


def test_a_waiting_take_is_served_by_the_put_of_another(server: TestServer, client: RawClient, queue: str) -> None:
    with RawClient(server.port) as other:
        client.send(c.Take(queue, 1, wait_ms=30_000))
        other.call(put(queue, b"now"))
        assert [record.payload for record in client.receive()[2].records] == [b"now"]


def test_ack_and_take_in_one_request(client: RawClient, queue: str) -> None:
    client.call(put(queue, b"a", b"b"))
    first = client.call(c.Take(queue))
    both = client.call(c.AckTake(queue, [(1, first.token)]))
    assert isinstance(both, AckTaken)
    assert both.acked == Handled(1)
    assert [record.payload for record in both.taken.records] == [b"b"]


def test_records_are_pushed_up_to_the_window_and_go_on_with_each_that_is_given_up(
    server: TestServer, client: RawClient, queue: str
) -> None:
    with RawClient(server.port) as producer:
        subscription = client.send(m.Subscribe(queue, 3))
        assert client.receive()[:2] == (m.ANSWER, subscription)
        producer.call(put(queue, b"1", b"2", b"3", b"4", b"5"))
        held: list[tuple[int, int]] = []
        while len(held) < 3:
            status, request, taken = client.receive()
            assert (status, request) == (m.PUSH, subscription)
            held += [(record.id, taken.token) for record in taken.records]
        assert producer.call(m.ShowQueue(queue)).leased == 3
        client.send(c.Ack(queue, held[:1]))
        client.send(c.Return(queue, held[1:2], c.NACK))
        frames = [client.receive() for _ in range(4)]
        pushed = [r.payload for status, _, taken in frames if status == m.PUSH for r in taken.records]
        assert sorted(pushed) == [b"2", b"4"], "the nacked record is first in order again"
        client.call(m.Unsubscribe(subscription))


def test_a_subscription_to_a_missing_queue_is_refused(client: RawClient) -> None:
    assert client.call(m.Subscribe("missing")).code == e.NO_SUCH_QUEUE


def test_a_subscription_may_follow_the_creation_of_its_queue_in_the_same_write(client: RawClient) -> None:
    client.send(c.CreateQueue("made-just-now", c.QueueSettings()))
    client.send(m.Subscribe("made-just-now"))
    client.receive()
    assert client.receive()[2] == Done()


def test_what_was_taken_for_a_client_that_left_comes_back_as_if_untouched(
    server: TestServer, client: RawClient, queue: str
) -> None:
    others = client.call(m.Status()).connections
    waiter = RawClient(server.port)
    waiter.send(c.Take(queue, 1, wait_ms=30_000))
    waiter.close()
    while client.call(m.Status()).connections > others:
        pass  # until the server has seen it
    client.call(put(queue, b"for whoever is there"))
    taken = client.call(c.Take(queue, 1, wait_ms=10_000))
    assert [(r.payload, r.deliveries) for r in taken.records] == [(b"for whoever is there", 1)]


def test_a_take_that_waits_for_a_queue_which_is_deleted_is_told(
    server: TestServer, client: RawClient, queue: str
) -> None:
    with RawClient(server.port) as waiter:
        waiter.send(c.Take(queue, 1, wait_ms=30_000))
        client.call(put(queue, b"x"))
        waiter.receive()
        waiter.send(c.Take(queue, 1, wait_ms=30_000))
        client.call(c.DeleteQueue(queue))
        assert waiter.receive()[2].code == e.NO_SUCH_QUEUE


def test_leases_bound_to_a_connection_end_with_it(server: TestServer, client: RawClient, queue: str) -> None:
    client.call(put(queue, b"a"))
    holder = RawClient(server.port)
    holder.call(c.Take(queue, 1, lease_ms=0))
    holder.close()
    taken = client.call(c.Take(queue, 1, wait_ms=10_000))
    assert [(r.payload, r.deliveries) for r in taken.records] == [(b"a", 2)]


def test_a_producers_repeated_request_is_done_once_over_connections(server: TestServer, queue: str) -> None:
    answers = []
    for _ in range(2):
        with RawClient(server.port) as again:
            again.call(m.Hello(producer=4711))
            again.send_raw(c.PUT, 99, msgspec.msgpack.encode(put(queue, b"once")))
            answers.append(again.receive()[2])
    assert answers == [PutAnswer(1, 1, [], answers[0].queue_uid)] * 2
    with RawClient(server.port) as reader:
        assert reader.call(m.ShowQueue(queue)).ready == 1


def test_browse_peek_get_and_history(client: RawClient, queue: str) -> None:
    for key in (3, 1, 2):
        client.call(put(queue, b"%d" % key, key=key))
    assert [view.key for view in client.call(m.Peek(queue, 10))] == [1, 2, 3]
    page = client.call(m.Browse(queue, count=2))
    assert [view.id for view in page.records] == [1, 2]
    page = client.call(m.Browse(queue, cursor=page.cursor))
    assert ([view.id for view in page.records], page.cursor) == ([3], 0)
    assert client.call(m.Get(queue, 2)).payload == b"1"
    assert client.call(m.Get(queue, 9)).code == e.NO_SUCH_RECORD
    taken = client.call(c.Take(queue))
    client.call(c.Ack(queue, [(2, taken.token)]))
    assert [event.kind for event in client.call(m.History(queue, 2))] == [10, 13, 14]
    assert isinstance(client.call(m.History("nowhere", 1)), Refusal)


def test_a_client_that_does_not_read_its_replies_is_not_read_from(
    server: TestServer, client: RawClient, queue: str
) -> None:
    client.call(put(queue, b"x" * 1_000_000))
    slow = RawClient(server.port)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    frame = struct.pack(">IBQ", 9 + len(body := msgspec.msgpack.encode(m.Peek(queue))), m.PEEK, 5) + body
    slow.sock.settimeout(1.0)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 100_000_000:  # each asks for a megabyte: the server stops reading long before it has read these
            sent += slow.sock.send(frame * 1000)
    assert client.call(m.Ping()) == Done()
    slow.close()
    assert sent < 100_000_000


def test_statistics_of_the_node(client: RawClient) -> None:
    status = client.call(m.Status())
    assert (status.term, status.leader, status.disk_full) == (1, 0, False)
    assert isinstance(client.call(c.Take("", 1)), Taken)


def test_an_answer_is_bounded_in_bytes_and_the_rest_stays_in_order(client: RawClient, queue: str) -> None:
    for number in range(12):
        client.call(put(queue, bytes([number]) * 1_000_000))
    assert len(client.call(m.Peek(queue, 100))) == 8
    page = client.call(m.Browse(queue))
    assert len(page.records) < 12
    assert page.cursor
    taken = client.call(c.Take(queue, 100))
    rest = client.call(c.Take(queue, 100))
    assert [record.id for record in taken.records] == list(range(1, 9))
    assert [record.id for record in rest.records] == list(range(9, 13))


def test_a_subscription_ends_with_its_queue(server: TestServer, client: RawClient, queue: str) -> None:
    subscription = client.send(m.Subscribe(queue))
    client.receive()
    with RawClient(server.port) as operator:
        operator.call(c.DeleteQueue(queue))
    status, request, refusal = client.receive()
    assert (status, request, refusal.code) == (m.REFUSED, subscription, e.NO_SUCH_QUEUE)
    assert client.call(m.Unsubscribe(subscription)) == Done(0)


def test_a_command_with_a_field_too_many_is_refused(client: RawClient, queue: str) -> None:
    nested = b"\x91" * 900 + b"\xc0"  # deep enough to depend on the reader's stack, were it skipped
    client.send_raw(c.PURGE, 1000, b"\x92" + msgspec.msgpack.encode(queue) + nested)
    assert client.receive()[2].code == e.BAD_REQUEST


def _push_one(client: RawClient, queue: str, lease_ms: int) -> tuple[int, tuple[int, int]]:
    """A subscription with a window of one, and the lease that fills it."""
    client.call(put(queue, b"x"))
    subscription = client.send(m.Subscribe(queue, 1, lease_ms))
    assert client.receive()[:2] == (m.ANSWER, subscription)
    status, _, taken = client.receive()
    assert status == m.PUSH
    return subscription, (taken.records[0].id, taken.token)


@pytest.mark.parametrize("how", ["delete", "bury", "ack"])
def test_a_place_in_the_window_comes_back_when_another_ends_the_lease(
    server: TestServer, client: RawClient, queue: str, how: str
) -> None:
    subscription, (record_id, token) = _push_one(client, queue, 0)
    with RawClient(server.port) as other:
        ends = {
            "delete": c.Delete(queue, [record_id]),
            "bury": c.Bury(queue, [(record_id, 0)]),
            "ack": c.Ack(queue, [(record_id, token)]),
        }
        assert other.call(ends[how]) == Handled(1)
        other.call(put(queue, b"next"))
        assert other.call(m.ShowQueue(queue)).ready == 1, "nothing is pushed before the client shows that it goes on"
        client.send(m.Ping([subscription]))
        statuses = {client.receive()[0] for _ in range(2)}
        assert statuses == {m.ANSWER, m.PUSH}


def test_a_client_that_hangs_is_not_pushed_the_same_record_again(
    server: TestServer, client: RawClient, queue: str
) -> None:
    _, handle = _push_one(client, queue, 20)
    with RawClient(server.port) as other:
        while not other.call(m.ShowQueue(queue)).ready:
            pass
        assert other.call(m.Get(queue, handle[0])).deliveries == 1
        client.call(m.Ping())
        assert other.call(m.Get(queue, handle[0])).deliveries == 1, "a ping alone does not say that it waits"


def test_an_extension_that_finds_no_lease_gives_the_place_back(
    server: TestServer, client: RawClient, queue: str
) -> None:
    _, handle = _push_one(client, queue, 20)
    with RawClient(server.port) as other:
        while not other.call(m.ShowQueue(queue)).ready:
            pass
    extension = client.send(c.Extend(queue, [handle], 1000))
    status, number, answer = client.receive()
    assert (status, number, answer) == (m.ANSWER, extension, Handled(0, [0]))
    status, _, taken = client.receive()
    assert (status, taken.records[0].deliveries) == (m.PUSH, 2)


def test_an_extension_in_a_deleted_queue_ends_the_subscription(
    server: TestServer, client: RawClient, queue: str
) -> None:
    subscription, handle = _push_one(client, queue, 60_000)
    with RawClient(server.port) as other:
        other.call(c.DeleteQueue(queue))
    extension = client.send(c.Extend(queue, [handle], 1000))
    refusals = [client.receive() for _ in range(2)]
    assert [(status, number, refusal.code) for status, number, refusal in refusals] == [
        (m.REFUSED, extension, e.NO_SUCH_QUEUE),
        (m.REFUSED, subscription, e.NO_SUCH_QUEUE),
    ]


def test_two_subscriptions_with_one_number_behind_a_create_make_one(server: TestServer, client: RawClient) -> None:
    """Both are checked when the queue is there, so that the end of the queue finds one subscription."""
    name = "made-meanwhile"
    body = msgspec.msgpack.encode(m.Subscribe(name, 1))
    create = msgspec.msgpack.encode(c.CreateQueue(name, c.QueueSettings()))
    frames = [(c.CREATE_QUEUE, 50, create), (m.SUBSCRIBE, 51, body), (m.SUBSCRIBE, 51, body)]
    client._sent.update({request: code for code, request, _ in frames})
    client.sock.sendall(b"".join(struct.pack(">IBQ", 9 + len(body), code, n) + body for code, n, body in frames))
    replies = [client.receive() for _ in frames]
    assert [(status, request) for status, request, _ in replies] == [(m.ANSWER, 50), (m.ANSWER, 51), (m.REFUSED, 51)]
    client.send_raw(c.DELETE_QUEUE, 52, msgspec.msgpack.encode(c.DeleteQueue(name)))
    ends = {client.receive()[:2] for _ in range(2)}
    assert ends == {(m.ANSWER, 52), (m.REFUSED, 51)}
    assert client.call(m.Ping()) == Done()
    assert not server.server.node.failed.done()


def test_a_producers_number_cannot_be_used_for_another_command(client: RawClient, queue: str) -> None:
    client.call(m.Hello(77, ""))
    client.call(put(queue, b"a"))
    client.send_raw(c.TAKE, 900, msgspec.msgpack.encode(c.Take(queue, 1)))
    assert len(client.receive()[2].records) == 1
    client.send_raw(c.UNBIND, 900, msgspec.msgpack.encode(c.Unbind("x")))
    status, request, refusal = client.receive()
    assert (status, request, refusal.code) == (m.REFUSED, 900, e.REQUEST_REUSED)


def test_a_read_that_is_cancelled_before_it_begins_does_not_keep_bound_leases(
    server: TestServer, client: RawClient, queue: str
) -> None:
    client.call(put(queue, b"a"))
    with RawClient(server.port) as leaving:
        leaving.call(c.Take(queue, 1, 0))  # bound to its connection
        node, loop = server.server.node, server._loop
        assert loop is not None
        before = node.read

        def read_and_leave(look: Callable[[], None], sink: Any) -> None:
            look()  # makes the task of the read; the connection is lost before its first step
            sink.transport.abort()
            sink.connection_lost(None)

        loop.call_soon_threadsafe(setattr, node, "read", read_and_leave)
        leaving.send(m.History(queue, 1))
        with pytest.raises((EOFError, ConnectionResetError)):
            leaving.receive()
        loop.call_soon_threadsafe(setattr, node, "read", before)
    give_up_s = time.monotonic() + 20
    while client.call(m.ShowQueue(queue)).leased:
        assert time.monotonic() < give_up_s, "the lease is never released"


def test_an_error_in_an_answer_ends_only_that_connection(
    server: TestServer, client: RawClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = NativeConnection.reply

    def clumsy(self: NativeConnection, ref: int, command: Any, answer: Any) -> None:
        if ref == 666:
            raise KeyError(ref)
        reply(self, ref, command, answer)

    monkeypatch.setattr(NativeConnection, "reply", clumsy)
    with RawClient(server.port) as unlucky:
        unlucky.send_raw(c.PUT, 666, msgspec.msgpack.encode(put(queue, b"a")))
        with pytest.raises((EOFError, ConnectionResetError)):
            unlucky.receive()
    assert client.call(m.ShowQueue(queue)).ready == 1
    assert not server.server.node.failed.done()
