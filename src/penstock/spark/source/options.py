"""The options of the format `penstock`: what they mean, and how they are read.

Spark hands them over as text under names without case. An option that is unknown, does not fit the others or cannot be
read is told before anything is done, with what would be right.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from penstock.client.endpoints import parse_url
from penstock.client.errors import BadUrl
from penstock.engine.journal import KINDS
from penstock.spark.errors import BadOption
from penstock.spark.schemas import SOURCE_TABLES, Columns
from penstock.spark.source.history import RETRY_TIMEOUT_S

T = TypeVar("T")

OPTIONS: Final[dict[str, str]] = {
    "endpoint": "nodes to read from or write to: host:port, several separated by commas",
    "path": "files to read instead: a data directory, segments of one, a backup, files of version 1",
    "table": "events (the default), records, queues or topics",
    "startingIndex": "events, topics: the first log entry; the default is the oldest that is kept",
    "endingIndex": "events, topics: the last log entry, included",
    "startingTimestamp": "instead of startingIndex: from this moment of log time on; ISO 8601 (UTC unless it says "
    "otherwise) or seconds since 1970",
    "endingTimestamp": "instead of endingIndex: up to this moment, included",
    "queues": "only what concerns these queues, separated by commas, or as a JSON array; the default queue has no name",
    "kinds": "events: only these kinds, separated by commas, such as put, acked",
    "columns": "only these columns, in this order, separated by commas",
    "payload": "false leaves the column with the payload null: payload, or data of topics",
    "maxRowsPerBatch": "streams: at most so many events in a batch, up to the end of a block of some 500",
    "maxBytesPerBatch": "streams: at most so many bytes of events and log in a batch",
    "minPartitions": "cut what is read into at least so many parts, as far as there are so many blocks",
    "failOnDataLoss": "true (the default) fails where entries that were asked for are no longer kept, false goes on "
    "with the first that are",
    "timeoutSeconds": f"so long nodes that cannot be reached are tried again; {RETRY_TIMEOUT_S:g} by default",
}
"""What the options of the reader mean, by name."""

SPARKS_OWN: Final = frozenset(("checkpointlocation", "paths"))
"""Spark passes these on; they are not for us."""

_RANGE: Final = ("startingIndex", "endingIndex", "startingTimestamp", "endingTimestamp")
_ONLY_FOR: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_RANGE, ("events", "topics")),
    "kinds": ("events",),
    "queues": ("events", "records", "queues"),
    "payload": ("events", "topics", "records"),
    "maxRowsPerBatch": ("events", "topics"),
    "maxBytesPerBatch": ("events", "topics"),
    "minPartitions": ("events", "topics"),
}
_PARTITIONS_MAX: Final = 10_000
_EPOCH_SECONDS_MAX: Final = 100_000_000_000
"""A number beyond this, the year 5138, is milliseconds taken for seconds."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is to be read, from where."""

    endpoint: str | None
    path: str | None
    table: str
    columns: tuple[str, ...]
    starting_index: int | None
    ending_index: int | None
    starting_us: int | None
    ending_us: int | None
    queues: frozenset[str] | None
    kinds: frozenset[int] | None
    payload: bool
    rows_max: int
    bytes_max: int
    partitions_min: int
    fail_on_data_loss: bool
    timeout_seconds: float
    never_null: frozenset[str] = frozenset()
    """Columns that Spark was told are never null; what it gets must say the same."""

    @property
    def schema(self) -> Columns:
        """The columns with their types."""
        return {name: SOURCE_TABLES[self.table][name] for name in self.columns}


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Read all options, or raise ``BadOption``."""
    check_known(options, OPTIONS)
    given = {name: value for name in OPTIONS if (value := _find(options, name)) is not None}
    table = _choice(given, "table", tuple(SOURCE_TABLES), "events")
    for name in given:
        tables = _ONLY_FOR.get(name, (table,))
        if table not in tables:
            raise BadOption(name, f"the table {table} has no such thing; it is for {', '.join(tables)}")
    endpoint, path = read_place(given)
    return SourceOptions(
        endpoint=endpoint,
        path=path,
        table=table,
        columns=_columns(given, table),
        starting_index=_read(given, "startingIndex", _natural, None),
        ending_index=_read(given, "endingIndex", _natural, None),
        starting_us=_one_end(given, "startingTimestamp", "startingIndex"),
        ending_us=_one_end(given, "endingTimestamp", "endingIndex"),
        queues=_read(given, "queues", lambda text: frozenset(_list(text)), None),
        kinds=_read(given, "kinds", _kinds, None),
        payload=read_flag(given, "payload", True),
        rows_max=_read(given, "maxRowsPerBatch", _positive, 0),
        bytes_max=_read(given, "maxBytesPerBatch", _positive, 0),
        partitions_min=_read(given, "minPartitions", _partitions, 0),
        fail_on_data_loss=read_flag(given, "failOnDataLoss", True),
        timeout_seconds=_read(given, "timeoutSeconds", _seconds, RETRY_TIMEOUT_S),
    )


def check_known(options: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise ``BadOption`` for an option that is not known, with the one that was probably meant."""
    names = {name.lower(): name for name in known}
    for name in options:
        if name.lower() in names or name.lower() in SPARKS_OWN:
            continue
        near = difflib.get_close_matches(name.lower(), names, 1)
        meant = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(known)}"
        raise BadOption(name, f"is not known; {meant}")


