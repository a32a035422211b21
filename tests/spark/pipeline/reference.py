"""The tables as a plain program makes them: one event after the other, one minute after the other, nothing clever.

Written from the meaning of the columns alone, to be held against what Spark computes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil
from typing import Any

from penstock.spark.schemas import MESSAGES
from tests.spark.pipeline.histories import Row

MINUTE = timedelta(minutes=1)
OUTCOMES = {"acked": "acked", "expired": "expired", "dead-lettered": "dead-lettered", "deleted": "deleted"}
OUTCOMES["moved out"] = "moved"


def micros(span: timedelta) -> int:
    """A span of time in microseconds."""
    return span // timedelta(microseconds=1)


def minute_of(time: datetime) -> datetime:
    """The beginning of the minute that a time lies in."""
    return time.replace(second=0, microsecond=0)


def fold_messages(events: Iterable[Row]) -> list[Row]:
    """Rows of MESSAGES for a history from its beginning, in the order of (queue_uid, id)."""
    lives: dict[tuple[int, int], Row] = {}
    names: dict[int, str] = {}
    for event in events:
        if event["kind"] == "owner named":
            names[event["owner"]] = event["text"]
        elif event["kind"] == "owner gone":
            names.pop(event["owner"], None)
        elif event["kind"] in ("queue purged", "queue deleted"):
            _end_all(event, [life for (uid, _), life in lives.items() if uid == event["queue_uid"]])
        elif event["id"] and event["kind"] != "duplicate":
            name = event["queue_uid"], event["id"]
            if event["kind"] in ("put", "moved in"):
                assert name not in lives
                lives[name] = _begin(event)
            _step(lives[name], event)
            if event["kind"] == "taken":
                lives[name]["worker"] = names.get(event["owner"]) if event["owner"] >> 32 >= event["term"] else None
    return [lives[name] for name in sorted(lives)]


def _begin(event: Row) -> Row:
    life: Row = dict.fromkeys(MESSAGES)
    life |= {name: event[name] for name in ("queue_uid", "id", "queue")}
    life |= {"published": event["time"], "published_index": event["index"]}
    life |= {"door_in": event["door"], "owner_in": event["owner"]}
    life |= {"failures": 0, "releases": 0, "timeouts": 0, "worked_us": 0}
    if event["kind"] == "put":
        life["payload_bytes"] = event["payload_bytes"]
    else:
        life |= {"origin_queue_uid": event["other_queue_uid"], "origin_id": event["other_id"]}
    return life


def _step(life: Row, event: Row) -> None:
    assert life["state"] != "ended"
    kind, time = event["kind"], event["time"]
    life |= {"key": event["key"], "deliveries": event["deliveries"]}
    life["reason"] = event["reason"] or life["reason"]
    _touch(life, event)
    if event["text"] is not None or (kind == "returned" and event["reason"] == "nack"):
        life["failure"] = event["text"]
    if kind == "taken":
        life |= {"state": "leased", "leased_since": time, "last_delivered": time}
        life |= {"door_out": event["door"], "owner_out": event["owner"]}
        if life["first_delivered"] is None:
            life["first_delivered"] = time
            life["first_available"] = life["first_available"] or time
            life["waited_us"] = micros(time - life["first_available"])
    elif kind != "extended":
        _end_lease(life, time)
        if kind in OUTCOMES:
            _end(life, event, OUTCOMES[kind])
        elif kind == "buried":
            life["state"] = "buried"
        else:
            life["state"] = "delayed" if event["until"] else "ready"
            if life["state"] == "ready" and life["first_available"] is None:
                life["first_available"] = time
    if kind == "returned" and event["reason"] != "unsent":
        counters = {"nack": "failures", "lease timeout": "timeouts"}
        life[counters.get(event["reason"], "releases")] += 1
    if kind in ("dead-lettered", "moved out"):
        life |= {"target_queue_uid": event["other_queue_uid"], "target_id": event["other_id"]}


def _touch(life: Row, event: Row) -> None:
    life |= {f"last_{name}": event[name] for name in ("index", "n", "item")}


def _end_lease(life: Row, time: datetime) -> None:
    if life["leased_since"] is not None:
        life["worked_us"] += micros(time - life["leased_since"])
        life["leased_since"] = None


def _end(life: Row, event: Row, outcome: str) -> None:
    _end_lease(life, event["time"])
    life |= {"state": "ended", "done": event["time"], "done_index": event["index"], "outcome": outcome}
    life["door_out"] = life["door_out"] or event["door"]


def _end_all(event: Row, lives: list[Row]) -> None:
    outcome, states = "queue-deleted", {"ready", "delayed", "leased", "buried"}
    if event["kind"] == "queue purged":
        outcome, states = "purged", {"ready", "delayed"}
    for life in lives:
        if life["state"] in states:
            _end(life, event, outcome)
            _touch(life, event)


def percentile(values: list[int], percent: int) -> int | None:
    """The smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[ceil(Fraction(percent * len(values), 100)) - 1] if values else None


