"""Everything that happens, as it happens: `events`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import DEFAULT_URL, client_options
from penstock.cli.output import preview, shown_queue, shown_time, write_json
from penstock.cli.parameters import MOMENT, QUEUE

if TYPE_CHECKING:
    from penstock.client.events import Event
    from penstock.client.history import HistoryReader

_POLL_SECONDS: Final = 10.0


@click.command()
@click.option("--queue", "only", type=QUEUE, help="Only what concerns this queue.")
@click.option("--from", "first_index", type=click.IntRange(0), help="From this log entry on.  [default: the oldest]")
@click.option("--since", type=MOMENT, help="From this time on.")
@click.option("--follow", is_flag=True, help="Go on as more happens, until interrupted.")
@client_options
def events(
    only: str | None, first_index: int | None, since: datetime | None, follow: bool, url: str | None, as_json: bool
) -> None:
    """Tell everything that happened, in order: the journal of the node.

    Each line is an event in the life of a message or a queue: when, what, where, through which door. The history goes
    as far back as the node keeps it.
    """
    if first_index is not None and since is not None:
        raise click.UsageError("--from and --since both say where to begin; give one of them")
    from penstock.client.history import HistoryReader

    with HistoryReader(url or DEFAULT_URL, retry_timeout=10.0) as reader:
        names: dict[int, str] = {}
        for event in _follow(reader, first_index, since, follow):
            uid = event.view.queue_uid
            if uid not in names:
                names = reader.queue_names()
            if only is None or names.get(uid) == only:
                _write(event, names, as_json)


def _follow(reader: HistoryReader, first_index: int | None, since: datetime | None, follow: bool) -> Iterator[Event]:
    from penstock.client.events import read_events

    reach = reader.reach()
    if since is not None:
        first_index = reader.find_time(int(since.timestamp() * 1_000_000))
    first = reach.first_index if first_index is None else first_index
    while True:
        yield from read_events(reader, first, reach.applied_index)
        if not follow:
            return
        first = max(first, reach.applied_index + 1)
        reach = reader.reach(reach.applied_index, _POLL_SECONDS)


def _write(event: Event, names: dict[int, str], as_json: bool) -> None:
    from penstock.cli.shapes import event_shape, kind_name, moment_of, payload_shape, reason_name
    from penstock.engine.journal import DOORS

    view = event.view
    if as_json:
        shape: dict[str, Any] = dict(event_shape(view, names))
        if event.payload:
            shape |= payload_shape(event.payload)
        write_json(shape)
        return
    queue = names.get(view.queue_uid)
    parts = [
        shown_time(moment_of(view.time_us)),
        f"{view.index}.{view.n}",
        f"{kind_name(view.kind):<13}",
        f"{DOORS.get(view.door, str(view.door)):<8}",
        "a deleted queue" if queue is None else shown_queue(queue),
    ]
    if view.id:
        parts.append(f"{view.id} key {view.key}")
    if view.reason:
        parts.append(f"({reason_name(view.reason)})")
    if view.owner_name:
        parts.append(f"by {preview(view.owner_name.encode())}")
    if view.text:
        parts.append(preview(view.text.encode()))
    if event.payload:
        parts.append(preview(event.payload))
    click.echo("  ".join(parts))
