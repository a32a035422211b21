"""Redrives: `redrive` starts one and watches it, `jobs` lists and stops them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.output import progress, shown_queue, write_json, write_table
from penstock.cli.parameters import KEY, KEY_RANGE, NATURAL, QUEUE
from penstock.engine.journal import REASONS

if TYPE_CHECKING:
    from penstock.client.sync import Client
    from penstock.engine.views import JobView

POLL_SECONDS: Final = 0.1
REASON_NUMBERS: Final = {name.replace(" ", "-"): number for number, name in REASONS.items() if name}


@click.command()
@queue_argument
@click.option("--to", "target", type=QUEUE, help="Where they go.  [default: where each came from]")
@click.option("--keys", "key_range", type=KEY_RANGE, help="Only those with keys from..to, both included.")
@click.option("--reason", type=click.Choice(list(REASON_NUMBERS)), help="Only those that died of this.")
@click.option("--max", "count_max", type=click.IntRange(1), default=None, help="At most so many.")
@click.option("--rate", type=click.IntRange(1, 1_000_000), help="At most so many a second.")
@click.option("--new-key", type=KEY, help="The key that they get.  [default: their own]")
@click.option("--detach", is_flag=True, help="Do not wait for the end.")
@client_options
def redrive(
    queue: str,
    target: str | None,
    key_range: tuple[int, int] | None,
    reason: str | None,
    count_max: int | None,
    rate: int | None,
    new_key: int | None,
    detach: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Move dead letters back to where they came from.

    Any message of the queue that is not leased goes, if it matches. The node does it, step by step: Ctrl-C ends the
    watching and not the redrive, which `penstock jobs cancel` stops.
    """
    with connected(url) as client:
        waiting = client.queue(queue).info()
        job = client.queue(queue).redrive(
            target,
            key_range=key_range,
            reason=REASON_NUMBERS[reason] if reason else 0,
            count_max=count_max or 0,
            rate_per_s=rate or 0,
            new_key=new_key,
        )
        if detach:
            _tell_started(job, as_json)
            return
        total = waiting.ready + waiting.delayed + waiting.buried
        try:
            view = _watch(client, job, min(total, count_max or total))
        except KeyboardInterrupt:
            click.echo(f"penstock: redrive {job} goes on; stop it with: penstock jobs cancel {job}", err=True)
            raise
    _tell_ended(job, view, as_json)


def _watch(client: Client, job: int, total: int) -> JobView | None:
    """Wait for the end of a redrive; None where the node has forgotten it, as it does when many came after it."""
    with progress("redriving", total) as bar:
        while True:
            view = next((view for view in client.jobs() if view.id == job), None)
            if view is None or view.done:
                return view
            bar.update(view.moved + view.skipped)
            time.sleep(POLL_SECONDS)


def _tell_started(job: int, as_json: bool) -> None:
    if as_json:
        write_json({"job": job})
    else:
        click.echo(f"redrive {job} has begun; see: penstock jobs")


def _tell_ended(job: int, view: JobView | None, as_json: bool) -> None:
    moved, skipped = (view.moved, view.skipped) if view is not None else (None, None)
    if as_json:
        write_json({"job": job, "moved": moved, "skipped": skipped})
        return
    if view is None:
        click.echo(f"redrive {job} has ended")
        return
    click.echo(f"moved {moved}" + (f", skipped {skipped}" if skipped else ""))
    if skipped:
        click.echo("penstock: what was skipped has no origin, or does not fit the queue it should go to", err=True)


@click.group(invoke_without_command=True)
@client_options
@click.pass_context
def jobs(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List redrives, or stop one.

    Those under way, and those that ended lately.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connected(url) as client:
        views = client.jobs()
    if as_json:
        from penstock.cli.shapes import job_shape

        for view in views:
            write_json(job_shape(view))
        return
    rows = [
        (
            view.id,
            "ended" if view.done else "running",
            view.moved,
            view.skipped,
            shown_queue(view.queue),
            "where each came from" if view.target is None else shown_queue(view.target),
        )
        for view in views
    ]
    write_table(("JOB", "STATE", "MOVED", "SKIPPED", "FROM", "TO"), rows)


@jobs.command()
@click.argument("job", type=NATURAL)
@client_options
@click.pass_context
def cancel(ctx: click.Context, job: int, url: str | None, as_json: bool) -> None:
    """Stop a redrive; what it has moved stays moved."""
    is_said_here = ctx.get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE
    said_before = ctx.parent.params["url"] if ctx.parent is not None else None
    with connected(url if is_said_here else said_before) as client:
        client.cancel_job(job)
    if as_json:
        write_json({"job": job})
    else:
        click.echo(f"redrive {job} is stopped")
