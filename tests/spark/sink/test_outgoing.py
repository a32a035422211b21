"""Columns to items: which columns rows may have, what each becomes, and how items are cut into parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from penstock.client.units import decode_headers
from penstock.engine.commands import NO_RAW, Item
from penstock.spark.errors import BadOption, BadRow
from penstock.spark.source import outgoing
from penstock.spark.source.outgoing import by_queue, check_columns, cut, to_items

TEXT_MAP = t.MapType(t.StringType(), t.StringType())


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_are_accepted() -> None:
    check_columns(
        schema(
            queue=t.StringType(),
            key=t.LongType(),
            payload=t.BinaryType(),
            delay=t.DayTimeIntervalType(),
            expires_at=t.TimestampType(),
            headers=TEXT_MAP,
            dedup_key=t.StringType(),
        ),
        None,
    )
    check_columns(schema(key=t.IntegerType(), payload=t.StringType(), delay=t.LongType()), "q")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("queue", t.LongType()),
        ("key", t.StringType()),
        ("key", t.DecimalType()),
        ("payload", t.LongType()),
        ("delay", t.StringType()),
        ("delay", t.DoubleType()),
        ("expires_at", t.TimestampNTZType()),
        ("expires_at", t.LongType()),
        ("headers", t.StringType()),
        ("headers", t.MapType(t.StringType(), t.LongType())),
        ("dedup_key", TEXT_MAP),
    ],
)
def test_a_column_of_another_type_is_told_with_the_right_one(name: str, kind: t.DataType) -> None:
    columns = {"payload": t.BinaryType(), "queue": t.StringType(), name: kind}
    with pytest.raises(BadRow, match=rf"'{name}' is .*; it should be ") as told:
        check_columns(schema(**columns), None)
    assert kind.simpleString() in str(told.value)


def test_an_unknown_column_is_told_with_those_that_there_are() -> None:
    with pytest.raises(BadRow, match="no column 'colour'; there are: queue, key, payload, delay"):
        check_columns(schema(payload=t.BinaryType(), colour=t.StringType()), "q")


def test_a_payload_and_one_word_about_the_queue_are_needed() -> None:
    with pytest.raises(BadRow, match="no column 'payload'"):
        check_columns(schema(key=t.LongType()), "q")
    with pytest.raises(BadOption, match="option queue: is missing"):
        check_columns(schema(payload=t.BinaryType()), None)
    with pytest.raises(BadOption, match="drop one of them"):
        check_columns(schema(payload=t.BinaryType(), queue=t.StringType()), "q")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_a_payload_is_its_bytes(kind: pa.DataType) -> None:
    values: list[Any] = ["é", "", "x" * 300]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [value.encode() for value in values]
    items = to_items({"payload": pa.array(values, kind)})
    assert items == [Item(0, "é".encode()), Item(0, b""), Item(0, b"x" * 300)]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
def test_a_key_that_is_null_is_0(kind: pa.DataType) -> None:
    items = to_items({"key": pa.array([5, None, -7], kind), "payload": pa.array([b"a", b"b", b"c"])})
    assert items == [Item(5, b"a"), Item(0, b"b"), Item(-7, b"c")]


def test_options_stand_only_where_something_is_said() -> None:
    moment = datetime(2030, 1, 2, tzinfo=UTC)
    nothing = [None] * 5
    columns = {
        "payload": pa.array([b"p"] * 6),
        "delay": pa.array([None, 1500, *nothing[:4]], pa.int64()),
        "expires_at": pa.array([None, None, moment, *nothing[:3]], pa.timestamp("us", "UTC")),
        "headers": pa.array([None, None, None, [("a", "1"), ("b", "2")], [], None], pa.map_(pa.string(), pa.string())),
        "dedup_key": pa.array([*nothing, ""], pa.string()),
    }
    plain, delayed, expiring, headed, bare, named = to_items(columns)
    assert plain == bare == Item(0, b"p")
    assert delayed.options is not None
    assert (delayed.options.delay_ms, delayed.options.expires_at_us, delayed.options.dedup_key) == (1500, 0, None)
    assert delayed.options.headers is NO_RAW
    assert expiring.options is not None
    assert expiring.options.expires_at_us == int(moment.timestamp()) * 1_000_000
    assert headed.options is not None
    assert decode_headers(bytes(headed.options.headers)) == {"a": "1", "b": "2"}
    assert named.options is not None
    assert named.options.dedup_key == ""


def test_an_interval_is_milliseconds_and_never_rounded_to_none() -> None:
    delays = [timedelta(days=2), timedelta(microseconds=1), timedelta(0), timedelta(microseconds=1001), None]
    items = to_items({"payload": pa.array([b""] * 5), "delay": pa.array(delays, pa.duration("us"))})
    assert [item.options and item.options.delay_ms for item in items] == [172_800_000, 1, None, 2, None]
    assert outgoing.delay_ms(pa.array([timedelta(microseconds=-1)], pa.duration("us"))).to_pylist() == [-1]


def test_an_expiry_before_1970_is_in_the_past_and_not_never() -> None:
    moments = pa.array([datetime(1960, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    items = to_items({"payload": pa.array([b""] * 2), "expires_at": moments})
    assert [item.options and item.options.expires_at_us for item in items] == [1, 1]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "three"]),
        st.binary(max_size=40),
        st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=2),
    ),
    min_size=1,
    max_size=60,
)


def size_of(item: Item) -> int:
    headers = decode_headers(bytes(item.options.headers)) if item.options is not None else {}
    return len(item.payload) + sum(len(text.encode()) for pair in headers.items() for text in pair)


@given(ROWS, st.integers(1, 20), st.integers(1, 100))
def test_parts_have_all_rows_of_each_queue_in_their_order_within_both_bounds(
    rows: list[tuple[str, bytes, dict[str, str]]], records_max: int, bytes_max: int
) -> None:
    queues, payloads, headers = zip(*rows, strict=True)
    columns = {
        "queue": pa.array(queues),
        "payload": pa.array(payloads, pa.binary()),
        "headers": pa.array([list(each.items()) for each in headers], pa.map_(pa.string(), pa.string())),
    }
    names, ends, order = by_queue(columns["queue"])
    if order is not None:
        columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outgoing, "PART_RECORDS_MAX", records_max)
        patch.setattr(outgoing, "PART_BYTES_MAX", bytes_max)
        parts = list(cut(columns, to_items(columns), names, ends))
    came: dict[str, list[bytes]] = {name: [] for name in names}
    sent = 0
    for start, puts in parts:
        assert start == sent
        items = [item for _, some in puts for item in some]
        assert 1 <= len(items) <= records_max
        if order is not None:
            assert [payloads[int(place)] for place in order[start : start + len(items)]] == [i.payload for i in items]
        assert len(items) == 1 or sum(map(size_of, items)) <= bytes_max
        for name, some in puts:
            assert some
            came[name] += [item.payload for item in some]
        sent += len(items)
    assert came == {name: [row[1] for row in rows if row[0] == name] for name in names}
