"""What programs get with `--json`: one stable shape for each thing that commands show.

Times are ISO 8601 in UTC, null where there is none. A payload is `payload` where it is text, else `payload_base64`.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.output import decoded
from penstock.engine.commands import H4
from penstock.engine.journal import DOORS, KINDS, REASONS
from penstock.engine.views import BindingView, EventView, JobView, QueueView, StagedView

if TYPE_CHECKING:
    from penstock.client import Record
    from penstock.client.messages import LeasedMessage, Origin

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_MIN_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_MOMENT_MAX_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

Shape = dict[str, Any]


def moment_of(time_us: int) -> datetime | None:
    """The moment of a time on the wire; None for 0. The wire has years beyond 9999, which count as the end of that."""
    if not time_us:
        return None
    return _EPOCH + timedelta(microseconds=max(_MOMENT_MIN_US, min(time_us, _MOMENT_MAX_US)))


def iso(moment: datetime | None) -> str | None:
    """A moment as programs read it."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def payload_shape(payload: bytes) -> Shape:
    """A payload as text, or as Base64 where it is none."""
    text = decoded(payload)
    return {"payload": text} if text is not None else {"payload_base64": b64encode(payload).decode()}


def message_shape(message: LeasedMessage) -> Shape:
    """A message that was taken."""
    return {
        "queue": message.queue,
        "id": message.id,
        "handle": f"{message.id}:{message.token}",
        "key": message.key,
        "deliveries": message.deliveries,
        "published_at": iso(message.published_at),
        "lease_until": iso(message.lease_until),
        "failure": message.failure or None,
        "headers": message.headers,
        **payload_shape(message.payload),
    }


def record_shape(record: Record) -> Shape:
    """A record as it stands in its queue."""
    return {
        "queue": record.queue,
        "id": record.id,
        "key": record.key,
        "state": record.state,
        "place": record.place,
        "published_at": iso(record.published_at),
        "available_at": iso(record.available_at),
        "expires_at": iso(record.expires_at),
        "lease_until": iso(record.lease_until),
        "lease_s": record.lease or None,
        "handle": f"{record.id}:{record.token}" if record.token else None,
        "deliveries": record.deliveries,
        "failures": record.failures,
        "releases": record.releases,
        "timeouts": record.timeouts,
        "dedup_key": record.dedup_key,
        "reason": record.reason or None,
        "failure": record.failure or None,
        "holder": record.holder or None,
        "origin": None if record.origin is None else _origin_shape(record.origin),
        "headers": record.headers,
        **payload_shape(record.payload),
    }


def _origin_shape(origin: Origin) -> Shape:
    return {
        "queue": origin.queue,
        "queue_uid": origin.queue_uid,
        "id": origin.id,
        "published_at": iso(origin.published_at),
        "moved_at": iso(origin.moved_at),
        "deliveries": origin.deliveries,
        "failures": origin.failures,
        "releases": origin.releases,
        "timeouts": origin.timeouts,
        "reason": origin.reason or None,
    }


def queue_shape(view: QueueView) -> Shape:
    """A queue with its settings and figures."""
    shape: Shape = msgspec.structs.asdict(view)
    settings = msgspec.structs.asdict(view.settings)
    settings["implementation"] = "h4" if view.settings.implementation == H4 else "qa"
    shape["oldest_at"] = iso(moment_of(shape.pop("oldest_us")))
    return {**shape, "settings": settings}


def event_shape(event: EventView, queues: dict[int, str]) -> Shape:
    """One event of a message's life; `queues` names the queues by their uids."""
    return {
        "time": iso(moment_of(event.time_us)),
        "event": kind_name(event.kind),
        "door": DOORS.get(event.door, str(event.door)),
        "reason": reason_name(event.reason),
        "failure": event.text or None,
        "owner": event.owner_name or None,
        "key": event.key,
        "deliveries": event.deliveries,
        "value": event.value,
        "queue": queues.get(event.queue_uid),
        "id": event.id or None,
        "other_queue": queues.get(event.other_queue_uid) if event.other_id else None,
        "other_id": event.other_id or None,
        "index": event.index,
        "n": event.n,
        "item": event.item,
    }


def job_shape(job: JobView) -> Shape:
    """A redrive."""
    shape: Shape = msgspec.structs.asdict(job)
    return shape


def staged_shape(view: StagedView) -> Shape:
    """What is staged for a batch."""
    shape: Shape = msgspec.structs.asdict(view)
    began_us, ends_us = shape.pop("began_us"), shape.pop("ends_us")
    shape["began"] = iso(moment_of(began_us))
    shape["dropped_at"] = iso(moment_of(ends_us))
    return shape


def binding_shape(binding: BindingView) -> Shape:
    """A binding."""
    shape: Shape = msgspec.structs.asdict(binding)
    return shape


def reason_name(reason: int) -> str | None:
    """A reason's name; None where there is none."""
    return REASONS.get(reason, f"reason {reason}") or None


def kind_name(kind: int) -> str:
    """An event's name."""
    return KINDS[kind][0] if kind in KINDS else f"event {kind}"
