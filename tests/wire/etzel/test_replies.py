"""Replies: the bytes are those of the original, with error_count after uid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.etzel import Nok, ReplyError, encode_reply, message, parse_reply
from penstock.wire.etzel import replies as r
from tests.wire.etzel.support import VECTORS, steps

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SAID = st.one_of(
    st.builds(r.Subscribed, TEXT),
    st.just(r.Published()),
    st.builds(r.Published, TEXT),
    st.builds(message, TEXT, TEXT, st.integers(0, 2**63 - 1), st.binary() | TEXT.map(str.encode)),
    st.builds(r.NoMessage, TEXT),
    st.builds(r.Sleeping, TEXT),
    st.builds(r.Acknowledged, TEXT, TEXT),
    st.builds(r.Refused, st.sampled_from(Nok).map(str)),
    st.builds(r.Awake, TEXT),
)


@pytest.mark.parametrize(
    ("number", "reply"),
    list(
        enumerate(
            [
                r.Subscribed("q"),
                r.Published(),
                r.Message(qname="q", uid="$uid", msg="hello"),
                r.NoMessage("q"),
                r.Refused(Nok.Q_NOT_FOUND),
                r.Sleeping("q"),
                r.Acknowledged("$uid", "q"),
                r.Awake("q"),
            ]
        )
    ),
)
def test_recorded_replies(number: int, reply: r.Reply) -> None:
    command = VECTORS["commands"][number]
    recorded = command.get("reply") or command["frame"]
    assert encode_reply(reply).decode() == recorded
    assert parse_reply(recorded) == reply


def test_recorded_dialogues() -> None:
    """Every frame that the original sent is read, and written again with the same bytes."""
    frames = [step["raw"] for step in steps("recv") if "raw" in step]
    assert len(frames) > 150
    for frame in frames:
        assert encode_reply(parse_reply(frame)).decode() == frame


@pytest.mark.parametrize(
    ("reply", "frame"),
    [
        (r.Published("u"), b'{"cmd":"ok","uid":"u"}'),
        (message("q", "u", 0, b"hello"), b'{"cmd":"msg","qname":"q","uid":"u","error_count":0,"msg":"hello"}'),
        (message("q", "u", 300, b""), b'{"cmd":"msg","qname":"q","uid":"u","error_count":300,"msg":""}'),
        (
            message("q", "u", 1, b"\xff"),
            b'{"cmd":"msg","qname":"q","uid":"u","error_count":1,"msg":"/w==","encoding":"base64"}',
        ),
        (r.Refused(Nok.BAD_DELAY), b'{"cmd":"nok","err":"BAD_DELAY"}'),
    ],
)
def test_what_is_added_to_the_original(reply: r.Reply, frame: bytes) -> None:
    assert encode_reply(reply) == frame
    assert parse_reply(frame) == reply


@given(SAID)
def test_what_a_server_says_a_client_understands(reply: r.Reply) -> None:
    frame = encode_reply(reply)
    assert parse_reply(frame) == reply
    assert frame.startswith(b'{"cmd":"')
    for length in range(len(frame)):
        with pytest.raises(ReplyError):
            parse_reply(frame[:length])


@given(st.binary())
def test_any_payload_comes_back(payload: bytes) -> None:
    reply = parse_reply(encode_reply(message("q", "u", 0, payload)))
    assert isinstance(reply, r.Message)
    assert reply.payload == payload


@pytest.mark.parametrize(
    "frame",
    [
        b"[]",
        b"{}",
        b'{"cmd":"what"}',
        b'{"cmd":"oksub"}',
        b'{"cmd":"msg","qname":"q","uid":"u"}',
        b'{"cmd":"msg","qname":"q","uid":"u","msg":"m","encoding":"hex"}',
        b'{"cmd":"awk","qname":"\xff"}',
        b'{"cmd":"awk","qname":"\\ud800"}',
        b'{"cmd":"awk","qname":"q","x":' + b"[" * 100_000,
    ],
)
def test_what_is_no_reply(frame: bytes) -> None:
    with pytest.raises(ReplyError):
        parse_reply(frame)


def test_broken_base64_is_told_when_it_is_read() -> None:
    reply = parse_reply(b'{"cmd":"msg","qname":"q","uid":"u","msg":"/w=","encoding":"base64"}')
    assert isinstance(reply, r.Message)
    with pytest.raises(ReplyError):
        _ = reply.payload
