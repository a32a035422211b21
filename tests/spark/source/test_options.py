"""Options are read whole or refused with what would be right."""

from __future__ import annotations

import pytest

from penstock.engine.journal import ACKED, PUT, QUEUE_CREATED
from penstock.spark.errors import BadOption
from penstock.spark.schemas import EVENTS, SOURCE_TABLES
from penstock.spark.source.options import OPTIONS, read_options

HERE = {"endpoint": "127.0.0.1:2602"}


def test_without_options_all_events_are_read() -> None:
    options = read_options(HERE)
    assert options.table == "events"
    assert options.schema == EVENTS
    assert (options.starting_index, options.ending_index, options.starting_us, options.ending_us) == (None,) * 4
    assert options.queues is None
    assert options.kinds is None
    assert options.payload
    assert options.fail_on_data_loss
    assert (options.rows_max, options.bytes_max, options.partitions_min) == (0, 0, 0)


def test_names_have_no_case() -> None:
    """Spark hands them over in small letters."""
    options = read_options(
        {"ENDPOINT": "a:1,b:2", "startingindex": "4", "MinPartitions": "3", "failondataloss": "FALSE"}
    )
    assert (options.endpoint, options.starting_index, options.partitions_min) == ("a:1,b:2", 4, 3)
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("text", "moment_us"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600_000_000),
        ("2026-01-01", 1_767_225_600_000_000),
        ("2026-01-01 01:00:00.000001+01:00", 1_767_225_600_000_001),
        ("1767225600", 1_767_225_600_000_000),
        ("1767225600.25", 1_767_225_600_250_000),
        ("1960-01-01", 0),
    ],
)
def test_moments(text: str, moment_us: int) -> None:
    options = read_options({**HERE, "startingTimestamp": text, "endingTimestamp": text})
    assert (options.starting_us, options.ending_us) == (moment_us, moment_us)


def test_lists() -> None:
    options = read_options({**HERE, "queues": "a, b,,c", "kinds": "put,acked,queue created", "columns": "key, index"})
    assert options.queues == {"a", "b", "", "c"}
    assert options.kinds == {PUT, ACKED, QUEUE_CREATED}
    assert options.schema == {"key": "bigint", "index": "bigint"}
    assert list(options.schema) == ["key", "index"]
    assert read_options({**HERE, "queues": '["with,comma", "[x"]'}).queues == {"with,comma", "[x"}
    assert read_options({**HERE, "queues": ""}).queues == {""}


@pytest.mark.parametrize("table", SOURCE_TABLES)
def test_every_table_has_its_columns(table: str) -> None:
    assert read_options({"path": "/somewhere", "table": table}).schema == SOURCE_TABLES[table]


@pytest.mark.parametrize(
    ("given", "option", "says"),
    [
        ({"startingIndx": "1"}, "startingIndx", "did you mean startingIndex?"),
        ({"maxRows": "1"}, "maxRows", "did you mean maxRowsPerBatch?"),
        ({"zzz": "1"}, "zzz", "there are endpoint, path, table"),
        ({"endpoint": "host:port"}, "endpoint", "host:port[,host:port…]"),
        ({"endpoint": "http://a:1"}, "endpoint", "an address looks like"),
        ({"path": "/data"}, "path", "endpoint is given too"),
        ({"table": "event"}, "table", "it is one of events, records, queues, topics"),
        ({"startingIndex": "-1"}, "startingIndex", "0 or more"),
        ({"startingIndex": "first"}, "startingIndex", "0 or more"),
        ({"endingIndex": "1.5"}, "endingIndex", "0 or more"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "2026-01-31T12:00:00Z"),
        ({"startingTimestamp": "1767225600000"}, "startingTimestamp", "not milliseconds"),
        ({"startingTimestamp": "1", "startingIndex": "1"}, "startingTimestamp", "startingIndex is given too"),
        ({"endingTimestamp": "1", "endingIndex": "1"}, "endingTimestamp", "endingIndex is given too"),
        ({"kinds": "put,ackd"}, "kinds", "did you mean 'acked'?"),
        ({"columns": "index,nope"}, "columns", "events has no column 'nope'; it has index, n"),
        ({"columns": "index,index"}, "columns", "twice"),
        ({"queues": "[1]"}, "queues", "no text"),
        ({"queues": "[x"}, "queues", "no JSON array"),
        ({"payload": "no"}, "payload", "true, false"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss", "true, false"),
        ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch", "1 or more"),
        ({"maxBytesPerBatch": "64m"}, "maxBytesPerBatch", "1 or more"),
        ({"minPartitions": "10001"}, "minPartitions", "at most 10000"),
        ({"timeoutSeconds": "nan"}, "timeoutSeconds", "seconds"),
        ({"table": "records", "startingIndex": "1"}, "startingIndex", "it is for events, topics"),
        ({"table": "topics", "queues": "a"}, "queues", "events, records, queues"),
        ({"table": "queues", "payload": "false"}, "payload", "events, topics, records"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(given: dict[str, str], option: str, says: str) -> None:
    with pytest.raises(BadOption) as caught:
        read_options({**HERE, **given})
    assert caught.value.option == option
    assert says in str(caught.value)


def test_a_place_to_read_from_is_needed() -> None:
    with pytest.raises(BadOption, match="endpoint: is missing"):
        read_options({})
    with pytest.raises(BadOption, match="path: is empty"):
        read_options({"path": " "})


def test_what_spark_adds_of_its_own_is_passed_over() -> None:
    assert read_options({**HERE, "checkpointLocation": "/tmp/x"}).endpoint == HERE["endpoint"]


def test_every_option_is_described() -> None:
    assert all(text and not text.endswith(".") for text in OPTIONS.values())
