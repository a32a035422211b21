"""Topic messages and the bindings that copy them into queues: `broadcast`, `bindings`, `bind`, `unbind`."""

from __future__ import annotations

import os
from datetime import datetime

import click

from penstock.cli.connecting import client_options, connected
from penstock.cli.output import printable, shown_duration, shown_queue, write_json, write_table
from penstock.cli.parameters import DURATION, MOMENT, QUEUE


@click.command()
@click.argument("body")
@click.option("--channel", type=click.IntRange(0, 255), default=0, help="Which channel, 0 to 255.  [default: 0]")
@click.option("--tag", default="", help="What live subscribers choose by.")
@click.option("--spec", default="", help="What bindings choose by.")
@click.option("--type", "type_", default="", help="What bindings choose by, too.")
@click.option("--expires-at", type=MOMENT, help="Copies in queues are dropped then.")
@client_options
def broadcast(
    body: str,
    channel: int,
    tag: str,
    spec: str,
    type_: str,
    expires_at: datetime | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Send a topic message.

    To whoever listens now, and into the queues bound to it.
    """
    with connected(url) as client:
        copies = client.broadcast(
            channel, os.fsencode(tag), os.fsencode(body), spec=spec, type=type_, expires_at=expires_at
        )
    if as_json:
        write_json({"copies": copies})
    else:
        click.echo(f"sent; copied into {copies} queues")


@click.command()
@client_options
def bindings(url: str | None, as_json: bool) -> None:
    """List which topic messages go into which queues."""
    with connected(url) as client:
        views = client.bindings()
    if as_json:
        from penstock.cli.shapes import binding_shape

        for view in views:
            write_json(binding_shape(view))
        return
    rows = [
        (
            view.name,
            printable(view.spec) or "any",
            printable(view.type) or "any",
            shown_duration(view.timeout_ms / 1000),
            "paused" if view.paused else "active",
            shown_queue(view.queue),
        )
        for view in views
    ]
    write_table(("BINDING", "SPEC", "TYPE", "TIMEOUT", "STATE", "QUEUE"), rows)


@click.command()
@click.argument("name")
@click.argument("queue", type=QUEUE)
@click.option("--spec", default="", help="Only messages of this spec.  [default: any]")
@click.option("--type", "type_", default="", help="Only messages of this type.  [default: any]")
@click.option("--timeout", type=DURATION, default=3600, help="How long takes of the copies last.  [default: 1h]")
@click.option("--paused", is_flag=True, help="Copy nothing for now.")
@client_options
def bind(
    name: str, queue: str, spec: str, type_: str, timeout: float, paused: bool, url: str | None, as_json: bool
) -> None:
    """Copy topic messages into a queue from now on.

    NAME names the binding; one that is there already is changed. The queue is made if it is missing.
    """
    with connected(url) as client:
        client.bind(name, queue, spec=spec, type=type_, timeout=timeout, paused=paused)
    if as_json:
        write_json({"binding": name, "queue": queue})
    else:
        click.echo(f"{printable(name)} is bound to {shown_queue(queue)}")


@click.command()
@click.argument("name")
@client_options
def unbind(name: str, url: str | None, as_json: bool) -> None:
    """Forget a binding.

    Its queue stays.
    """
    with connected(url) as client:
        client.unbind(name)
    if as_json:
        write_json({"binding": name})
    else:
        click.echo(f"{printable(name)} is unbound")
