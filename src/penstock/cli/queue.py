"""Queues: `queue create`, `list`, `show`, `set`, `delete`, `purge`, `pause`, `resume`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.output import (
    confirm,
    shown_duration,
    shown_queue,
    shown_size,
    write_json,
    write_pairs,
    write_table,
)
from penstock.cli.parameters import DURATION, KEY_RANGE, NONE, QUEUE, OrNone, ParamType

if TYPE_CHECKING:
    from penstock.engine.views import QueueView

COUNT: Final = click.IntRange(0, 2**31 - 1)

Option = Callable[[Any], Any]
SETTINGS: Final[dict[str, tuple[ParamType, str]]] = {
    "size_max": (OrNone(COUNT), "Most messages that may wait or be leased."),
    "payload_bytes_max": (OrNone(COUNT), "Longest payload, in bytes."),
    "lease": (DURATION, "How long takes last; 0 ends them with the taker's connection."),
    "deliveries_max": (COUNT, "Deliveries after which a message that comes back is a dead letter; 0: never."),
    "dead_letter": (OrNone(QUEUE), "The queue that dead letters go to; without one they are buried."),
    "expires": (DURATION, "How long messages may wait if they do not say it themselves; 0: for ever."),
    "dead_letter_expired": (click.BOOL, "Expired messages go to the dead-letter queue too."),
    "dedup_window": (DURATION, "How long deduplication keys are remembered."),
    "dedup_keys_max": (click.IntRange(1, 10_000_000), "How many deduplication keys are remembered."),
}
"""Settings that can be changed later, with their kinds; `none` takes one away."""


def _setting_options(function: Any) -> Any:
    for name, (kind, text) in reversed(SETTINGS.items()):
        function = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)(function)
    return function


@click.group()
def queue() -> None:
    """Make, list, show, set, delete, purge, pause and resume queues.

    '' is the default queue, which is always there.
    """


@queue.command()
@click.argument("queue", type=QUEUE, metavar="NAME")
@click.option("--implementation", type=click.Choice(["h4", "qa"]), default="h4", help="qa needs --keys.")
@click.option("--keys", "key_range", type=KEY_RANGE, help="The keys that are allowed, from..to, both included.")
@click.option("--descending", is_flag=True, help="The greatest key comes first.")
@click.option("--if-absent", is_flag=True, help="Be content if an equal one is there.")
@_setting_options
@client_options
def create(
    queue: str,
    implementation: str,
    key_range: tuple[int, int] | None,
    descending: bool,
    if_absent: bool,
    url: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Make a queue.

    Order, keys and implementation cannot be changed later; the other settings can.
    """
    said = {name: value for name, value in settings.items() if value is not None and value != NONE}
    with connected(url) as client:
        created = client.queue(queue).create(
            implementation=implementation,
            key_range=key_range,
            descending=descending,
            if_absent=if_absent,
            **said,
        )
    if as_json:
        write_json({"queue": queue, "uid": created.uid, "created": created.created})
    else:
        click.echo(f"queue {shown_queue(queue)} " + ("is made" if created.created else "was there already"))


@queue.command("set")
@queue_argument
@_setting_options
@client_options
def set_(queue: str, url: str | None, as_json: bool, **settings: Any) -> None:
    """Change settings of a queue; what is not said stays. `none` takes a limit away."""
    given = {name: value for name, value in settings.items() if value is not None}
    if not given:
        raise click.UsageError("Say what to change; `penstock queue set --help` lists it.")
    said: dict[str, Any] = {name: None if value == NONE else value for name, value in given.items()}
    with connected(url) as client:
        client.queue(queue).set(**said)
    if as_json:
        write_json({"queue": queue, "changed": list(said)})
    else:
        click.echo(f"queue {shown_queue(queue)} is changed")


@queue.command("list")
@client_options
def list_(url: str | None, as_json: bool) -> None:
    """List all queues with their figures."""
    with connected(url) as client:
        views = client.queues()
    if as_json:
        from penstock.cli.shapes import queue_shape

        for view in views:
            write_json(queue_shape(view))
        return
    columns = ("READY", "DELAYED", "LEASED", "BURIED", "PUT", "ACKED", "SIZE", "OLDEST", "STATE", "QUEUE")
    rows = [
        (
            view.ready,
            view.delayed,
            view.leased,
            view.buried,
            view.put,
            view.acked,
            shown_size(view.payload_bytes),
            oldest_age(view),
            "paused" if view.paused else "open",
            shown_queue(view.name),
        )
        for view in views
    ]
    write_table(columns, rows)


