"""The loads of the Etzel and MoniQue doors: what they count, what they refuse, and that the real libraries agree."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.server import ServerConnection, serve

from bench.dialogues import etzel, monique, websocket, zeromq
from bench.errors import UnexpectedAnswer
from bench.load import connect, drive
from penstock.doors.websocket import server_frame
from penstock.wire.etzel.replies import Acknowledged, NoMessage, Reply, encode_reply, message
from tests.bench.test_dialogues import pieces

OK = server_frame(b'{"cmd":"ok"}', text=True)
PING = b"\x89\x011"


def frame(reply: Reply) -> bytes:
    return server_frame(encode_reply(reply), text=True)


def taken(number: int) -> bytes:
    return frame(message("", f"uid-{number:010}", 0, b"x" * 130))


def acknowledged(number: int) -> bytes:
    return frame(Acknowledged(f"uid-{number:010}", ""))


@given(payloads=st.lists(st.sampled_from([0, 125, 126, 65_535, 65_536]), min_size=1), cuts=st.lists(st.integers(0)))
def test_messages_do_not_depend_on_how_they_are_cut(payloads: list[int], cuts: list[int]) -> None:
    messages = [bytes([number % 256]) * size for number, size in enumerate(payloads)]
    data = b"".join(PING + server_frame(each, text=False) for each in messages)
    reader = websocket.MessageReader()
    assert [found for piece in pieces(data, cuts) for found in reader.feed(piece)] == messages


@pytest.mark.parametrize("data", [b"\x88\x02\x03\xe8", b"\x01\x01x"], ids=["close", "fragment"])
def test_what_no_load_expects_is_refused(data: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        websocket.MessageReader().feed(data)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_the_real_library_understands_the_handshake_and_every_length(size: int) -> None:
    def echo(peer: ServerConnection) -> None:
        for received in peer:
            peer.send(received)

    with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with connect(server.socket.getsockname()[1]) as connection:
            websocket.greet(connection, "/connect")
            connection.sendall(websocket.client_frame(b"x" * size, text=True))
            reader = websocket.MessageReader()
            found: list[bytes] = []
            while not found:
                found = reader.feed(connection.recv(1 << 20))
            assert found == [b"x" * size]
        server.shutdown()


def test_a_refused_handshake_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            peer.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
            peer.close()

        threading.Thread(target=answer, daemon=True).start()
        with connect(listener.getsockname()[1]) as connection, pytest.raises(UnexpectedAnswer, match="404"):
            websocket.greet(connection, "/connect")


@given(answers=st.integers(1, 50), cuts=st.lists(st.integers(0)))
def test_publications_are_counted_however_their_answers_are_cut(answers: int, cuts: list[int]) -> None:
    count = etzel.ok_counter()
    assert sum(count(piece) for piece in pieces(OK * answers, cuts)) == answers


def test_a_refused_publication_is_never_counted() -> None:
    count = etzel.ok_counter()
    with pytest.raises(UnexpectedAnswer):
        count(OK + server_frame(b'{"cmd":"nok","err":"BAD_MSG"}', text=True))


@given(cuts=st.lists(st.integers(0), max_size=8))
def test_fetching_acknowledges_what_comes_and_ends_with_the_queue(cuts: list[int]) -> None:
    load = etzel.FetchAndAck(2)
    assert load.start() == etzel.request(b'{"cmd":"FET","qname":""}') * 2
    sent = b"".join(load.receive(piece) for piece in pieces(taken(1) + taken(2), cuts))
    ack = b'{"cmd":"ACK","qname":"","uid":"uid-000000000%d"}'
    fetch = etzel.request(b'{"cmd":"FET","qname":""}')
    assert sent == etzel.request(ack % 1) + fetch + etzel.request(ack % 2) + fetch
    last = acknowledged(1) + frame(NoMessage("")) + acknowledged(2) + frame(NoMessage(""))
    finished = [load.finished]
    assert b"".join(load.receive(piece) for piece in pieces(last, cuts)) == b""
    finished.append(load.finished)
    assert finished == [False, True]
    assert load.completed == 2


def test_a_refused_fetch_is_never_counted() -> None:
    load = etzel.FetchAndAck(1)
    load.start()
    with pytest.raises(UnexpectedAnswer):
        load.receive(server_frame(b'{"cmd":"nok","err":"Q_NOT_FOUND"}', text=True))


SUBSCRIBERS = [(monique.zeromq_subscriber, monique.pushed), (monique.websocket_subscriber, monique.pushed_from_mq)]
by_both = pytest.mark.parametrize(("make", "encode"), SUBSCRIBERS, ids=["zeromq", "websocket"])


@by_both
@given(count=st.integers(1, 40), cuts=st.lists(st.integers(0), max_size=8))
def test_a_subscriber_counts_messages_however_they_are_cut(
    make: Callable[[], monique.Subscriber], encode: Callable[[int], bytes], count: int, cuts: list[int]
) -> None:
    subscriber = make()
    for piece in pieces(b"".join(map(encode, range(count))), cuts):
        subscriber.receive(piece)
    assert subscriber.completed == count
    assert subscriber.arrivals[-2] == count


@by_both
@pytest.mark.parametrize("numbers", [[0, 2], [0, 0], [1]], ids=["missing", "twice", "late"])
def test_a_subscriber_notices_what_is_missing_or_comes_twice(
    make: Callable[[], monique.Subscriber], encode: Callable[[int], bytes], numbers: list[int]
) -> None:
    with pytest.raises(UnexpectedAnswer):
        make().receive(b"".join(map(encode, numbers)))


def test_a_subscriber_passes_over_pings() -> None:
    subscriber = monique.websocket_subscriber()
    subscriber.receive(monique.pushed_from_mq(0) + PING + monique.pushed_from_mq(1) + monique.pushed_from_mq(2))
    assert subscriber.completed == 3


def test_a_subscriber_refuses_what_is_no_message() -> None:
    subscriber = monique.websocket_subscriber()
    with pytest.raises(UnexpectedAnswer):
        subscriber.receive(server_frame(b"\x81\xa5error" + b"x" * 1000, text=False))


def test_a_publisher_keeps_to_its_window_and_finishes_when_all_has_come() -> None:
    quick, slow = monique.zeromq_subscriber(), monique.zeromq_subscriber()
    publisher = monique.Publisher([quick, slow], window=10)
    first = publisher.tick()
    assert first == b"".join(map(monique.pushed, range(10)))
    quick.receive(first)
    assert publisher.tick() == b""
    slow.receive(b"".join(map(monique.pushed, range(4))))
    assert publisher.tick() == b"".join(map(monique.pushed, range(10, 14)))
    quick.stop()
    finished = [quick.finished]
    quick.receive(b"".join(map(monique.pushed, range(10, 14))))
    finished.append(quick.finished)
    assert finished == [False, True]
    latencies = publisher.delivery_latencies_ns()
    assert len(latencies) == 14 + 4
    assert min(latencies) >= 0


def test_a_publisher_by_the_clock_sends_no_more_than_is_due() -> None:
    publisher = monique.Publisher([monique.zeromq_subscriber()], window=1000, rate_per_s=1e-6)
    assert [publisher.tick(), publisher.tick()] == [b"", b""]


@pytest.fixture
def scheduler() -> Iterator[tuple[int, int]]:
    """The least of a scheduler, made with the real library: where to push, and where to subscribe."""
    context = zmq.Context()
    pull: zmq.Socket[bytes] = context.socket(zmq.PULL)
    publish: zmq.Socket[bytes] = context.socket(zmq.PUB)
    ports = [each.bind_to_random_port("tcp://127.0.0.1") for each in (pull, publish)]

    def forward() -> None:
        while True:
            frames = pull.recv_multipart()
            if frames == [b"end"]:
                break
            publish.send_multipart(frames)
        pull.close()
        publish.close()

    thread = threading.Thread(target=forward)
    thread.start()
    yield ports[0], ports[1]
    with connect(ports[0]) as connection:
        zeromq.greet(connection, b"PUSH")
        connection.sendall(zeromq.encode_message(b"end"))
        thread.join(10)
    context.term()


def test_the_real_library_understands_our_zeromq(scheduler: tuple[int, int]) -> None:
    """A load over real sockets: every message comes to every subscriber, in order and once."""
    with connect(scheduler[0]) as component, connect(scheduler[1]) as first, connect(scheduler[1]) as second:
        zeromq.greet(component, b"PUSH")
        for connection in (first, second):
            monique.subscribe_by_zeromq(connection)
        monique.await_subscriptions(component, [first, second])
        subscribers = [monique.zeromq_subscriber() for _ in range(2)]
        publisher = monique.Publisher(subscribers, window=100)
        drive([(component, publisher), *zip([first, second], subscribers, strict=True)], 0.1)
    assert subscribers[0].completed == subscribers[1].completed == publisher.sent > 0
