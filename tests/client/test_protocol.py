"""The client's side of the conversation without a socket: numbers, what is repeated, and what is not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import BadAnswer, HandshakeRefused, NotLeader, OutcomeUnknown, RequestTooLarge
from penstock.client.protocol import LOSSES_MAX, Handshake, Session
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import Done, PutAnswer
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.frames import FRAME_BYTES_MAX, FrameReader, encode_frame
from tests.client.scripted import ACCEPTED, HANDSHAKE, refusal_bytes, taken

PUT = c.Put("q", [c.Item(1, b"x")])


def frames(data: bytes) -> list[tuple[int, int, Any]]:
    """Operation, number and decoded body of each frame."""
    decoders = c.DECODERS | m.DECODERS
    return [(op, number, decoders[op].decode(body)) for op, number, body in FrameReader().feed(data)]


def reply(status: int, number: int, value: object) -> bytes:
    return encode_frame(status, number, c.encode(value))


def open_session() -> Session:
    session = Session(5, "test")
    session.begin()
    session.shake(ACCEPTED)
    return session


def test_the_handshake_asks_for_our_protocol() -> None:
    assert Session(1).begin() == HANDSHAKE


@given(st.lists(st.integers(0, len(ACCEPTED)), max_size=4))
def test_the_handshake_may_come_in_any_pieces(cuts: list[int]) -> None:
    handshake = Handshake()
    edges = [0, *sorted(cuts), len(ACCEPTED)]
    pieces = [ACCEPTED[a:b] for a, b in pairwise(edges)]
    done = [handshake.feed(piece) for piece in pieces]
    assert done[-1]
    arrived = 0
    for piece, was_done in zip(pieces, done, strict=True):
        arrived += len(piece)
        assert was_done == (arrived == len(ACCEPTED))


@given(st.binary(max_size=40), st.booleans())
def test_a_handshake_ends_in_acceptance_patience_or_a_refusal(data: bytes, prefixed: bool) -> None:
    """Whatever a peer sends, nothing else can come out."""
    handshake = Handshake()
    try:
        accepted = handshake.feed(b"a\x01b" * prefixed + data)
    except HandshakeRefused:
        return
    assert not accepted or (b"a\x01b" * prefixed + data) == ACCEPTED


def test_a_reason_is_read_whole() -> None:
    handshake = Handshake()
    answer = b"a\x01" + refusal_bytes(b"b", "Версия не та")
    for byte in answer[:-1]:
        assert not handshake.feed(bytes([byte]))
    with pytest.raises(HandshakeRefused, match="Версия не та"):
        handshake.feed(answer[-1:])


def test_bytes_before_we_spoke_are_refused() -> None:
    with pytest.raises(HandshakeRefused, match="more than"):
        Handshake().feed(ACCEPTED + b"x")


def test_numbers_rise_over_connections_and_none_is_used_twice() -> None:
    session = open_session()
    numbers = [session.call(PUT, object()).number for _ in range(3)]
    session.lost()
    session.begin()
    session.shake(ACCEPTED)
    numbers += [session.hello(object()).number, session.call(m.Ping(), None).number]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


def test_replies_find_their_calls_and_strangers_are_ignored() -> None:
    session = open_session()
    one, other = session.call(PUT, "one"), session.call(m.Ping(), "other")
    data = reply(m.ANSWER, 999, Done()) + reply(m.ANSWER, other.number, Done(2))
    data += reply(m.REFUSED, one.number, Refusal(codes.QUEUE_FULL)) + reply(m.PUSH, 998, taken(1))
    assert list(session.receive(data)) == [(other, m.ANSWER, Done(2)), (one, m.REFUSED, Refusal(codes.QUEUE_FULL))]
    assert not session.calls


@given(st.data())
def test_replies_may_come_in_any_pieces(data: st.DataObject) -> None:
    session = open_session()
    calls = [session.call(PUT, n) for n in range(4)]
    stream = b"".join(reply(m.ANSWER, call.number, PutAnswer(n, 1)) for n, call in enumerate(calls))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    got = [each for a, b in pairwise(edges) for each in session.receive(stream[a:b])]
    assert [(call, value.first) for call, _, value in got] == [(call, n) for n, call in enumerate(calls)]


def test_an_unreadable_answer_belongs_to_its_call() -> None:
    session = open_session()
    call = session.call(PUT, "waiter")
    ((which, status, value),) = session.receive(encode_frame(m.ANSWER, call.number, b"\xa1x"))
    assert (which, status) == (call, m.REFUSED)
    assert isinstance(value, BadAnswer)


def test_an_unreadable_push_ends_the_connection() -> None:
    session = open_session()
    call = session.call(m.Subscribe("q"), "waiter")
    session.sinks[call.number] = "sink"
    with pytest.raises(BadAnswer):
        list(session.receive(encode_frame(m.PUSH, call.number, b"\xc1")))


def test_after_a_loss_every_call_is_repeated_in_the_order_of_numbers() -> None:
    session = open_session()
    calls = [session.call(request, "waiter") for request in (PUT, m.Peek("q"), c.Purge("q"))]
    session.keep(session.calls.pop(calls[0].number), Refusal(codes.NOT_LEADER), now=0.0)
    assert session.lost() == ([], [])
    assert session.repeat(0.0) == b"".join(call.frame for call in calls)
    assert [call.doubtful for call in calls] == [False, True, True]


def test_hello_and_what_nobody_waits_for_are_not_repeated() -> None:
    session = open_session()
    hello, status, put = session.hello("waiter"), session.call(m.Status(), None), session.call(PUT, None)
    dropped, _ = session.lost()
    assert dropped == [hello, status, put]
    assert session.repeat(0.0) == b""


def test_a_waiting_take_is_repeated_with_what_is_left_of_its_wait() -> None:
    session = open_session()
    call = session.call(c.Take("q", wait_ms=9_000), "waiter", wait_until=109.0)
    session.lost()
    assert frames(session.repeat(104.0)) == [(c.TAKE, call.number, c.Take("q", wait_ms=5_000))]
    session.lost()
    assert frames(session.repeat(200.0)) == [(c.TAKE, call.number, c.Take("q", wait_ms=0))]


def test_a_take_that_nobody_waits_for_is_repeated_without_waiting() -> None:
    session = open_session()
    call = session.call(c.AckTake("q", [(1, 2)], wait_ms=9_000), None, wait_until=109.0)
    session.lost()
    assert frames(session.repeat(100.0)) == [(c.ACK_TAKE, call.number, c.AckTake("q", [(1, 2)], wait_ms=0))]


def test_a_call_that_saw_too_many_losses_is_dropped() -> None:
    session = open_session()
    call = session.call(PUT, "waiter")
    for _ in range(LOSSES_MAX - 1):
        assert session.lost() == ([], [])
        session.repeat(0.0)
    assert session.lost() == ([call], [])


def test_losses_count_only_where_the_call_was_sent() -> None:
    session = open_session()
    call = session.call(PUT, "waiter")
    for _ in range(2 * LOSSES_MAX):
        session.keep(session.calls.pop(call.number), Refusal(codes.STOPPING), now=0.0)
        assert session.lost() == ([], [])
        session.repeat(0.0)
    assert not call.doubtful


def test_a_lost_subscription_is_told_unless_its_request_will_be_repeated() -> None:
    session = open_session()
    made, asked = session.call(m.Subscribe("a"), "waiter"), session.call(m.Subscribe("b"), "waiter")
    session.sinks = {made.number: "made", asked.number: "asked"}
    list(session.receive(reply(m.ANSWER, made.number, Done())))
    assert session.lost() == ([], ["made"])
    assert session.sinks == {asked.number: "asked"}


def test_refusals_mean_what_they_can_mean() -> None:
    session = open_session()
    command, read = session.call(PUT, "waiter"), session.call(m.Ping(), "waiter")
    not_leader = Refusal(codes.NOT_LEADER, figures=(4,))
    assert isinstance(command.error_for(not_leader), NotLeader)
    assert isinstance(command.error_for(Refusal(codes.OUTCOME_UNKNOWN)), OutcomeUnknown)
    session.lost()
    assert isinstance(command.error_for(not_leader), OutcomeUnknown)
    assert isinstance(read.error_for(not_leader), NotLeader)


def test_an_atomic_batch_names_the_offender() -> None:
    session = open_session()
    batch = session.call(c.PutMany([("q", [c.Item(1, b"")])]), "waiter")
    error = batch.error_for(Refusal(codes.QUEUE_FULL, figures=(10, 3)))
    assert (error.limit, error.position) == (10, 3)  # type: ignore[attr-defined]
    single = session.call(PUT, "waiter").error_for(Refusal(codes.QUEUE_FULL, figures=(10,)))
    assert (single.limit, single.position) == (10, None)  # type: ignore[attr-defined]


def test_a_request_that_no_frame_can_hold_is_not_sent() -> None:
    session = open_session()
    with pytest.raises(RequestTooLarge) as caught:
        session.call(c.Put("q", [c.Item(0, bytes(FRAME_BYTES_MAX))]), "waiter")
    assert caught.value.limit_bytes == FRAME_BYTES_MAX < caught.value.size_bytes
    assert not session.calls


def test_the_largest_request_that_fits_is_one_that_the_reader_takes() -> None:
    session = open_session()
    overhead = len(session.call(c.Put("q", [c.Item(0, bytes(1 << 20))]), "waiter").frame) - (1 << 20)
    call = session.call(c.Put("q", [c.Item(0, bytes(FRAME_BYTES_MAX - overhead))]), "waiter")
    assert len(call.frame) == FRAME_BYTES_MAX
    assert len(list(FrameReader().feed(call.frame))) == 1


def test_every_request_type_has_a_number() -> None:
    """A request that the table does not know would be a mistake of ours, and found here."""
    assert set(m.CODES) == {*c.TYPES.values(), *m.REQUESTS.values()}
    assert all(isinstance(m.ANSWER_DECODERS[op], msgspec.msgpack.Decoder) for op in m.CODES.values())
