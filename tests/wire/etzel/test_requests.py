"""Requests: what the original's clients send is understood, and each mistake has its code."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.commands import DURATION_MS_MAX, INT64_MAX, INT64_MIN
from penstock.wire.etzel import Nok, Request, RequestError, encode_request, parse_request
from penstock.wire.etzel.requests import Acknowledge, Fetch, Publish, Sleep, Sub
from tests.wire.etzel.support import VECTORS, steps

QNAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SAID = st.one_of(
    st.builds(Sub, QNAMES),
    st.builds(Fetch, QNAMES),
    st.builds(Sleep, QNAMES),
    st.builds(Acknowledge, QNAMES, st.text(st.characters(exclude_categories=["Cs"]))),
    st.builds(
        Publish,
        QNAMES,
        st.binary() | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
        st.integers(5_000, 86_400_000),
        st.integers(0, 31_536_000_000),
        st.integers(0, DURATION_MS_MAX),
        st.integers(INT64_MIN, INT64_MAX),
        st.booleans(),
    ),
)


def refusal(frame: bytes | str) -> Nok:
    with pytest.raises(RequestError) as raised:
        parse_request(frame)
    return raised.value.nok


def publish(**fields: object) -> bytes:
    return json.dumps({"cmd": "PUB", "qname": "q", "msg": "m"} | fields).encode()


@pytest.mark.parametrize(
    ("number", "expected"),
    list(
        enumerate(
            [
                Sub("q"),
                Publish("q", b"hello"),
                Fetch("q"),
                Fetch("q"),
                Fetch("never"),
                Sleep("q"),
                Acknowledge("q", "$uid"),
            ]
        )
    ),
)
def test_recorded_commands(number: int, expected: Request) -> None:
    assert parse_request(json.dumps(VECTORS["commands"][number]["request"])) == expected


def test_recorded_dialogues() -> None:
    """Every frame of every dialogue is read, or refused with one of the codes, and the refused ones are known."""
    refused = []
    for step in steps("send"):
        frame = step["text"] if "text" in step else json.dumps(step["json"])
        try:
            request = parse_request(frame)
        except RequestError as error:
            refused.append((frame, error.nok))
        else:
            assert request.qname == step["json"]["qname"]
            assert parse_request(encode_request(request)) == request
    publish_r05 = '{"cmd": "PUB", "qname": "r05", "msg": %s, "delay": %s, "expires": 0}'
    assert set(refused) >= {
        ("hello", Nok.BAD_JSON),
        ("not json", Nok.BAD_JSON),
        ("[1,2]", Nok.BAD_REQUEST),
        ('{"cmd": "XYZ", "qname": "r05"}', Nok.UNKNOWN_CMD),
        ('{"qname": "r05"}', Nok.BAD_REQUEST),
        ('{"cmd": "FET"}', Nok.BAD_REQUEST),
        ('{"cmd": "ACK", "qname": "r05"}', Nok.BAD_REQUEST),
        (publish_r05 % ('"x"', '"5"'), Nok.BAD_DELAY),
        (publish_r05 % ('"x"', "-1"), Nok.BAD_DELAY),
        (publish_r05 % ('"x"', "31536001"), Nok.BAD_DELAY),
        (publish_r05 % ('{"a": 1}', "0"), Nok.BAD_MSG),
    }
    assert len(refused) == 14


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"cmd":"PUB","qname":"q","message":"hi"}', Publish("q", b"hi")),
        (b'{"cmd":"PUB","qname":"q","message":"no","msg":"yes"}', Publish("q", b"yes")),
        (b'{"cmd":"PUB","qname":"q","message":"yes","msg":null,"delay":null}', Publish("q", b"yes")),
        (b'{"cmd":"PUB","qname":"","msg":""}', Publish("", b"")),
        (publish(msg="/wA=", encoding="base64"), Publish("q", b"\xff\x00")),
        (publish(msg="\N{GRINNING FACE}\0"), Publish("q", "\N{GRINNING FACE}\0".encode())),
        (publish(timeout=5), Publish("q", b"m", timeout_ms=5_000)),
        (publish(timeout=86_400), Publish("q", b"m", timeout_ms=86_400_000)),
        (publish(delay=1.5), Publish("q", b"m", delay_ms=1_500)),
        (publish(delay=31_536_000), Publish("q", b"m", delay_ms=31_536_000_000)),
        (publish(delay=-0.0), Publish("q", b"m")),
        (publish(expires=0.25), Publish("q", b"m", expires_ms=250)),
        (publish(expires=0.0001), Publish("q", b"m", expires_ms=1)),
        (publish(priority=-20), Publish("q", b"m", priority=-20)),
        (publish(priority=INT64_MIN), Publish("q", b"m", priority=INT64_MIN)),
        (publish(priority=INT64_MAX), Publish("q", b"m", priority=INT64_MAX)),
        (publish(uid=True), Publish("q", b"m", wants_uid=True)),
        (publish(uid="u"), Publish("q", b"m")),
        (b'{"cmd":"DEL","qname":"q","uid":"u"}', Acknowledge("q", "u")),
        # What nobody reads harms nobody.
        (b'{"cmd":"FET","qname":"q","x":"\\ud800"}', Fetch("q")),
        (b'{"cmd":"FET","qname":"q","x":1e999,"delay":' + b"9" * 9_999 + b"}", Fetch("q")),
        ('{"cmd":"FET","qname":"é"}', Fetch("é")),
    ],
)
def test_what_is_understood(frame: bytes | str, expected: Request) -> None:
    assert parse_request(frame) == expected


@pytest.mark.parametrize(
    ("frame", "nok"),
    [
        (b"", Nok.BAD_JSON),
        (b'{"cmd":"PUB","qname":"q","message":"m",}', Nok.BAD_JSON),
        (b'{"cmd":"SUB","qname":"\xff"}', Nok.BAD_JSON),
        (b'{"cmd":"FET","qname":"q","x":NaN}', Nok.BAD_JSON),
        (b'{"cmd":"FET","qname":"q"} {}', Nok.BAD_JSON),
        (b'{"cmd":"FET","qname":"q","x":' + b"[" * 100_000, Nok.BAD_JSON),
        (b'{"cmd":"FET","qname":"q","y":"\\ud800","x":' + b"[" * 100_000, Nok.BAD_JSON),
        (b'{"cmd":"FET","qname":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Nok.BAD_JSON),
        (b"null", Nok.BAD_REQUEST),
        (b'"FET"', Nok.BAD_REQUEST),
        (b'{"cmd":1,"qname":"q"}', Nok.BAD_REQUEST),
        (b'{"cmd":"sub","qname":"q"}', Nok.UNKNOWN_CMD),
        (b'{"cmd":"\\ud800","qname":"q"}', Nok.UNKNOWN_CMD),
        (b'{"cmd":"SUB"}', Nok.BAD_REQUEST),
        (b'{"cmd":"SUB","qname":5}', Nok.BAD_QNAME),
        (b'{"cmd":"SUB","qname":"\\udc00"}', Nok.BAD_QNAME),
        (b'{"cmd":"SUB","qname":"' + b"q" * 256 + b'"}', Nok.BAD_QNAME),
        (b'{"cmd":"ACK","qname":"q","uid":5}', Nok.BAD_REQUEST),
        (b'{"cmd":"ACK","qname":"q","uid":"\\ud800"}', Nok.BAD_REQUEST),
        (b'{"cmd":"ACK","qname":"q","uid":"' + b"u" * 256 + b'"}', Nok.BAD_REQUEST),
        (b'{"cmd":"PUB","qname":"q"}', Nok.BAD_REQUEST),
        (publish(msg=65), Nok.BAD_MSG),
        (publish(msg="\ud800"), Nok.BAD_MSG),
        ('{"cmd":"PUB","qname":"q","msg":"\ud800"}', Nok.BAD_MSG),
        (publish(msg="/w=", encoding="base64"), Nok.BAD_MSG),
        (publish(msg="é", encoding="base64"), Nok.BAD_MSG),
        (publish(msg="ff", encoding="hex"), Nok.BAD_MSG),
        (publish(delay=True), Nok.BAD_DELAY),
        (publish(delay=31_536_000.001), Nok.BAD_DELAY),
        (b'{"cmd":"PUB","qname":"q","msg":"m","delay":1e999}', Nok.BAD_DELAY),
        (b'{"cmd":"PUB","qname":"q","msg":"m","delay":' + b"9" * 9_999 + b"}", Nok.BAD_DELAY),
        (publish(expires=-1), Nok.BAD_EXPIRES),
        (publish(expires="never"), Nok.BAD_EXPIRES),
        (publish(expires=DURATION_MS_MAX // 1000 + 1), Nok.BAD_EXPIRES),
        (publish(timeout=4.999), Nok.BAD_TIMEOUT),
        (publish(timeout=86_400.5), Nok.BAD_TIMEOUT),
        (publish(timeout=[]), Nok.BAD_TIMEOUT),
        (publish(priority=INT64_MAX + 1), Nok.BAD_REQUEST),
        (publish(priority=1.0), Nok.BAD_REQUEST),
        (publish(priority=False), Nok.BAD_REQUEST),
    ],
)
def test_each_mistake_has_its_code(frame: bytes | str, nok: Nok) -> None:
    assert refusal(frame) is nok


@pytest.mark.parametrize("command", VECTORS["commands"][:7], ids=lambda command: command["cmd"])
def test_every_prefix_is_broken_json(command: dict[str, Any]) -> None:
    frame = json.dumps(command["request"]).encode()
    assert {refusal(frame[:length]) for length in range(len(frame))} == {Nok.BAD_JSON}


@given(SAID)
def test_what_a_client_says_a_server_understands(request: Request) -> None:
    assert parse_request(encode_request(request)) == request
    assert parse_request(encode_request(request).decode()) == request


@given(st.binary() | st.text(st.characters()) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_junk_is_refused_or_by_chance_a_request_and_nothing_else(frame: bytes | str) -> None:
    with contextlib.suppress(RequestError):
        assert isinstance(parse_request(frame), Request)


@given(
    st.dictionaries(
        st.sampled_from("cmd qname uid msg message encoding delay expires timeout priority other".split()),
        st.sampled_from(["PUB", "ACK", "FET", "base64", "\ud800", 2**70]) | st.none() | st.booleans() | st.floats(),
    )
)
def test_any_object_is_read_or_refused(fields: dict[str, object]) -> None:
    try:
        request = parse_request(json.dumps(fields))
    except RequestError:
        return
    assert parse_request(encode_request(request)) == request


def test_a_client_cannot_say_half_a_pair() -> None:
    with pytest.raises(RequestError):
        encode_request(Sub("\ud800"))
