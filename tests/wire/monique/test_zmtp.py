"""ZMTP between a PUSH and a PULL: the bytes of the specification, two connections against each other, and bad peers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.monique.errors import (
    FrameMalformed,
    FrameTooLong,
    NotReady,
    NotZmtp,
    PeerRefused,
    TooManyFrames,
    UnexpectedFrame,
    VersionTooOld,
    WrongMechanism,
    WrongSocketType,
    ZmtpError,
)
from penstock.wire.monique.zmtp import (
    COMMAND_BYTES_MAX,
    NEED_DATA,
    Event,
    Limits,
    MessageReceived,
    NeedData,
    PeerReady,
    PingReceived,
    PongReceived,
    SocketType,
    TopicAdded,
    TopicRemoved,
    ZmtpConnection,
    decode_properties,
    encode_message,
    encode_properties,
)

PUSH, PULL, PUB = SocketType.PUSH, SocketType.PULL, SocketType.PUB
# As libzmq 4.3 sends them.
GREETING = bytes.fromhex("ff00000000000000017f0301") + b"NULL" + bytes(16 + 32)
READY_PULL = b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PULL"
READY_PUSH = READY_PULL.replace(b"PULL", b"PUSH")
READY_SUB = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB"
READY_OF_PEER = {PUSH: READY_PULL, PULL: READY_PUSH, PUB: READY_SUB}


def drain(connection: ZmtpConnection) -> list[Event]:
    """All events that are there."""
    events: list[Event] = []
    while not isinstance(event := connection.next_event(), NeedData):
        events.append(event)
    return events


def met(socket_type: SocketType, limits: Limits | None = None) -> ZmtpConnection:
    """A connection whose handshake is done, with nothing left to send."""
    connection = ZmtpConnection(socket_type) if limits is None else ZmtpConnection(socket_type, limits=limits)
    connection.receive_data(GREETING + READY_OF_PEER[socket_type])
    assert drain(connection) == [PeerReady(b"", 1)]
    connection.data_to_send()
    return connection


def failure(connection: ZmtpConnection, data: bytes) -> ZmtpError:
    """The error that these bytes end the connection with, after which nothing moves any more."""
    connection.receive_data(data)
    with pytest.raises(ZmtpError) as raised:
        drain(connection)
    connection.receive_data(GREETING)
    with pytest.raises(type(raised.value)):
        connection.next_event()
    assert connection.buffered_bytes == 0
    assert not connection.ready
    return raised.value


def test_the_handshake_byte_by_byte() -> None:
    connection = ZmtpConnection(PUSH)
    assert connection.data_to_send() == b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(48)
    assert connection.next_event() is NEED_DATA
    for byte in GREETING:
        assert connection.data_to_send() == b""
        connection.receive_data(bytes((byte,)))
        assert connection.next_event() is NEED_DATA
    assert connection.data_to_send() == READY_PUSH
    for byte in READY_PULL[:-1]:
        connection.receive_data(bytes((byte,)))
        assert connection.next_event() is NEED_DATA
    assert not connection.ready
    connection.receive_data(READY_PULL[-1:])
    assert connection.next_event() == PeerReady(b"", 1)
    assert connection.ready


def test_frames_as_the_specification_draws_them() -> None:
    connection = met(PUSH)
    connection.send_message([b"tag", b"x" * 255, b"y" * 256])
    connection.send_message([b""])
    assert connection.data_to_send() == (
        b"\x01\x03tag" + b"\x01\xff" + b"x" * 255 + b"\x02" + (256).to_bytes(8, "big") + b"y" * 256 + b"\0\0"
    )
    assert connection.data_to_send() == b""


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=5), st.data())
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    messages: list[list[bytes]], data: st.DataObject
) -> None:
    push, pull = ZmtpConnection(PUSH), ZmtpConnection(PULL, identity=b"worker")
    pull.receive_data(push.data_to_send())
    assert pull.next_event() is NEED_DATA
    push.receive_data(pull.data_to_send())
    assert drain(push) == [PeerReady(b"worker", 1)]
    for message in messages:
        push.send_message(message)
    stream = push.data_to_send()
    events: list[Event] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        pull.receive_data(stream[:cut])
        events += drain(pull)
        stream = stream[cut:]
    assert events == [PeerReady(b"", 1), *(MessageReceived(tuple(message)) for message in messages)]
    assert pull.buffered_bytes == 0


def test_a_short_message_may_come_as_a_long_frame() -> None:
    connection = met(PULL)
    connection.receive_data(b"\x02" + (2).to_bytes(8, "big") + b"ab")
    assert drain(connection) == [MessageReceived((b"ab",))]


def test_pings_are_answered_with_their_context() -> None:
    connection = met(PUSH)
    connection.receive_data(b"\x04\x0a\x04PING\x00\x0aabc" + b"\x04\x07\x04PING\x00\x00")
    assert drain(connection) == [PingReceived(1000), PingReceived(0)]
    assert connection.data_to_send() == b"\x04\x08\x04PONGabc" + b"\x04\x05\x04PONG"


def test_a_ping_of_ours_comes_back() -> None:
    push, pull = met(PUSH), met(PULL)
    push.send_ping(2500, b"seven")
    pull.receive_data(push.data_to_send())
    assert drain(pull) == [PingReceived(2500)]
    push.receive_data(pull.data_to_send())
    assert drain(push) == [PongReceived(b"seven")]


def test_version_3_0_is_served_without_pings() -> None:
    connection = ZmtpConnection(PUSH)
    connection.receive_data(GREETING[:11] + b"\0" + GREETING[12:] + READY_PULL)
    assert drain(connection) == [PeerReady(b"", 0)]
    with pytest.raises(NotReady):
        connection.send_ping()
    connection.send_message([b"x"])


def test_later_versions_are_served() -> None:
    connection = ZmtpConnection(PUSH)
    connection.receive_data(GREETING[:10] + b"\x04\x00" + GREETING[12:] + READY_PULL)
    assert drain(connection) == [PeerReady(b"", 1)]


def test_names_of_properties_are_the_same_in_upper_and_lower_case() -> None:
    connection = ZmtpConnection(PUSH)
    connection.receive_data(GREETING + READY_PULL.replace(b"Socket-Type", b"sOCKET-tYPE"))
    assert drain(connection) == [PeerReady(b"", 1)]


def test_unknown_commands_are_ignored() -> None:
    connection = met(PUSH)
    connection.receive_data(b"\x04\x06\x05HELLO")
    assert drain(connection) == []
    assert connection.ready


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET / HTTP/1.1\r\n", NotZmtp),
        (b"\xff" + bytes(9), NotZmtp),
        (GREETING[:10] + b"\x01", VersionTooOld),
        (GREETING[:12] + b"PLAIN".ljust(20, b"\0") + bytes(32), WrongMechanism),
        (GREETING[:12] + b"NULLx".ljust(20, b"\0") + bytes(32), WrongMechanism),
        (GREETING + READY_PULL.replace(b"PULL", b"PUSH"), WrongSocketType),
        (GREETING + b"\x04\x06\x05READY", WrongSocketType),
        (GREETING + b"\x04\x08\x05READY\x01S", FrameMalformed),
        (GREETING + b"\x04\x07\x05READY\x00", FrameMalformed),
        (GREETING + READY_PULL[:-8] + b"\0\0\0\5PULL", FrameMalformed),
        (GREETING + b"\x04\x07\x04PING\0\0", UnexpectedFrame),
        (GREETING + b"\x00", UnexpectedFrame),
        (GREETING + b"\x04\x0a\x05ERROR\x03bad", PeerRefused),
        (GREETING + b"\x04\x06\x05ERROR", PeerRefused),
        (GREETING + b"\x04\x00", FrameMalformed),
        (GREETING + b"\x04\x01\x00", FrameMalformed),
        (GREETING + b"\x04\x03\x05RE", FrameMalformed),
        (GREETING + b"\x05", FrameMalformed),
        (GREETING + b"\x08", FrameMalformed),
        (GREETING + b"\x06" + (COMMAND_BYTES_MAX + 1).to_bytes(8, "big"), FrameTooLong),
        (GREETING + READY_PULL + b"\x00", UnexpectedFrame),
        (GREETING + READY_PULL + b"\x04\x06\x04PING\0", FrameMalformed),
        (GREETING + READY_PULL + b"\x04\x18\x04PING\0\0" + bytes(17), FrameMalformed),
        (GREETING + READY_PULL + b"\x04\x0a\x05ERROR\x03bad", PeerRefused),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value.__name__,
)
def test_a_peer_that_is_wrong_ends_the_connection(data: bytes, error: type[ZmtpError]) -> None:
    found = failure(ZmtpConnection(PUSH), data)
    assert type(found) is error
    assert found.code.startswith("zmtp-")


def test_errors_carry_what_they_are_about() -> None:
    mechanism = failure(ZmtpConnection(PUSH), GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32))
    assert isinstance(mechanism, WrongMechanism)
    assert mechanism.mechanism == b"CURVE"
    kind = failure(ZmtpConnection(PUSH), GREETING + READY_PULL.replace(b"PULL", b"PAIR"))
    assert isinstance(kind, WrongSocketType)
    assert (kind.socket_type, kind.expected) == (b"PAIR", b"PULL")
    refusal = failure(met(PUSH), b"\x04\x0a\x05ERROR\x03bad")
    assert isinstance(refusal, PeerRefused)
    assert refusal.reason == b"bad"


def test_lengths_are_refused_before_the_bytes_are_awaited() -> None:
    limits = Limits(message_bytes_max=1000, frames_max=3)
    error = failure(met(PULL, limits), b"\x02" + (2**63).to_bytes(8, "big"))
    assert isinstance(error, FrameTooLong)
    assert (error.length, error.limit) == (2**63, 1000)
    # The limit counts all frames of a message, and begins anew with the next.
    head = b"\x03" + (600).to_bytes(8, "big") + bytes(600)
    assert isinstance(failure(met(PULL, limits), head + head[:9]), FrameTooLong)
    connection = met(PULL, limits)
    connection.receive_data((b"\x02" + head[1:]) * 2)
    assert len(drain(connection)) == 2
    assert isinstance(failure(connection, b"\x01\x00" * 3 + b"\x00"), TooManyFrames)


def test_nothing_is_sent_before_the_handshake_or_by_the_wrong_side() -> None:
    for connection in (ZmtpConnection(PUSH), met(PULL)):
        with pytest.raises(NotReady):
            connection.send_message([b"x"])
    with pytest.raises(NotReady):
        ZmtpConnection(PUSH).send_ping()
    with pytest.raises(NotReady):
        met(PUSH).send_message([])


@pytest.mark.parametrize(
    ("sent", "event"),
    [
        (b"\0\x06\x01data:", TopicAdded(b"data:")),
        (b"\0\x06\0data:", TopicRemoved(b"data:")),
        (b"\0\x01\x01", TopicAdded(b"")),
        (b"\x04\x0f\x09SUBSCRIBEdata:", TopicAdded(b"data:")),
        (b"\x04\x0c\x06CANCELdata:", TopicRemoved(b"data:")),
    ],
)
def test_topics_come_as_messages_and_as_commands(sent: bytes, event: Event) -> None:
    publisher = met(PUB)
    publisher.receive_data(sent)
    assert drain(publisher) == [event]


def test_other_messages_of_a_subscriber_are_ignored() -> None:
    publisher = met(PUB)
    publisher.receive_data(b"\0\x02\x02x\0\0\x01\x02\x01a\0\x02\x01b")
    assert drain(publisher) == [TopicAdded(b"b")]
    pusher = met(PUSH)
    pusher.receive_data(b"\x04\x0f\x09SUBSCRIBEdata:")
    assert drain(pusher) == []


def test_a_publisher_sends_messages() -> None:
    publisher = met(PUB)
    publisher.send_message((b"tag", b"body"))
    assert publisher.data_to_send() == b"\x01\x03tag\0\x04body" == encode_message((b"tag", b"body"))


@given(st.dictionaries(st.binary(min_size=1, max_size=20).map(bytes.lower), st.binary(max_size=20), max_size=4))
def test_properties_come_back_as_they_were(properties: dict[bytes, bytes]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(
    st.sampled_from(SocketType),
    st.sampled_from([b"", GREETING, GREETING + READY_PULL, GREETING + READY_PUSH, GREETING + READY_SUB]),
    st.binary(),
)
def test_nothing_but_zmtp_errors_comes_out_of_junk(socket_type: SocketType, start: bytes, junk: bytes) -> None:
    whole, single = ZmtpConnection(socket_type), ZmtpConnection(socket_type)
    outcomes: list[list[object]] = []
    for connection, pieces in ((whole, [start + junk]), (single, [bytes((byte,)) for byte in start + junk])):
        seen: list[object] = []
        try:
            for piece in pieces:
                connection.receive_data(piece)
                while not isinstance(event := connection.next_event(), NeedData):
                    seen.append(event)
        except ZmtpError as error:
            seen.append(type(error))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1], "the outcome depends on how the bytes were cut"
