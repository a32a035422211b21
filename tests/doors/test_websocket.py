"""A connection behind a WebSocket, over real sockets and by hand: handshake, messages, liveness, and how it ends."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers
from websockets.frames import CloseCode

from penstock.doors import websocket as websocket_module
from penstock.doors.listening import Listener
from penstock.doors.visitors import Visitors
from penstock.doors.websocket import PING_EVERY_S, PONGS_MISSED_MAX, Refused, WebSocketConnection, cookie, server_frame
from penstock.node.account import RECEIVED
from penstock.settings import EtzelSettings
from tests.doors.conftest import WITHIN_S, AdvancedLoop, DoorServer
from tests.doors.etzel.support import (
    ACCEPTED,
    BINARY,
    CLOSE,
    CONTINUATION,
    HANDSHAKE,
    PING,
    PONG,
    TEXT,
    Closed,
    WebSocket,
    client_frame,
    shrink,
)

MESSAGE_BYTES_MAX = 10_000


class Echo(WebSocketConnection):
    """Says back what it hears, with a word before it."""

    def __init__(self, server: DoorServer) -> None:
        visitors = Visitors("etzel.origins", "https://app.example", "127.0.0.1")
        super().__init__(server.node, server.keeper, "echo", message_bytes_max=MESSAGE_BYTES_MAX, visitors=visitors)
        self.heard: list[bytes] = []
        self.headers = Headers()
        server.connections.append(self)  # type: ignore[arg-type]

    def admit(self, path: str, headers: Headers) -> None:
        self.headers = headers
        if path != "/connect":
            raise Refused(HTTPStatus.NOT_FOUND, b"<p>not here", "text/html")

    def message(self, payload: bytes, text: bool) -> None:
        self.heard.append(payload)
        if payload == b"end":
            self.end(CloseCode.POLICY_VIOLATION, "as you wish")
        elif payload == b"close":
            self.close("it asked for it")
        else:
            self.send((b"text " if text else b"binary ") + payload, text=text)


def listen(server: DoorServer) -> int:
    listener = Listener(EtzelSettings(port=0).places()[0], lambda: Echo(server))
    server.run(listener.open())
    server._listeners.append(listener)
    return listener.port


@pytest.fixture
def port(server: DoorServer) -> int:
    return listen(server)


@pytest.fixture
def ws(port: int) -> Any:
    with WebSocket(port) as websocket:
        yield websocket


def http(port: int, request: str | bytes) -> str:
    """All that comes back on a connection that sends only this."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock:
        sock.sendall(request.encode() if isinstance(request, str) else request)
        answer = b""
        while data := sock.recv(65_536):
            answer += data
    return answer.decode()


def closed_with(websocket: WebSocket) -> int | None:
    """The code with which the server closes, after whatever it says before."""
    try:
        while True:
            websocket.receive()
    except Closed as closed:
        return closed.code


# The handshake.


def test_the_handshake_is_that_of_the_rfc_and_nothing_is_negotiated(port: int) -> None:
    more = "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: etzel\r\n"
    with WebSocket(port, "/connect?anything", more=more) as websocket:
        head = websocket.head.lower()
        assert f"sec-websocket-accept: {ACCEPTED}".lower() in head
        assert "extensions" not in head
        assert "protocol:" not in head


def test_a_request_that_is_not_admitted_gets_the_answer_that_it_is_given(port: int) -> None:
    for upgrade in (HANDSHAKE.format(path="/nope", more=""), "GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        head, body = http(port, upgrade).split("\r\n\r\n")
        lines = head.split("\r\n")
        assert lines[0] == "HTTP/1.1 404 Not Found"
        assert "Content-Type: text/html" in lines
        assert [line for line in lines if line.startswith("Content-Length")] == ["Content-Length: 11"]
        assert body == "<p>not here"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /connect HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (HANDSHAKE.format(path="/connect", more="").replace("Version: 13", "Version: 99"), 400),
        (HANDSHAKE.format(path="/connect", more="").replace("Sec-WebSocket-Key: dGhl", "Sec-WebSocket-Key: !"), 400),
        (HANDSHAKE.format(path="/connect", more="").replace("Upgrade: websocket\r\n", ""), 400),
        ("nonsense\r\n\r\n", 400),
        ("GET /connect HTTP/9\r\n\r\n", 400),
        ("GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
        ("GET /" + "x" * 10_000 + " HTTP/1.1\r\n\r\n", 414),
        ("GET /connect HTTP/1.1\r\n" + "X: y\r\n" * 1000 + "\r\n", 431),
    ],
)
def test_a_bad_handshake_is_answered_in_http(port: int, request_text: str | bytes, status: int) -> None:
    assert http(port, request_text).startswith(f"HTTP/1.1 {status} ")