def oldest_age(view: QueueView) -> str:
    """How long the oldest message that waits has waited."""
    from penstock.cli.shapes import moment_of

    oldest = moment_of(view.oldest_us)
    return "-" if oldest is None else shown_duration(max(0.0, (datetime.now(UTC) - oldest).total_seconds()))


@queue.command()
@queue_argument
@client_options
def show(queue: str, url: str | None, as_json: bool) -> None:
    """Show one queue: settings and figures."""
    with connected(url) as client:
        view = client.queue(queue).info()
    if as_json:
        from penstock.cli.shapes import queue_shape

        write_json(queue_shape(view))
    else:
        write_pairs([*_setting_pairs(view), *_figure_pairs(view)])


def _setting_pairs(view: QueueView) -> list[tuple[str, object]]:
    from penstock.engine.commands import H4

    settings = view.settings
    keys = "any" if settings.key_range is None else "{}..{}".format(*settings.key_range)
    return [
        ("queue", shown_queue(view.name)),
        ("state", "paused" if view.paused else "open"),
        ("implementation", "h4" if settings.implementation == H4 else "qa"),
        ("order", "greatest key first" if settings.descending else "smallest key first"),
        ("keys", keys),
        ("size max", "none" if settings.size_max is None else settings.size_max),
        ("payload bytes max", "none" if settings.payload_bytes_max is None else settings.payload_bytes_max),
        ("lease", shown_duration(settings.lease_ms / 1000) if settings.lease_ms else "until disconnect"),
        ("deliveries max", settings.deliveries_max or "none"),
        ("dead letter", "none" if settings.dead_letter is None else shown_queue(settings.dead_letter)),
        ("dead letter expired", "yes" if settings.dead_letter_expired else "no"),
        ("expires", shown_duration(settings.expires_ms / 1000) if settings.expires_ms else "never"),
        ("dedup window", shown_duration(settings.dedup_window_ms / 1000)),
        ("dedup keys max", settings.dedup_keys_max),
    ]


def _figure_pairs(view: QueueView) -> list[tuple[str, object]]:
    return [
        ("ready", view.ready),
        ("delayed", view.delayed),
        ("leased", view.leased),
        ("buried", view.buried),
        ("payloads", shown_size(view.payload_bytes)),
        ("oldest waits for", oldest_age(view)),
        ("put", view.put),
        ("delivered", view.delivered),
        ("acked", view.acked),
        ("returned", view.returned),
        ("expired", view.expired),
        ("dead-lettered", view.dead_lettered),
        ("ended otherwise", view.ended_otherwise),
        ("dedup keys", view.dedup_keys),
    ]


@queue.command()
@queue_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(queue: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Delete a queue with all it holds."""
    with connected(url) as client:
        if not yes:
            view = client.queue(queue).info()
            count = view.ready + view.delayed + view.leased + view.buried
            confirm(f"Delete queue {shown_queue(queue)} with {count} messages?", yes=yes)
        client.queue(queue).drop()
    if as_json:
        write_json({"queue": queue})
    else:
        click.echo(f"queue {shown_queue(queue)} is deleted")


@queue.command()
@queue_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def purge(queue: str, yes: bool, url: str | None, as_json: bool) -> None:
    """End all ready and delayed messages of a queue; leased and buried ones stay."""
    with connected(url) as client:
        if not yes:
            view = client.queue(queue).info()
            confirm(f"End {view.ready + view.delayed} messages of queue {shown_queue(queue)}?", yes=yes)
        count = client.queue(queue).purge()
    if as_json:
        write_json({"queue": queue, "count": count})
    else:
        click.echo(f"purged {count}")


@queue.command()
@queue_argument
@client_options
def pause(queue: str, url: str | None, as_json: bool) -> None:
    """Stop takes from a queue; puts go on."""
    with connected(url) as client:
        client.queue(queue).pause()
    _tell_state(queue, "paused", as_json)


@queue.command()
@queue_argument
@client_options
def resume(queue: str, url: str | None, as_json: bool) -> None:
    """Let takes from a queue go on."""
    with connected(url) as client:
        client.queue(queue).resume()
    _tell_state(queue, "open", as_json)


def _tell_state(queue: str, state: str, as_json: bool) -> None:
    if as_json:
        write_json({"queue": queue, "state": state})
    else:
        click.echo(f"queue {shown_queue(queue)} is {state}")
