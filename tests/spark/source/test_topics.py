"""The table `topics`: the fields of MoniQue's messages of both dialects, and what can be told of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.spark.schemas import EVENTS, TOPICS, arrow_schema
from penstock.spark.source.options import read_options
from penstock.spark.source.reading import EntriesReader
from penstock.spark.source.topics import EVENT_COLUMNS, parse, parse_batch
from penstock.wire.monique.bodies import encode_body
from penstock.wire.monique.tags import Dialect
from tests.spark.source.making import OnDisk, body
from tests.spark.source.test_batch import rows
from tests.spark.source.test_decode import as_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATED_US = 1_767_225_600_123_000


def read(node: OnDisk, **given: str) -> list[dict[str, Any]]:
    reader = EntriesReader(read_options({"endpoint": node.endpoint, "table": "topics", **given}))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in as_rows(batch)]


def test_messages_are_taken_apart(node: OnDisk) -> None:
    found = read(node)
    assert [tuple(row) for row in found] == [tuple(TOPICS)] * 6
    fields = [(row["channel"], row["type"], row["spec"], row["id"], row["pid"], row["creator"]) for row in found]
    assert fields == [
        ("com", "config", "calc", "id1", None, "tester"),
        ("com", "result", "calc", "id2", "id1", "tester"),
        ("tech", "data", "monitoring", "id3", None, "tester"),
        ("tech", "config", "calc", "id4", None, "tester"),
        ("com", "config", "calc", "id5", None, "someone"),
        ("com", None, None, None, None, None),
    ]
    assert [row["data"] for row in found] == [b"[1]", b"[2]", b"[3]", b"[4]", None, None]
    assert [row["readable"] for row in found] == [True] * 4 + [False] * 2
    assert [row["created_at"] for row in found] == [CREATED_US] * 4 + [None] * 2
    assert [row["expires_at"] for row in found] == [None, None, 1_767_225_700_000_000, None, None, None]
    assert [row["encoding"] for row in found] == ["JSON"] * 4 + [None] * 2


def test_columns_and_data_can_be_left_out(node: OnDisk) -> None:
    found = read(node, columns="data,id", payload="false")
    assert found == [{"data": None, "id": row["id"]} for row in read(node)]


def one(tag: str | None, payload: bytes | None) -> dict[str, Any]:
    schema = arrow_schema({name: EVENTS[name] for name in EVENT_COLUMNS})
    event = {"index": 1, "n": 0, "item": 0, "time": 0, "channel": "com", "tag": tag, "payload": payload}
    (row,) = as_rows(parse_batch(pa.RecordBatch.from_pylist([event], schema)))
    return row


@pytest.mark.parametrize("dialect", Dialect)
def test_a_body_tells_what_a_tag_does_not(dialect: Dialect) -> None:
    row = one("no tag", encode_body(body(7, dialect, pid="p")))
    assert (row["type"], row["spec"], row["id"], row["pid"]) == ("config", "calc", "id7", "p")
    ruled = one("error:other:x:y:z", encode_body(body(7, dialect)))
    assert (ruled["type"], ruled["spec"], ruled["id"], ruled["pid"]) == ("error", "other", "x", "y")


@pytest.mark.parametrize("moment_ms", [2**63 - 1, -(2**63), 0, -5])
def test_times_beyond_a_column_are_null(moment_ms: int) -> None:
    row = one(None, encode_body(body(1, created_at_ms=moment_ms, expires_at_ms=moment_ms)))
    assert row["readable"]
    fits = abs(moment_ms) < 2**50
    assert row["created_at"] == (moment_ms * 1_000 if fits else None)
    assert row["expires_at"] is None


def test_a_payload_that_is_gone_leaves_the_tag() -> None:
    row = one("config:calc:a::b", None)
    assert (row["id"], row["readable"], row["data"]) == ("a", False, None)


def test_events_that_were_kept_are_parsed_the_same(spark: SparkSession, node: OnDisk) -> None:
    """The pipeline parses what it has in bronze; the source parses what it reads."""
    source = spark.read.format("penstock").option("endpoint", node.endpoint)
    parsed = parse(source.load())
    direct = source.option("table", "topics").load()
    assert parsed.schema == direct.schema
    assert rows(parsed) == rows(direct) == read(node)