def test_nothing_that_is_sent_before_the_handshake_is_answered_counts(server: DoorServer, port: int) -> None:
    """Else a request that is not admitted could bring messages with it."""
    for path in ("/connect", "/nope"):
        for frame in (client_frame(b"early"), client_frame(b"", CLOSE), client_frame(b"", PING), b"\xff\xff no frame"):
            request = HANDSHAKE.format(path=path, more="").encode()
            with contextlib.suppress(ConnectionResetError):
                assert http(port, request + frame) == ""
    assert server.call(lambda: [each.heard for each in server.connections]) == [[]] * 8  # type: ignore[attr-defined]


def test_who_never_asks_is_not_waited_for(clocked_server: DoorServer) -> None:
    port = listen(clocked_server)
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock:
        sock.sendall(b"GET /connect HTTP/1.1\r\n")
        clocked_server.until(lambda: clocked_server.connections)
        clocked_server.advance(PING_EVERY_S - 1)
        assert not clocked_server.connections[0].closed
        clocked_server.advance(1.1)
        clocked_server.until(lambda: clocked_server.connections[0].closed)


def test_cookies_can_be_read() -> None:
    headers = Headers([("Cookie", "a=1; id=me; b"), ("Cookie", "other=x=y")])
    assert cookie(headers, "id") == "me"
    assert cookie(headers, "other") == "x=y"
    assert cookie(headers, "b") is None
    assert cookie(headers, "missing") is None


# Messages.


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 9_000])
def test_messages_of_any_length_go_both_ways(ws: WebSocket, size: int) -> None:
    ws.send_frame(b"x" * size)
    assert ws.receive() == b"text " + b"x" * size
    ws.send_frame(b"y" * size, BINARY)
    assert ws.receive() == b"binary " + b"y" * size


def test_a_long_frame_has_a_long_length() -> None:
    assert server_frame(b"x" * 65_536, text=False)[:10] == b"\x82\x7f" + struct.pack(">Q", 65_536)
    assert server_frame(b"x" * 65_535, text=True)[:4] == b"\x81\x7e" + struct.pack(">H", 65_535)
    assert server_frame(b"x" * 125, text=True)[:2] == b"\x81\x7d"


def test_a_message_may_come_in_fragments_with_control_frames_between(ws: WebSocket) -> None:
    ws.send_frame(b"one ", TEXT, fin=False)
    ws.send_frame(b"still there?", PING)
    assert ws.receive_frame() == (PONG, b"still there?")
    ws.send_frame(b"", CONTINUATION, fin=False)
    ws.send_frame(b"two", CONTINUATION)
    assert ws.receive() == b"text one two"
    ws.send_frame(b"next", BINARY, fin=False)
    ws.send_frame(b"", CONTINUATION)
    assert ws.receive() == b"binary next"


@pytest.fixture(scope="module")
def shared_port() -> Iterator[int]:
    """The port of a server for all examples of a test."""
    server = DoorServer(AdvancedLoop())
    server.start()
    yield listen(server)
    server.stop()