def read_place(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The endpoint or the path, of which one must be given."""
    endpoint, path = _find(options, "endpoint"), _find(options, "path")
    if endpoint is not None and path is not None:
        raise BadOption("path", "endpoint is given too, and only one of them can be read")
    if endpoint is None and path is None:
        raise BadOption("endpoint", "is missing: give host:port of a node, or path to read files")
    if endpoint is not None:
        try:
            parse_url(endpoint if "://" in endpoint else f"penstock://{endpoint}")
        except BadUrl as error:
            raise BadOption("endpoint", f"{endpoint!r}: {error.reason}; write host:port[,host:port…]") from None
    if path is not None and not path.strip():
        raise BadOption("path", "is empty; name a data directory or files of one")
    return endpoint, path


def read_flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false."""
    return _choice(options, name, ("true", "false"), str(default).lower()) == "true"


def _find(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def _read(options: Mapping[str, str], name: str, convert: Callable[[str], T], default: Any) -> Any:
    text = _find(options, name)
    if text is None:
        return default
    try:
        return convert(text.strip())
    except ValueError as error:
        raise BadOption(name, f"{text!r}: {error}") from None


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    def convert(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return text.lower()

    chosen: str = _read(options, name, convert, default)
    return chosen


def _one_end(options: Mapping[str, str], name: str, other: str) -> int | None:
    if _find(options, name) is not None and _find(options, other) is not None:
        raise BadOption(name, f"{other} is given too, and both say the same end of the range")
    moment: int | None = _read(options, name, _moment, None)
    return moment


def _columns(options: Mapping[str, str], table: str) -> tuple[str, ...]:
    known = SOURCE_TABLES[table]

    def convert(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in known:
                raise ValueError(f"{table} has no column {name!r}; it has {', '.join(known)}")
        if len(set(names)) < len(names):
            raise ValueError("a column stands there twice")
        return names

    columns: tuple[str, ...] = _read(options, "columns", convert, tuple(known))
    return columns


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("it is a number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("it is a number, 1 or more")
    return int(text)


def _partitions(text: str) -> int:
    number = _positive(text)
    if number > _PARTITIONS_MAX:
        raise ValueError(f"it is at most {_PARTITIONS_MAX}")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ValueError("it is a number of seconds, at most a day")
    return seconds


def _moment(text: str) -> int:
    """Microseconds since 1970."""
    try:
        seconds = float(text)
    except ValueError:
        return _iso_moment(text)
    if not 0 <= seconds < _EPOCH_SECONDS_MAX:
        raise ValueError("a number is seconds since 1970, not milliseconds")
    return round(seconds * 1_000_000)


def _iso_moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write it as 2026-01-31T12:00:00Z, or as seconds since 1970") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _list(text: str) -> list[str]:
    """Names separated by commas, or a JSON array of them."""
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            raise ValueError('it is no JSON array; write ["one", "other"], or one,other') from None
        if not all(isinstance(name, str) for name in names):
            raise ValueError("the array has something that is no text")
        return list(names)
    return [name.strip() for name in text.split(",")]


def _kinds(text: str) -> frozenset[int]:
    numbers = {name: number for number, (name, _) in KINDS.items()}
    found = set()
    for name in _list(text):
        if name not in numbers:
            near = difflib.get_close_matches(name, numbers, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(numbers)}"
            raise ValueError(f"there is no kind {name!r}; {hint}")
        found.add(numbers[name])
    return frozenset(found)
