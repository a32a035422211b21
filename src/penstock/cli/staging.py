"""Exactly-once writing by hand: `staging stage`, `publish`, `list`, `abort`. Writers do this through the SDK."""

from __future__ import annotations

import sys
from time import time

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.output import printable, shown_duration, shown_size, write_json, write_table
from penstock.cli.parameters import ATTEMPT, KEY, NATURAL


@click.group()
def staging() -> None:
    """Stage, publish, list and abort batches.

    A writer stages what each attempt at each partition of a batch has, unseen, and publishes one attempt of each: once,
    however often it repeats itself.
    """


@staging.command()
@click.argument("query")
@click.argument("batch", type=NATURAL)
@queue_argument
@click.option("--partition", type=NATURAL, default=0, help="Which partition of the batch.  [default: 0]")
@click.option("--attempt", type=NATURAL, default=0, help="Which attempt at the partition.  [default: 0]")
@click.option("--part", type=NATURAL, default=0, help="Which part of the attempt, from 0.  [default: 0]")
@click.option("--key", type=KEY, default=0, help="The messages' key.  [default: 0]")
@click.option("--last", "is_last", is_flag=True, help="The batch will be published with --last.")
@client_options
def stage(
    query: str,
    batch: int,
    queue: str,
    partition: int,
    attempt: int,
    part: int,
    key: int,
    is_last: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Leave the lines of standard input for a batch; nobody sees them yet."""
    from penstock.client import Item

    content = sys.stdin.buffer.read()
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    items = [Item(payload=line, key=key) for line in lines]
    with connected(url) as client:
        place = {"partition": partition, "attempt": attempt, "part": part}
        count = client.stage(query, batch, {queue: items}, **place, is_last=is_last)
    if as_json:
        write_json({"count": count})
    else:
        click.echo(f"staged {count}" if count else "staged nothing new")


@staging.command()
@click.argument("query")
@click.argument("batch", type=NATURAL)
@click.argument("attempts", type=ATTEMPT, nargs=-1, required=True, metavar="PARTITION:ATTEMPT...")
@click.option("--last", "is_last", is_flag=True, help="No batch of the query follows: forget the query.")
@client_options
def publish(
    query: str, batch: int, attempts: tuple[tuple[int, int], ...], is_last: bool, url: str | None, as_json: bool
) -> None:
    """Make one attempt of each partition visible, once."""
    with connected(url) as client:
        published = client.publish(query, batch, attempts, is_last=is_last)
    if as_json:
        write_json({"count": published.count, "fresh": published.fresh})
    else:
        click.echo(f"published {published.count}" if published.fresh else "was published before; nothing was added")


@staging.command("list")
@client_options
def list_(url: str | None, as_json: bool) -> None:
    """List what is staged and not published, by batch."""
    from penstock.cli.shapes import staged_shape

    with connected(url) as client:
        views = client.staged()
    if as_json:
        for view in views:
            write_json(staged_shape(view))
        return
    now_s = time()
    rows = [
        (
            printable(view.query),
            view.batch,
            view.partitions,
            view.attempts,
            view.records,
            shown_size(view.size_bytes),
            _shown_s(now_s - view.began_us / 1e6) if view.began_us else "unknown",
            _shown_s(view.ends_us / 1e6 - now_s),
        )
        for view in views
    ]
    write_table(("QUERY", "BATCH", "PARTITIONS", "ATTEMPTS", "MESSAGES", "MEMORY", "AGE", "DROPPED IN"), rows)


def _shown_s(seconds: float) -> str:
    return shown_duration(max(0.0, seconds))


@staging.command()
@click.argument("query")
@click.argument("batch", type=NATURAL)
@client_options
def abort(query: str, batch: int, url: str | None, as_json: bool) -> None:
    """Drop what is staged for a batch."""
    with connected(url) as client:
        client.abort(query, batch)
    if as_json:
        write_json({"query": query, "batch": batch})
    else:
        click.echo(f"batch {batch} is dropped")