@given(messages=st.lists(st.binary(max_size=300), max_size=20), data=st.data())
def test_messages_are_whole_however_the_bytes_are_cut(
    shared_port: int, messages: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(client_frame(b"x" + message, BINARY) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    with WebSocket(shared_port) as websocket:
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            websocket.socket.sendall(stream[start:stop])
        assert [websocket.receive() for _ in messages] == [b"binary x" + message for message in messages]


def test_much_that_comes_at_once_is_taken_in_turns(server: DoorServer, port: int) -> None:
    """Two clients send a megabyte each at once: neither waits until all of the other's is done."""
    stream = client_frame(b"x" * 20) * 40_000
    with WebSocket(port) as first, WebSocket(port) as second:
        order: list[Any] = []
        connections: list[Any] = list(server.connections)

        def both() -> None:
            for connection in connections:
                connection._take_frame = lambda frame, connection=connection: order.append(connection)
                connection.data_received(stream)

        server.call(both)
        server.until(lambda: len(order) == 80_000)
        changes = sum(one is not other for one, other in pairwise(order))
        assert changes > 10
        assert server.call(lambda: [(len(each._unread), each.input_full) for each in connections]) == [(0, False)] * 2
        del first, second


def test_what_waits_for_its_turn_is_taken_in_after_the_connection_was_busy(server: DoorServer, port: int) -> None:
    with WebSocket(port) as websocket:
        connection: Any = server.connections[0]
        stream = client_frame(b"x" * 20) * 10_000

        def send_while_busy() -> None:
            connection.busy = lambda: True
            connection.data_received(stream)
            assert not connection.heard
            assert connection._reading_paused

        def calm_down() -> None:
            del connection.busy
            connection._regulate()

        server.call(send_while_busy)
        server.call(calm_down)
        for _ in range(10_000):
            websocket.receive()
        server.until(lambda: not connection._reading_paused)
        websocket.send_frame(b"end")
        assert closed_with(websocket) == 1008


def test_a_turn_ends_after_its_time_however_small_the_messages_are(
    server: DoorServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time at all, a turn is one piece of 4 KiB: 682 frames of 6 bytes."""
    monkeypatch.setattr(websocket_module, "TURN_S", 0.0)
    with WebSocket(port) as websocket:
        connection: Any = server.connections[0]
        turns: list[int] = []
        take_in, take_turn = connection._take_in, connection._take_turn

        def counted_turn() -> None:
            turns.append(0)
            take_turn()

        def counted_take_in(data: bytes) -> None:
            turns[-1] += len(data)
            take_in(data)

        def flood() -> None:
            connection._take_turn, connection._take_in = counted_turn, counted_take_in
            connection.data_received(client_frame(b"") * 100_000)

        server.call(flood)
        server.until(lambda: not connection._unread)
        assert sum(turns) == 600_000
        assert max(turns) <= 4 * 1024
        del websocket


# Half a message.


def half_frame(size_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a message of a client."""
    return client_frame(b"x" * size_bytes, BINARY)[: sent_bytes + 8]


@pytest.mark.parametrize(
    "sent",
    [half_frame(9_900, 9_000), client_frame(b"x" * 9_000, fin=False)],
    ids=["frame", "fragment"],
)
def test_half_a_message_is_counted_until_it_is_whole_or_its_client_is_gone(
    server: DoorServer, port: int, sent: bytes
) -> None:
    received = lambda: server.call(lambda: server.node.account.bytes_by_kind.get(RECEIVED, 0))  # noqa: E731
    with WebSocket(port) as websocket:
        websocket.socket.sendall(sent)
        server.until(lambda: server.node.account.bytes_by_kind.get(RECEIVED, 0) >= 9_000)
        assert received() <= 12 * 1024
    server.until(lambda: server.connections[0].closed)
    assert received() == 0
    # Freed, and not left to the garbage collector, which runs rarely.
    assert server.call(server.connections[0].received_bytes) == 0


def test_many_half_messages_do_not_need_more_than_the_limit(server: DoorServer, port: int) -> None:
    limit_bytes = 20 * 64 * 1024

    def shrink_limit() -> None:
        server.keeper.buffer_bytes_max = limit_bytes

    server.call(shrink_limit)
    with contextlib.ExitStack() as stack:
        for number in range(40):
            websocket = stack.enter_context(WebSocket(port))
            server.until(lambda number=number: len(server.connections) == number + 1)  # type: ignore[misc]
            connection: Any = server.connections[number]
            server.call(lambda connection=connection: connection._unread.extend(b"x" * 65_536))  # type: ignore[misc]
            server.call(lambda connection=connection: connection.measure())  # type: ignore[misc]
            assert server.call(lambda: server.node.account.total) <= limit_bytes + 2 * 65_536
            del websocket
        assert sum(connection.closed for connection in server.connections) >= 20


def test_a_client_that_stops_in_the_middle_of_a_message_is_closed(clocked_server: DoorServer) -> None:
    server = clocked_server
    with WebSocket(listen(server)) as websocket:
        websocket.socket.sendall(half_frame(9_900, 5_000))
        server.until(lambda: server.connections[0].has_half_request())
        for _ in range(5):
            server.advance(15)
        server.until(lambda: server.connections[0].closed)


def test_a_client_that_sends_slowly_but_steadily_is_not_closed(clocked_server: DoorServer) -> None:
    server = clocked_server
    message = client_frame(b"x" * 100)
    with WebSocket(listen(server)) as websocket:
        connection: Any = server.connections[0]
        for number in range(20):
            websocket.socket.sendall(message[number * 5 : number * 5 + 5])
            server.until(lambda number=number: connection.came_bytes >= len(message[: number * 5 + 5]))  # type: ignore[misc]
            connection._waiting_pongs = 0
            server.advance(15)
        assert not connection.closed


# Browsers.


@pytest.mark.parametrize("path", ["/connect", "/elsewhere"])
def test_a_page_of_another_site_gets_403_with_the_reason(port: int, path: str) -> None:
    answer = http(port, HANDSHAKE.format(path=path, more="Origin: http://evil.example\r\n"))
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 ")
    assert "text/plain" in head
    assert body == (
        "Pages of the origin 'http://evil.example' may not connect. "
        "To allow them, add this origin to the setting etzel.origins.\n"
    )


@pytest.mark.parametrize("origin", ["https://app.example", "http://localhost:8080"])
def test_a_page_of_a_configured_origin_or_of_the_same_host_connects(port: int, origin: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock:
        sock.sendall(HANDSHAKE.format(path="/connect", more=f"Origin: {origin}\r\n").encode())
        assert sock.recv(65_536).startswith(b"HTTP/1.1 101 ")


# Breaches of the protocol.


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (client_frame(b"x" * (MESSAGE_BYTES_MAX + 1)), 1009),
        (client_frame(b"x" * 6_000, fin=False) + client_frame(b"x" * 6_000, CONTINUATION), 1009),
        (b"\x81\xff" + struct.pack(">Q", 2**62), 1009),
        (client_frame(b"unmasked", mask=None), 1002),
        (client_frame(b"no beginning", CONTINUATION), 1002),
        (client_frame(b"a", fin=False) + client_frame(b"b"), 1002),
        (client_frame(b"x" * 126, PING), 1002),
        (client_frame(b"x", PING, fin=False), 1002),
        (client_frame(b"x", 3), 1002),
        (b"\xc1\x80\0\0\0\0", 1002),
        (client_frame(b"\x00", CLOSE), 1002),
        (client_frame(struct.pack(">H", 1005), CLOSE), 1002),
        (client_frame(b"\x03\xe8\xff", CLOSE), 1007),
    ],
)
def test_a_breach_of_the_protocol_ends_the_connection_with_its_code(
    server: DoorServer, port: int, sent: bytes, code: int
) -> None:
    with WebSocket(port) as websocket, WebSocket(port) as bystander:
        websocket.socket.sendall(sent)
        assert closed_with(websocket) == code
        bystander.send_frame(b"undisturbed")
        assert bystander.receive() == b"text undisturbed"
    server.until(lambda: all(connection.closed for connection in server.connections))


def test_who_sends_too_much_hears_why_though_it_goes_on_sending(ws: WebSocket) -> None:
    """Were the connection closed at once, what is on its way would reset it and destroy the close frame."""
    ws.socket.sendall(client_frame(b"x" * (MESSAGE_BYTES_MAX + 1)) + b"\0" * 1_000_000)
    assert closed_with(ws) == 1009
    assert ws.socket.recv(1) == b""


# The end.


@pytest.mark.parametrize("code", [1000, 1001, 3000])
def test_a_client_that_closes_hears_its_own_code(server: DoorServer, ws: WebSocket, code: int) -> None:
    assert ws.close(code) == code
    server.until(lambda: server.connections[0].closed)


def test_messages_that_came_before_the_close_are_taken(server: DoorServer, ws: WebSocket) -> None:
    ws.socket.sendall(client_frame(b"one") + client_frame(b"two") + client_frame(b"", CLOSE) + client_frame(b"three"))
    closed_with(ws)
    assert server.call(lambda: server.connections[0].heard) == [b"one", b"two"]  # type: ignore[attr-defined]


def test_when_the_server_ends_it_nothing_more_is_taken(server: DoorServer, ws: WebSocket) -> None:
    ws.socket.sendall(client_frame(b"one") + client_frame(b"end") + client_frame(b"two"))
    assert ws.receive() == b"text one"
    assert closed_with(ws) == 1008
    ws.send_frame(b"three")
    ws.send_frame(struct.pack(">H", 1008), CLOSE)
    assert ws.socket.recv(1) == b""
    assert server.call(lambda: server.connections[0].heard) == [b"one", b"end"]  # type: ignore[attr-defined]
    ws.socket.close()
    server.until(lambda: server.connections[0].closed)


def test_a_node_that_stops_says_that_it_goes(server: DoorServer, ws: WebSocket) -> None:
    server.call(lambda: server.keeper.close_all("the node stops"))
    assert closed_with(ws) == 1001
    server.until(lambda: server.connections[0].closed)


def test_after_a_close_in_a_handler_nothing_more_is_taken(server: DoorServer, ws: WebSocket) -> None:
    ws.socket.sendall(client_frame(b"close") + client_frame(b"two"))
    assert closed_with(ws) == 1001
    server.until(lambda: server.connections[0].closed)
    assert server.connections[0].heard == [b"close"]  # type: ignore[attr-defined]


def test_a_client_that_does_not_close_is_not_waited_for(clocked_server: DoorServer) -> None:
    with WebSocket(listen(clocked_server)) as websocket:
        websocket.send_frame(b"end")
        assert closed_with(websocket) == 1008
        connection = clocked_server.connections[0]
        for _ in range(5):  # whatever it goes on saying
            websocket.send_frame(b"more")
            clocked_server.advance(2.1)
        clocked_server.until(lambda: connection.closed)


def test_a_peer_that_goes_without_a_word_is_gone(server: DoorServer, ws: WebSocket) -> None:
    ws.send_frame(b"half", TEXT, fin=False)
    ws.socket.shutdown(socket.SHUT_WR)
    server.until(lambda: server.connections[0].closed)
    assert ws.socket.recv(1) == b""


# Liveness.


def test_a_peer_is_pinged_and_lives_as_long_as_it_answers(clocked_server: DoorServer) -> None:
    with WebSocket(listen(clocked_server)) as websocket:
        for number in range(1, 3 * PONGS_MISSED_MAX):
            clocked_server.advance(PING_EVERY_S + 0.1)
            opcode, payload = websocket.receive_frame()
            assert (opcode, payload) == (PING, str(number).encode())
            websocket.send_frame(payload, PONG)
            clocked_server.until(lambda: clocked_server.connections[0]._waiting_pongs == 0)  # type: ignore[attr-defined]
        assert not clocked_server.connections[0].closed


def test_a_half_open_peer_is_taken_for_dead_after_its_missed_pongs(clocked_server: DoorServer) -> None:
    with WebSocket(listen(clocked_server)) as websocket:
        for _ in range(PONGS_MISSED_MAX):
            clocked_server.advance(PING_EVERY_S + 0.1)
            assert websocket.receive_frame()[0] == PING
        assert not clocked_server.connections[0].closed
        clocked_server.advance(PING_EVERY_S + 0.1)
        clocked_server.until(lambda: clocked_server.connections[0].closed)


def test_anything_that_comes_shows_that_the_peer_lives(clocked_server: DoorServer) -> None:
    with WebSocket(listen(clocked_server)) as websocket:
        websocket.answer_pings = False
        for _ in range(3 * PONGS_MISSED_MAX):
            clocked_server.advance(PING_EVERY_S + 0.1)
            websocket.send_frame(b"hello")
            assert websocket.receive() == b"text hello"


def test_who_is_not_read_from_is_not_blamed_for_missing_pongs(clocked_server: DoorServer) -> None:
    """While its replies are not read we do not read its pongs either; the timer for stalled peers is at work then."""
    port = listen(clocked_server)
    for claimed in clocked_server._listeners[-1]._sockets:
        shrink(claimed, 8192)
    with WebSocket(port, buffer_bytes=8192) as websocket:
        connection = clocked_server.connections[0]
        clocked_server.call(lambda: connection.send(b"x" * 1_000_000, text=False))  # type: ignore[attr-defined]
        clocked_server.until(lambda: connection._reading_paused)
        for _ in range(2 * PONGS_MISSED_MAX):
            clocked_server.advance(PING_EVERY_S + 0.1)
        assert not connection.closed
        assert websocket.receive() == b"x" * 1_000_000
        websocket.send_frame(b"hello")
        assert websocket.receive() == b"text hello"