def queue_minutes(events: list[Row], messages: list[Row], watermark: datetime) -> list[Row]:
    """Rows of QUEUE_MINUTES, in the order of (queue_uid, minute)."""
    happened: dict[tuple[int, datetime], list[tuple[str, Any]]] = defaultdict(list)
    names = {message["queue_uid"]: message["queue"] for message in messages}
    for message in messages:
        for column in ("published", "first_delivered", "done"):
            if message[column] is not None:
                happened[message["queue_uid"], minute_of(message[column])].append((column, message))
    for event in events:
        if event["kind"] in ("taken", "returned"):
            happened[event["queue_uid"], minute_of(event["time"])].append((event["kind"], event))
    rows = []
    for uid, minute in sorted(happened):
        row: Row = {"queue_uid": uid, "queue": names[uid], "minute": minute}
        of_queue = [message for message in messages if message["queue_uid"] == uid]
        rows.append(row | _figures(happened[uid, minute]) | _standing(of_queue, minute, watermark))
    return rows


def _figures(happened: list[tuple[str, Any]]) -> Row:
    count = Counter(what for what, _ in happened)
    outcomes = Counter(row["outcome"] for what, row in happened if what == "done")
    waits = [row["waited_us"] for what, row in happened if what == "first_delivered"]
    works = [row["worked_us"] for what, row in happened if what == "done" and row["outcome"] == "acked"]
    redeliveries = count["taken"] - count["first_delivered"]
    failures = sum(what == "returned" and row["reason"] in ("nack", "lease timeout") for what, row in happened)
    return {
        "arrivals": count["published"],
        "completions": count["done"],
        "acked": outcomes["acked"],
        "expired": outcomes["expired"],
        "dead_lettered": outcomes["dead-lettered"],
        "deleted": outcomes["deleted"] + outcomes["purged"] + outcomes["queue-deleted"],
        "moved": outcomes["moved"],
        "deliveries": count["taken"],
        "redeliveries": redeliveries,
        "redelivery_rate": redeliveries / count["taken"] if count["taken"] else 0.0,
        "failures": failures,
        **{f"wait_p{percent}_us": percentile(waits, percent) for percent in (50, 95, 99)},
        **{f"work_p{percent}_us": percentile(works, percent) for percent in (50, 95, 99)},
    }


def _standing(messages: list[Row], minute: datetime, watermark: datetime) -> Row:
    end = minute + MINUTE
    alive = [
        message
        for message in messages
        if message["published"] < end and (message["done"] is None or message["done"] >= end)
    ]
    oldest = min((message["published"] for message in alive), default=None)
    age_us = None if oldest is None else micros(min(end, watermark) - oldest)
    return {"depth": len(alive), "oldest_age_us": age_us}
