"""Looking at messages without touching them: `peek`, `browse`, `get`, `history`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.errors import NOTHING
from penstock.cli.output import (
    full_text,
    preview,
    printable,
    shown_duration,
    shown_queue,
    shown_time,
    write_json,
    write_pairs,
    write_raw,
    write_table,
)
from penstock.cli.parameters import KEY_RANGE, RECORD_ID

if TYPE_CHECKING:
    from penstock.client import Record
    from penstock.engine.views import EventView

STATES = ("ready", "delayed", "leased", "buried")


@click.command()
@queue_argument
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="How many.  [default: 1]")
@client_options
def peek(queue: str, count: int, url: str | None, as_json: bool) -> None:
    """Show the messages that would be taken next.

    Nothing is taken. If none is ready, the exit code is 6.
    """
    with connected(url) as client:
        records = client.queue(queue).peek(count)
    if not records:
        click.echo(f"penstock: {shown_queue(queue)} has nothing ready", err=True)
        raise click.exceptions.Exit(NOTHING)
    _write_records(records, as_json)


@click.command()
@queue_argument
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--keys", "key_range", type=KEY_RANGE, help="Only those with keys from..to, both included.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.  [default: all]")
@client_options
def browse(
    queue: str,
    state: str | None,
    key_range: tuple[int, int] | None,
    limit: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List the messages of a queue in any state.

    In the order of their ids, which is the order in which they were put.
    """
    with connected(url) as client:
        records = client.queue(queue).browse(state=state, key_range=key_range)
        chosen = islice(records, limit)
        _write_records(chosen if as_json else list(chosen), as_json)


def _write_records(records: Iterable[Record], as_json: bool) -> None:
    if as_json:
        from penstock.cli.shapes import record_shape

        for record in records:
            write_json(record_shape(record))
        return
    listed = list(records)
    now = datetime.now(UTC)
    columns: dict[str, list[object]] = {
        "ID": [record.id for record in listed],
        "KEY": [record.key for record in listed],
        "STATE": [record.state for record in listed],
        "DELIVERIES": [record.deliveries for record in listed],
        "AGE": [shown_duration(max(0.0, (now - record.published_at).total_seconds())) for record in listed],
        "UNTIL": [_until(record) for record in listed],
    }
    # A column that only some queues have something for would cost width in all.
    if any(record.holder for record in listed):
        columns["HELD BY"] = [printable(record.holder) or "-" for record in listed]
    if any(record.failure for record in listed):
        columns["FAILURE"] = [preview(record.failure.encode()) if record.failure else "-" for record in listed]
    columns["PAYLOAD"] = [preview(record.payload) for record in listed]
    write_table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _until(record: Record) -> str:
    """When the state that a record is in ends by itself."""
    if record.state == "delayed":
        return shown_time(record.available_at)
    if record.state == "leased":
        return shown_time(record.lease_until) if record.lease_until is not None else "disconnect"
    return shown_time(record.expires_at) if record.state == "ready" else "-"


@click.command()
@queue_argument
@click.argument("id", type=RECORD_ID)
@click.option("--raw", is_flag=True, help="Write the payload alone, as it is.")
@client_options
def get(queue: str, id: int, raw: bool, url: str | None, as_json: bool) -> None:
    """Show one message with all that is known of it."""
    if raw and as_json:
        raise click.UsageError("Give --raw or --json, not both.")
    with connected(url) as client:
        record = client.queue(queue).get(id)
    if raw:
        write_raw(record.payload, newline=False)
    elif as_json:
        from penstock.cli.shapes import record_shape

        write_json(record_shape(record))
    else:
        write_pairs(_record_pairs(record))
        click.echo()
        click.echo(full_text(record.payload))


def _record_pairs(record: Record) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [
        ("queue", shown_queue(record.queue)),
        ("id", record.id),
        ("key", record.key),
        ("state", record.state),
        ("put at", shown_time(record.published_at)),
        ("deliveries", record.deliveries),
        ("failures", record.failures),
        ("releases", record.releases),
        ("timeouts", record.timeouts),
    ]
    if record.available_at is not None:
        pairs.append(("available at", shown_time(record.available_at)))
    if record.expires_at is not None:
        pairs.append(("expires at", shown_time(record.expires_at)))
    if record.state == "leased":
        pairs.append(("leased until", _until(record)))
        pairs.append(("handle", f"{record.id}:{record.token}"))
        if record.holder:
            pairs.append(("held by", printable(record.holder)))
    if record.dedup_key is not None:
        pairs.append(("dedup key", printable(record.dedup_key)))
    if record.reason:
        pairs.append(("reason", record.reason))
    if record.failure:
        pairs.append(("last failure", printable(record.failure)))
    if record.origin is not None:
        origin = record.origin
        pairs.append(("came from", f"{shown_queue(origin.queue)} {origin.id}, delivered {origin.deliveries} times"))
    pairs += [(f"header {printable(name)}", printable(value)) for name, value in record.headers.items()]
    return [*pairs, ("bytes", len(record.payload))]


@click.command()
@queue_argument
@click.argument("id", type=RECORD_ID)
@client_options
def history(queue: str, id: int, url: str | None, as_json: bool) -> None:
    """Tell the life of one message.

    Also after it ended, as far back as the node keeps its journal. If there is nothing to tell, the exit code is 6.
    """
    with connected(url) as client:
        events = client.queue(queue).history(id)
        names = {view.uid: view.name for view in client.queues()}
    if not events:
        click.echo(f"penstock: the journal has nothing of message {id} in {shown_queue(queue)}", err=True)
        raise click.exceptions.Exit(NOTHING)
    from penstock.cli.shapes import event_shape, kind_name, moment_of, reason_name
    from penstock.engine.journal import DOORS

    if as_json:
        for event in events:
            write_json(event_shape(event, names))
        return
    rows = [
        (
            shown_time(moment_of(event.time_us)),
            kind_name(event.kind),
            DOORS.get(event.door, str(event.door)),
            event.deliveries,
            reason_name(event.reason) or "-",
            printable(event.owner_name) or "-",
            _details(event, names),
        )
        for event in events
    ]
    write_table(("TIME", "EVENT", "DOOR", "DELIVERIES", "REASON", "BY", "DETAILS"), rows)


def _details(event: EventView, names: dict[int, str]) -> str:
    """What an event says beyond the common columns."""
    from penstock.cli.shapes import moment_of
    from penstock.engine import journal as j

    until = shown_time(moment_of(event.value))
    other_queue = names.get(event.other_queue_uid)
    other = f"{'a deleted queue' if other_queue is None else shown_queue(other_queue)} {event.other_id}"
    match event.kind:
        case j.PUT:
            return f"key {event.key}" + (f", delayed until {until}" if event.value else "")
        case j.TAKEN:
            return f"lease until {until}" if event.value else "lease until disconnect"
        case j.EXTENDED:
            return f"lease until {until}"
        case j.RETURNED:
            return _joined(f"delayed until {until}" if event.value else "", event.text)
        case j.BURIED:
            return _joined("", event.text)
        case j.EDITED:
            return f"key {event.key}" + (f", delayed until {until}" if event.value else "")
        case j.DEAD_LETTERED | j.MOVED_OUT:
            return _joined(f"to {other}", event.text)
        case j.MOVED_IN:
            return _joined(f"from {other}, key {event.key}", event.text)
    return ""


def _joined(details: str, text: str) -> str:
    """Details of an event, and the text of the failure that it tells of."""
    return ": ".join(part for part in (details, printable(text)) if part)
