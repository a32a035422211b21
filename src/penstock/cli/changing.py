"""Changing messages as an operator: `edit`, `delete`, `move`, `bury`, `kick`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.errors import FAILED
from penstock.cli.output import shown_queue, write_json
from penstock.cli.parameters import DURATION, KEY, QUEUE, RECORD_ID

if TYPE_CHECKING:
    from penstock.engine.answers import Handled

KICK_STEP: Final = 10_000
"""As many as one request may touch."""


def _ids_argument(function: Any) -> Any:
    return click.argument("ids", type=RECORD_ID, nargs=-1, required=True, metavar="ID...")(function)


@click.command()
@queue_argument
@click.argument("id", type=RECORD_ID)
@click.option("--key", type=KEY, help="Its new key.")
@click.option("--delay", type=DURATION, help="It can be taken after so long, from now; 0 for at once.")
@client_options
def edit(queue: str, id: int, key: int | None, delay: float | None, url: str | None, as_json: bool) -> None:
    """Change the key or the delay of a waiting message."""
    if key is None and delay is None:
        raise click.UsageError("Say what to change: --key, --delay, or both.")
    with connected(url) as client:
        client.queue(queue).edit(id, key=key, delay=delay)
    if as_json:
        write_json({"queue": queue, "id": id})
    else:
        click.echo(f"changed message {id} of {shown_queue(queue)}")


@click.command()
@queue_argument
@_ids_argument
@client_options
def delete(queue: str, ids: tuple[int, ...], url: str | None, as_json: bool) -> None:
    """Delete messages in any state.

    Whoever holds them. To delete a whole queue there is `penstock queue delete`.
    """
    with connected(url) as client:
        handled = client.queue(queue).delete(ids)
    _tell("deleted", "is not there", ids, handled, as_json)


@click.command()
@queue_argument
@_ids_argument
@click.option("--to", "target", type=QUEUE, required=True, help="The queue that they go to.")
@client_options
def move(queue: str, ids: tuple[int, ...], target: str, url: str | None, as_json: bool) -> None:
    """Move messages to another queue.

    They begin anew there, with their origin noted. Leased ones stay with their holders.
    """
    with connected(url) as client:
        handled = client.queue(queue).move(ids, target)
    _tell("moved", "is not there, or is leased", ids, handled, as_json)


@click.command()
@queue_argument
@_ids_argument
@click.option("--failure", default="", metavar="TEXT", help="What failed and why; at most 1 KiB is kept.")
@client_options
def bury(queue: str, ids: tuple[int, ...], failure: str, url: str | None, as_json: bool) -> None:
    """Set messages aside.

    In any state, whoever holds them. They wait until they are kicked, moved or deleted.
    """
    with connected(url) as client:
        handled = client.queue(queue).bury(ids, failure=failure)
    _tell("buried", "is not there, or is buried already", ids, handled, as_json)


@click.command()
@queue_argument
@click.argument("ids", type=RECORD_ID, nargs=-1, metavar="[ID]...")
@click.option("--count", type=click.IntRange(1, KICK_STEP), help="The first so many that are buried.")
@click.option("--all", "everything", is_flag=True, help="All that are buried.")
@client_options
def kick(queue: str, ids: tuple[int, ...], count: int | None, everything: bool, url: str | None, as_json: bool) -> None:
    """Make buried or delayed messages ready.

    Those named, buried or delayed; or the first that are buried.
    """
    if not ids and count is None and not everything:
        raise click.UsageError("Say which: ids, --count N, or --all.")
    with connected(url) as client:
        source = client.queue(queue)
        kicked = source.kick(ids, count=count or 0) if ids or count else 0
        while everything and (step := source.kick(count=KICK_STEP)):
            kicked += step
    if as_json:
        write_json({"count": kicked})
    else:
        click.echo(f"kicked {kicked}")


def _tell(done: str, trouble: str, ids: Sequence[int], handled: Handled, as_json: bool) -> None:
    missing = [ids[position] for position in handled.lost]
    if as_json:
        write_json({"count": handled.count, "missing": missing})
    else:
        click.echo(f"{done} {handled.count}")
    for record_id in missing:
        click.echo(f"penstock: message {record_id} {trouble}", err=True)
    if missing:
        raise click.exceptions.Exit(FAILED)
