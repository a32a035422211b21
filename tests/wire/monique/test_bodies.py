"""Bodies of both dialects, and the data of technical messages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.monique import bodies
from penstock.wire.monique.bodies import (
    Body,
    Failure,
    Kill,
    Monitoring,
    decode_body,
    decode_data,
    encode_body,
    peek_expires_at_ms,
    peek_tag,
)
from penstock.wire.monique.errors import BodyError, BodyMalformed, DataMalformed
from penstock.wire.monique.tags import Dialect
from tests.wire.monique.support import bodies as any_body
from tests.wire.monique.support import body_from, vectors

VECTORS = vectors()
BODIES = [each for each in VECTORS.values() if each.direction == "mq-body" or each.name.startswith("zmq/")]
FIELDS: dict[str, Any] = VECTORS["cur/message-config"].fields
pack = msgspec.msgpack.encode


def test_all_bodies_are_here() -> None:
    assert len(BODIES) == 9


@pytest.mark.parametrize("vector", BODIES, ids=str)
def test_the_bytes_of_the_originals(vector: Any) -> None:
    body = decode_body(vector.data)
    assert body == body_from(vector.fields)
    assert encode_body(body) == vector.data
    if vector.tag:
        assert body.tag.encode() == vector.tag


@pytest.mark.parametrize("vector", BODIES, ids=str)
def test_a_body_that_is_cut_is_refused(vector: Any) -> None:
    for cut in range(len(vector.data)):
        with pytest.raises(BodyMalformed):
            decode_body(vector.data[:cut])


@given(any_body)
def test_a_body_comes_back_as_it_was(body: Body) -> None:
    assert decode_body(encode_body(body)) == body


@given(any_body, st.binary(min_size=1, max_size=20))
def test_bytes_behind_a_body_are_ignored(body: Body, rest: bytes) -> None:
    assert decode_body(encode_body(body) + rest) == body


@given(
    st.permutations(list(FIELDS)),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    ),
    st.binary(max_size=3),
)
def test_order_and_further_keys_do_not_matter(order: list[str], extra: object, rest: bytes) -> None:
    fields = {"alphabet": extra} | {key: FIELDS[key] for key in order}
    assert decode_body(pack(fields) + rest) == body_from(FIELDS)


@pytest.mark.parametrize("length", [31, 32, 255, 256, 65535, 65536])
@pytest.mark.parametrize("kind", [str, bytes, list, dict, msgspec.msgpack.Ext])
def test_bytes_behind_values_of_every_length_are_found(length: int, kind: type) -> None:
    extra: object = {
        str: "x" * length,
        bytes: b"x" * length,
        list: [1] * min(length, 5000),
        dict: {str(number): 1 for number in range(min(length, 2000))},
        msgspec.msgpack.Ext: msgspec.msgpack.Ext(5, b"x" * length),
    }[kind]
    assert decode_body(pack({"alphabet": extra} | FIELDS) + b"rest") == body_from(FIELDS)


def calls_of(function: Callable[[], object]) -> int:
    """How many functions of Python are called."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with contextlib.suppress(BodyMalformed):
            function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("decode", [decode_body, peek_tag, peek_expires_at_ms])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: pack({"alphabet": [None] * n} | FIELDS) + b"rest",
        lambda n: pack({"alphabet": [None] * n} | FIELDS)[:-1],
        lambda n: b"\xc0" * n,
        lambda n: b"\x81" * n,
        lambda n: b"\xdd\xff\xff\xff\xff" + b"\x90" * n,
    ],
    ids=["bytes behind", "cut", "many objects", "deep", "a long array"],
)
def test_an_odd_body_takes_no_more_steps_when_it_is_longer(
    decode: Callable[[bytes], object], make: Callable[[int], bytes]
) -> None:
    short, long = (calls_of(lambda n=n: decode(make(n))) for n in (100, 20_000))  # type: ignore[misc]
    assert long <= short + 5


@pytest.mark.parametrize("rest", [b"", b"rest"])
def test_the_objects_of_a_very_long_body_are_limited(rest: bytes) -> None:
    large = FIELDS | {"data": b"x" * 2**20}
    assert decode_body(pack({"alphabet": [None] * 9_000} | large) + rest) == body_from(large)
    with pytest.raises(BodyMalformed, match="more than 10000 objects"):
        decode_body(pack({"alphabet": [None] * 2**20} | FIELDS) + rest)


@given(any_body, st.binary(max_size=3))
def test_the_tag_can_be_read_alone(body: Body, rest: bytes) -> None:
    assert peek_tag(encode_body(body) + rest) == (body.tag, body.dialect)


@pytest.mark.parametrize("key", list(FIELDS))
def test_a_tag_is_read_only_from_a_sound_body(key: str) -> None:
    with pytest.raises(BodyMalformed):
        peek_tag(pack(FIELDS | {key: None}))


