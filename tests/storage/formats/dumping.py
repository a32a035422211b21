"""A state and a history as plain values, to compare what one release wrote with what another one reads.

This runs on the source of the release that writes a fixture as well as on the present one, so it uses only what has
been there since the first of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.client.events import Event
from penstock.engine import reading
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.machine import Engine
from penstock.engine.snapshot import DEDUP, PRODUCER, STAGED
from penstock.engine.views import Page

PAGE = 1000
KIND_MASK = 0xFF
"""Of the number that stands before a kept answer, what says the kind of answer."""


def plain(value: Any) -> Any:
    """Structs as dictionaries by field, bytes as hexadecimal digits, tuples as lists."""
    if isinstance(value, msgspec.Raw | bytes):
        return bytes(value).hex()
    if isinstance(value, msgspec.Struct):
        return {name: plain(each) for name, each in msgspec.structs.asdict(value).items()}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def dump_state(engine: Engine) -> dict[str, Any]:
    """Everything that clients can see of a state, and what decides about repeated requests."""
    st = engine.state
    while engine.sweep():
        pass  # what was purged counts until it is freed, and nothing says when that is
    return {
        "index": st.index,
        "term": st.term,
        "stamp_us": st.stamp_us,
        "limits": [st.payload_bytes_max, st.queues_max],
        "queues": {queue.name: plain(queue) for queue in reading.list_queues(st)},
        "records": {name: _records(engine, name) for name in sorted(st.by_name)},
        "jobs": plain(reading.list_jobs(st)),
        "unfinished_jobs": sorted(job.id for job in st.jobs.values() if not job.done),
        "bindings": plain(list(reading.list_bindings(st))),
        "staged": _staged(engine),
        "published": plain(st.published),
        "former_names": plain(st.former_names),
        "producers": _producers(engine),
        "dedup_keys": _dedup_keys(engine),
    }


def dump_event(event: Event) -> dict[str, Any]:
    """One event of the history with the bytes that it names."""
    return {**plain(event.view), "payload": event.payload.hex(), "headers": event.headers.hex()}


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Where a dump lacks or contradicts an earlier one; a field that the earlier release did not have is fine."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{place}.{name} is missing" for name in expected if name not in found]
        both = (differences(expected[name], found[name], f"{place}.{name}") for name in expected if name in found)
        return [*missing, *(each for found_here in both for each in found_here)]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [each for number, (was, now) in pairs for each in differences(was, now, f"{place}[{number}]")]
    return [] if expected == found else [f"{place}: {expected!r} became {found!r}"]


def _records(engine: Engine, name: str) -> list[Any]:
    found: list[Any] = []
    cursor = 0
    while True:
        page = reading.browse(engine.state, name, None, None, cursor, PAGE)
        assert isinstance(page, Page)
        found += page.records
        if not page.cursor:
            return [plain(record) for record in found]
        cursor = page.cursor


def _in_snapshot(engine: Engine, wanted: int) -> list[Any]:
    """The values of the blocks of one kind in a snapshot of the state. Their first fields are those of all releases."""
    decoded = [msgspec.msgpack.decode(block) for block in engine_snapshot.begin(engine)]
    return [values for values in decoded if values[0] == wanted]


def _producers(engine: Engine) -> dict[str, Any]:
    """The kept answers by producer and request: the kind of each, and its fields by position."""
    found: dict[str, Any] = {}
    for _, producer, _, answers in _in_snapshot(engine, PRODUCER):
        found[str(producer)] = {
            str(request): {
                "kind": number & KIND_MASK,
                **{str(position): plain(value) for position, value in enumerate(msgspec.msgpack.decode(encoded))},
            }
            for request, (number, encoded) in answers
        }
    return found


def _staged(engine: Engine) -> list[Any]:
    """What is staged: query, batch, partition, attempt, end, part, and keys and payloads by queue."""
    found = []
    for _, (_, query, batch, partition, attempt, ends_us, *_), (number, _, puts, *_) in _in_snapshot(engine, STAGED):
        contents = [[queue, [[key, payload] for key, payload, *_ in items]] for queue, items in puts]
        found.append([query, batch, partition, attempt, ends_us, number, plain(contents)])
    return sorted(found)


def _dedup_keys(engine: Engine) -> dict[str, list[str]]:
    names = {str(uid): queue.name for uid, queue in engine.state.by_uid.items()}
    keys: dict[str, list[str]] = {}
    for _, uid, entries in _in_snapshot(engine, DEDUP):
        keys.setdefault(names[str(uid)], []).extend(key for _, key, _ in entries)
    return {name: sorted(found) for name, found in sorted(keys.items())}
