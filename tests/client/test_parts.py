"""The small parts: units, addresses, waits, errors, items."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import client as public
from penstock.client import Backoff, BadUrl, Item, PutResult, QueueFull, Refused, errors
from penstock.client.clock import LogClock
from penstock.client.endpoints import DEFAULT_URL, URL_VARIABLE, Endpoint, default_url, parse_url
from penstock.client.items import put_outcomes, put_results, to_command_item
from penstock.client.link import Options
from penstock.client.messages import Record, one_or_many
from penstock.client.units import decode_headers, encode_headers, to_bytes, to_datetime, to_ms, to_us
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import PutAnswer
from penstock.engine.errors import Refusal
from penstock.engine.views import RecordView

# Units.


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [(0, 0), (1, 1000), (0.25, 250), (0.0001, 1), (timedelta(minutes=1), 60_000), (timedelta(microseconds=1), 1)],
)
def test_durations_become_milliseconds_and_only_nothing_becomes_zero(duration: Any, expected_ms: int) -> None:
    assert to_ms(duration) == expected_ms


@pytest.mark.parametrize("duration", [-1, timedelta(seconds=-1), 4e9, float("inf"), float("nan")])
def test_durations_out_of_bounds_are_refused(duration: Any) -> None:
    with pytest.raises(ValueError, match="a duration lies between"):
        to_ms(duration)


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001
def test_moments_survive_the_wire(moment: datetime) -> None:
    assert to_datetime(to_us(moment)) == moment


def test_moments_need_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        to_us(datetime(2030, 1, 1))  # noqa: DTZ001
    assert to_us(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 1, "0 would mean: none"


@given(st.dictionaries(st.text(), st.text()))
def test_headers_survive_the_wire(headers: dict[str, str]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_headers_may_be_missing_or_nil() -> None:
    assert decode_headers(b"") == decode_headers(b"\xc0") == {}


def test_headers_are_strings() -> None:
    with pytest.raises(TypeError, match="strings to strings"):
        encode_headers({"n": 1})  # type: ignore[dict-item]


def test_payloads_are_bytes_or_text() -> None:
    assert [to_bytes(each) for each in (b"a", "ä", bytearray(b"b"), memoryview(b"c"))] == [
        b"a",
        b"\xc3\xa4",
        b"b",
        b"c",
    ]


def test_the_clock_knows_nothing_before_it_is_set() -> None:
    clock = LogClock()
    assert clock.seconds_until(1, 0.0) is None
    clock.set(5_000_000, 100.0)
    assert clock.seconds_until(7_000_000, 101.0) == pytest.approx(1.0)


# Addresses.


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("penstock://127.0.0.1:2602", [("127.0.0.1", 2602)]),
        ("penstock://example.org", [("example.org", 2602)]),
        ("penstock://[::1]:7/", [("::1", 7)]),
        ("penstock://a:1,b, penstock://c:3", [("a", 1), ("b", 2602), ("c", 3)]),
    ],
)
def test_urls_name_one_or_more_endpoints(url: str, endpoints: list[tuple[str, int]]) -> None:
    assert list(parse_url(url)) == endpoints


@pytest.mark.parametrize(
    ("value", "url"), [(None, DEFAULT_URL), ("", DEFAULT_URL), ("penstock://a:1", "penstock://a:1")]
)
def test_the_environment_names_the_default_url(value: str | None, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(URL_VARIABLE, value)
    assert default_url() == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:2602",
        "http://a",
        "penstock://",
        "penstock://a:0",
        "penstock://a:99999",
        "penstock://a:x",
        "penstock://me@a",
        "penstock://a/path",
        "penstock://a?x=1",
        "penstock://a,",
        "penstock://a,http://b",
        "penstock://" + "a," * 100 + "a",
    ],
)
def test_urls_that_make_no_sense_are_refused(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_url(url)
    assert caught.value.url == url


def test_an_endpoint_reads_as_people_write_it() -> None:
    assert [str(Endpoint("a", 1)), str(Endpoint("::1", 2))] == ["a:1", "[::1]:2"]


# Waits.


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(first=1, factor=2, cap=10, jitter=0)
    assert [backoff.delay(attempt) for attempt in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens(attempt: int, drawn: float) -> None:
    plain, jittered = Backoff(jitter=0), Backoff(jitter=0.25)
    full = plain.delay(attempt)
    assert 0.75 * full <= jittered.delay(attempt, lambda: drawn) <= full


@pytest.mark.parametrize("wrong", [{"first": -1}, {"factor": 0.5}, {"cap": -1}, {"jitter": 2}])
def test_waits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not a backoff"):
        Backoff(**wrong)


@pytest.mark.parametrize("wrong", [{"connect_timeout": 0}, {"ping_interval": 0}, {"retry_timeout": 1e9}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="retry_timeout is at most"):
        Options(**wrong)  # type: ignore[arg-type]


# Errors.


def test_every_code_has_a_class_to_catch() -> None:
    """All but OUTCOME_UNKNOWN, which is no refusal."""
    assert set(Refused.by_code) == set(codes.NAMES) - {codes.OUTCOME_UNKNOWN}
    for code, kind in Refused.by_code.items():
        error = errors.refused(Refusal(code, "why"))
        assert (type(error), error.code, error.name, error.detail) == (kind, code, codes.NAMES[code], "why")


def test_a_code_from_the_future_is_a_plain_refusal() -> None:
    error = errors.refused(Refusal(77, "new", (1, 2)))
    assert (type(error), error.code, error.name, error.figures) == (Refused, 77, "CODE_77", (1, 2))


def test_figures_have_names() -> None:
    range_error = errors.refused(Refusal(codes.KEY_OUT_OF_RANGE, figures=(-5, 5)))
    assert isinstance(range_error, errors.KeyOutOfRange)
    assert (range_error.minimum, range_error.maximum) == (-5, 5)
    assert QueueFull().limit is None


def test_codes_and_names_are_unique_and_every_error_is_public() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    leaves = [kind for kind in kinds if kind not in (errors.PenstockError, errors.Refused, errors.Limited)]
    assert len({kind.code for kind in leaves}) == len(leaves)  # type: ignore[attr-defined]
    assert {kind.__name__ for kind in kinds} <= set(public.__all__)


def test_what_is_said_to_be_public_is_there() -> None:
    assert all(hasattr(public, name) for name in public.__all__)


# Items.


def test_a_plain_item_has_no_options() -> None:
    assert to_command_item("x") == c.Item(0, b"x", None)
    assert to_command_item(Item(b"x", key=3)) == c.Item(3, b"x", None)


def test_what_is_said_of_an_item_arrives() -> None:
    at, expires = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    item = Item("x", -1, delay=2, expires=expires, at=at, headers={"a": "b"}, dedup_key="k", lease=timedelta(seconds=3))
    sent = c.DECODERS[c.PUT].decode(c.encode(c.Put("q", [to_command_item(item)]))).items[0]
    assert (sent.key, sent.payload) == (-1, b"x")
    assert msgspec.msgpack.decode(sent.options.headers) == {"a": "b"}
    assert (sent.options.delay_ms, sent.options.expires_ms, sent.options.lease_ms) == (2000, 0, 3000)
    assert (sent.options.available_at_us, sent.options.expires_at_us) == (to_us(at), to_us(expires))
    assert sent.options.dedup_key == "k"


def test_options_without_headers_can_be_decoded() -> None:
    sent = c.DECODERS[c.PUT].decode(c.encode(c.Put("q", [to_command_item(Item("x", expires=1, dedup_key=""))])))
    assert (sent.items[0].options.expires_ms, sent.items[0].options.dedup_key) == (1000, "")
    assert bytes(sent.items[0].options.headers) == b"\xc0"


def test_outcomes_of_puts_judged_one_by_one() -> None:
    answer = PutAnswer(10, 2, [(1, 0, 4), (2, codes.QUEUE_FULL, 9)])
    first, duplicate, refused, last = put_outcomes(answer, 4)
    assert (first, duplicate, last) == (PutResult(10, False), PutResult(4, True), PutResult(11, False))
    assert isinstance(refused, QueueFull)
    assert (refused.limit, refused.position, refused.detail) == (9, 2, "the queue holds its 9 records")
    with pytest.raises(QueueFull):
        put_results(answer, 4)


# Records and leases.


def test_a_record_speaks_of_dates_and_names() -> None:
    view = RecordView(3, -1, b"hi", 1, 8, 1_000_000, 1, 2, 3, 4, available_at_us=2_000_000, headers=b"\x81\xa1a\xa1b")
    record = Record.of("q", view)
    assert (record.queue, record.id, record.key, record.text, record.state) == ("q", 3, -1, "hi", "delayed")
    assert record.published_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert record.available_at == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert record.expires_at is record.lease_until is None
    assert record.headers == {"a": "b"}


def test_one_lease_or_many() -> None:
    assert list(one_or_many((1, 2))) == [(1, 2)]
    assert list(one_or_many([(1, 2), (3, 4)])) == [(1, 2), (3, 4)]
    assert list(one_or_many(((1, 2), (3, 4)))) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("payload", [5, True, [65, 66], range(3), {"a": 1}, None])
def test_a_payload_is_text_or_bytes_and_nothing_that_looks_like_bytes(payload: Any) -> None:
    with pytest.raises(TypeError, match="a payload must be str, bytes, bytearray or memoryview"):
        to_bytes(payload)