def test_text_and_binary_ids_may_be_mixed() -> None:
    body = decode_body(pack(FIELDS | {"id": b"one", "pid": "two"}))
    assert (body.id, body.pid, body.dialect) == ("one", "two", Dialect.LEGACY)


def test_the_last_of_two_equal_keys_counts() -> None:
    once = pack(FIELDS)
    twice = bytes((once[0] + 1,)) + once[1:] + pack("spec") + pack("last_one")
    assert decode_body(twice).spec == "last_one"


def test_a_number_above_int64_is_read_as_negative() -> None:
    assert decode_body(pack(FIELDS | {"expires_at": 2**64 - 1})).expires_at_ms == -1


@pytest.mark.parametrize("key", list(FIELDS))
@pytest.mark.parametrize("wrong", [None, 1.5, [], {}, True])
def test_a_field_of_a_wrong_type_is_refused(key: str, wrong: object) -> None:
    with pytest.raises(BodyMalformed) as raised:
        decode_body(pack(FIELDS | {key: wrong}))
    assert raised.value.number == 101


@pytest.mark.parametrize("key", list(FIELDS))
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(BodyMalformed, match=key):
        decode_body(pack({each: value for each, value in FIELDS.items() if each != key}))


@pytest.mark.parametrize(
    "data",
    [b"\xc1", b"\x90", b"\x80", b"text", b"\x91" * 100_000, pack(FIELDS | {"id": b"\xff"}), pack({1: 2} | FIELDS)],
    ids=["reserved", "array", "empty", "text", "deep", "id that is no text", "key that is no text"],
)
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(BodyMalformed):
        decode_body(data)


@given(st.binary(max_size=200))
def test_nothing_but_the_typed_problem_comes_out(data: bytes) -> None:
    with contextlib.suppress(BodyMalformed):
        decode_body(data)


def test_expiry() -> None:
    body = body_from(FIELDS | {"expires_at": 1000})
    assert [body.expired(now_ms) for now_ms in (999, 1000, 1001)] == [False, True, True]
    assert not body_from(FIELDS | {"expires_at": 0}).expired(2**62)
    assert not body_from(FIELDS | {"expires_at": -1}).expired(2**62)


def test_a_kill_brings_about_the_error_of_the_original() -> None:
    kill = decode_body(VECTORS["zmq/tech-in-kill"].data)
    expected = VECTORS["zmq/com-out-kill-error"]
    fields = expected.fields
    killed = bodies.killed_body(kill, id=fields["id"], created_at_ms=fields["created_at"])
    assert encode_body(killed) == expected.data
    assert killed.tag.encode() == expected.tag
    again = bodies.kill_body(fields["pid"], id=kill.id, creator=kill.creator, created_at_ms=kill.created_at_ms)
    assert encode_body(again) == VECTORS["zmq/tech-in-kill"].data


def test_monitoring() -> None:
    monitoring = Monitoring(1000, "calculator", True, 'a "quoted" word')
    body = bodies.monitoring_body(monitoring, id="I", creator="me")
    assert body.data == rb'{"sync_time":1000,"name":"calculator","is_alive":true,"message":"a \"quoted\" word"}'
    assert body.tag.encode() == b"data:monitoring:I::me"
    assert (body.created_at_ms, body.expires_at_ms) == (1000, 0)
    assert decode_data(Monitoring, body.data) == monitoring


@pytest.mark.parametrize("kind", [Monitoring, Kill, Failure])
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"task_id":1}', b"{'task_id':''}", b"\xff", b"[" * 100_000])
def test_data_that_are_not_what_they_should_be(kind: Any, data: bytes) -> None:
    with pytest.raises(DataMalformed) as raised:
        decode_data(kind, data)
    assert isinstance(raised.value, BodyError)


@given(any_body, st.binary(max_size=20))
def test_the_expiry_can_be_read_alone(body: Body, rest: bytes) -> None:
    assert peek_expires_at_ms(encode_body(body) + rest) == body.expires_at_ms


@given(st.binary(max_size=100))
def test_an_opaque_body_never_expires(data: bytes) -> None:
    assert peek_expires_at_ms(b"\xc1" + data) == 0


@pytest.mark.parametrize("value", [None, "5", 5.0, b"5", [5]])
def test_an_expiry_that_is_no_number_is_none(value: object) -> None:
    assert peek_expires_at_ms(pack({**FIELDS, "expires_at": value})) == 0


def test_a_body_without_an_expiry_never_expires() -> None:
    assert peek_expires_at_ms(pack({"id": "1"})) == 0
    assert peek_expires_at_ms(pack({**FIELDS, "expires_at": 2**64 - 1})) == -1
