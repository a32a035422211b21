"""What a producer hands over, what it is told, and the settings of a queue as users say them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.errors import Refused, refused_with
from penstock.client.units import Payload, Seconds, encode_headers, to_bytes, to_ms, to_us
from penstock.engine import commands as c
from penstock.engine import errors as codes
from penstock.engine.answers import PutAnswer

_NO_HEADERS: Final = Raw(b"\xc0")
IMPLEMENTATIONS: Final = {"h4": c.H4, "qa": c.QA}
"""How a queue keeps its records, by name."""


class Item(Struct, frozen=True):
    """One message to be put; see ``Queue.put`` for what each field means."""

    payload: Payload
    key: int = 0
    delay: Seconds = 0
    expires: Seconds | datetime = 0
    at: datetime | None = None
    headers: Mapping[str, str] | None = None
    dedup_key: str | None = None
    lease: Seconds = 0


ItemLike: TypeAlias = Item | Payload
"""A message to be put: an ``Item``, or a bare payload with key 0."""


class PutResult(NamedTuple):
    """What became of a put."""

    id: int
    """The record's number in its queue."""
    duplicate: bool
    """Its deduplication key was known: ``id`` names the record that was put first, and nothing was added."""


def to_command_item(item: ItemLike) -> c.Item:
    """An item in the wire's form."""
    if not isinstance(item, Item):
        return c.Item(0, to_bytes(item))
    options = command_options(item.delay, item.expires, item.at, item.headers, item.dedup_key, item.lease)
    return c.Item(item.key, to_bytes(item.payload), options)


def command_options(
    delay: Seconds,
    expires: Seconds | datetime,
    at: datetime | None,
    headers: Mapping[str, str] | None,
    dedup_key: str | None,
    lease: Seconds,
) -> c.Options | None:
    """What is said of a record beyond key and payload; None where nothing is."""
    if not (delay or expires or at or headers or dedup_key is not None or lease):
        return None
    return c.Options(
        delay_ms=to_ms(delay),
        expires_ms=0 if isinstance(expires, datetime) else to_ms(expires),
        headers=Raw(encode_headers(headers)) if headers else _NO_HEADERS,
        dedup_key=dedup_key,
        lease_ms=to_ms(lease),
        available_at_us=to_us(at) if at else 0,
        expires_at_us=to_us(expires) if isinstance(expires, datetime) else 0,
    )


_REASONS: Final = {
    codes.QUEUE_FULL: "the queue holds its {} records",
    codes.KEY_OUT_OF_RANGE: "the key is outside the queue's range",
    codes.PAYLOAD_TOO_LARGE: "the payload is longer than {} bytes",
    codes.HEADERS_TOO_LARGE: "the headers are longer than {} bytes",
    codes.DEDUP_FULL: "the queue remembers {} deduplication keys, the maximum of its setting dedup_keys_max",
}


def put_outcomes(answer: PutAnswer, count: int) -> list[PutResult | Refused]:
    """What became of each of ``count`` items, in order."""
    exceptions = {position: (code, figure) for position, code, figure in answer.exceptions}
    outcomes: list[PutResult | Refused] = []
    next_id = answer.first
    for position in range(count):
        if position not in exceptions:
            outcomes.append(PutResult(next_id, False))
            next_id += 1
            continue
        code, figure = exceptions[position]
        outcomes.append(_put_refused(code, figure, position) if code else PutResult(figure, True))
    return outcomes


def _put_refused(code: int, figure: int, position: int) -> Refused:
    """The error for one item; ``figure`` is the limit, where there is one."""
    error = refused_with(code, _REASONS.get(code, "").format(figure), (figure,) if figure else ())
    error.position = position
    return error


def put_results(answer: PutAnswer, count: int) -> list[PutResult]:
    """As ``put_outcomes`` for an answer that refuses none; raises the first refusal if there is one."""
    results = []
    for outcome in put_outcomes(answer, count):
        if isinstance(outcome, Refused):
            raise outcome
        results.append(outcome)
    return results


def command_puts(puts: Mapping[str, Iterable[ItemLike]]) -> list[tuple[str, list[c.Item]]]:
    """Items by queue, in the wire's form."""
    return [(queue, [to_command_item(item) for item in items]) for queue, items in puts.items()]


def queue_settings(implementation: str, settings: Mapping[str, Any]) -> c.QueueSettings:
    """The settings of a new queue; those that are None keep their defaults."""
    if implementation.lower() not in IMPLEMENTATIONS:
        raise ValueError(f"a queue is one of {', '.join(IMPLEMENTATIONS)}, not {implementation!r}")
    said = {name: value for name, value in _in_wire_units(settings).items() if value is not None}
    return c.QueueSettings(implementation=IMPLEMENTATIONS[implementation.lower()], **said)


def queue_changes(settings: Mapping[str, Any]) -> c.QueueChanges:
    """Changes of a queue's settings; what is UNSET stays."""
    return c.QueueChanges(**{name: value for name, value in _in_wire_units(settings).items() if value is not UNSET})


_DURATIONS: Final = {"lease": "lease_ms", "expires": "expires_ms", "dedup_window": "dedup_window_ms"}


def _in_wire_units(settings: Mapping[str, Any]) -> dict[str, Any]:
    converted = {}
    for name, value in settings.items():
        if name in _DURATIONS:
            name = _DURATIONS[name]
            value = value if value is None or isinstance(value, UnsetType) else to_ms(value)
        converted[name] = value
    return converted
