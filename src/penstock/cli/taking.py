"""Taking messages, and settling what was taken: `take`, `ack`, `nack`, `release`, `extend`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.errors import FAILED, NOTHING
from penstock.cli.output import (
    full_text,
    printable,
    shown_duration,
    shown_queue,
    shown_time,
    write_json,
    write_raw,
)
from penstock.cli.parameters import DURATION, HANDLE, WAIT

if TYPE_CHECKING:
    from penstock.client.sync import Message, Queue
    from penstock.engine.answers import Handled

Handle = tuple[int, int]
_FOLLOW_WINDOW = 16


@click.command()
@queue_argument
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="How many at most.  [default: 1]")
@click.option("--wait", type=WAIT, default=0, help="How long to wait for the first, or forever.")
@click.option("--lease", type=DURATION, help="How long they are yours.  [default: what message and queue say]")
@click.option("--ack", is_flag=True, help="Acknowledge them once they are written.")
@click.option("--follow", is_flag=True, help="Go on for ever, or for --count messages; needs --ack.")
@click.option("--raw", is_flag=True, help="Write payloads alone, as they are; with a newline each if not just one.")
@client_options
def take(
    queue: str,
    count: int,
    wait: float,
    lease: float | None,
    ack: bool,
    follow: bool,
    raw: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Take the first messages of a queue.

    A message is yours until its lease ends. Its handle, id:token, is what `ack`, `nack`, `release` and `extend` want.
    If there is none, the exit code is 6. A lease of 0 would end with this command, and is refused.
    """
    if follow and not ack:
        raise click.UsageError("--follow needs --ack: what it shows would stay leased.")
    if lease == 0 and not ack:
        raise click.UsageError("A lease of 0 ends with the connection of this command; give a length, or --ack.")
    if raw and as_json:
        raise click.UsageError("Give --raw or --json, not both.")
    writer = _Writer(raw=raw, as_json=as_json, is_single=count == 1 and not follow)
    with connected(url) as client:
        source = client.queue(queue)
        if follow:
            limit = count if _was_said("count") else None
            _follow(source, writer, lease, limit)
            return
        messages = source.take_many(count, wait=None if math.isinf(wait) else wait, lease=lease)
        writer.write_all(messages)
        if ack and messages:
            _tell_lost([message.handle for message in messages], source.ack(messages))
    if not messages:
        _tell_nothing(queue)
    if not ack:
        writer.tell_handles(queue, messages)


def _was_said(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _follow(queue: Queue, writer: _Writer, lease: float | None, limit: int | None) -> None:
    window = _FOLLOW_WINDOW if limit is None else min(_FOLLOW_WINDOW, limit)
    with queue.subscribe(window=window, lease=lease) as messages:
        for number, message in enumerate(messages, 1):
            writer.write(message)
            message.ack()
            if number == limit:
                return


class _Writer:
    """Shows messages in the form that was asked for."""

    def __init__(self, *, raw: bool, as_json: bool, is_single: bool) -> None:
        self._raw = raw
        self._as_json = as_json
        self._is_single = is_single

    def write_all(self, messages: Iterable[Message]) -> None:
        """Show messages, in their order."""
        for message in messages:
            self.write(message)

    def write(self, message: Message) -> None:
        """Show one message; it has left this process when this returns."""
        if self._as_json:
            from penstock.cli.shapes import message_shape

            write_json(message_shape(message))
        elif self._raw:
            write_raw(message.payload, newline=not self._is_single)
        else:
            click.secho(_headline(message), bold=True)
            click.echo(full_text(message.payload))
        sys.stdout.flush()

    def tell_handles(self, queue: str, messages: Sequence[Message]) -> None:
        """Say how to settle what is leased now, to a person or where only payloads were written."""
        if messages and (self._raw or (sys.stdout.isatty() and not self._as_json)):
            handles = " ".join(f"{message.id}:{message.token}" for message in messages)
            until = messages[0].lease_until
            before = f" before {shown_time(until)}" if until is not None else ""
            click.echo(f"Settle{before} with: penstock ack {shown_queue(queue)} {handles}", err=True)


def _headline(message: Message) -> str:
    age = shown_duration(max(0.0, (datetime.now(UTC) - message.published_at).total_seconds()))
    parts = [
        f"{message.id}:{message.token}",
        f"key {message.key}",
        f"delivery {message.deliveries}",
        f"put {age} ago",
        *(f"{printable(name)}={printable(value)}" for name, value in message.headers.items()),
    ]
    return "  ".join(parts)


def _handles_argument(function: Any) -> Any:
    return click.argument("handles", type=HANDLE, nargs=-1, required=True, metavar="HANDLE...")(function)


@click.command()
@queue_argument
@_handles_argument
@click.option("--take", "take_next", is_flag=True, help="Take the next message in the same request.")
@click.option("--wait", type=WAIT, default=0, help="With --take: how long to wait for it, or forever.")
@click.option("--lease", type=DURATION, help="With --take: how long it is yours.")
@client_options
def ack(
    queue: str,
    handles: tuple[Handle, ...],
    take_next: bool,
    wait: float,
    lease: float | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Acknowledge messages: their work is done.

    HANDLE is id:token, as `take` shows it. A lease that has ended is told, and the exit code is 1; with
    --take it is not told, since the next message is taken all the same.
    """
    if not take_next:
        with connected(url) as client:
            handled = client.queue(queue).ack(handles)
        _tell_handled("acknowledged", handles, handled, as_json)
        return
    writer = _Writer(raw=False, as_json=as_json, is_single=True)
    with connected(url) as client:
        message = client.queue(queue).ack_and_take(handles, wait=None if math.isinf(wait) else wait, lease=lease)
    if message is None:
        _tell_nothing(queue)
        return
    writer.write(message)
    writer.tell_handles(queue, [message])


@click.command()
@queue_argument
@_handles_argument
@click.option("--delay", type=DURATION, default=0, help="They come back after so long.")
@click.option("--failure", default="", metavar="TEXT", help="What failed and why; at most 1 KiB is kept.")
@client_options
def nack(queue: str, handles: tuple[Handle, ...], delay: float, failure: str, url: str | None, as_json: bool) -> None:
    """Give messages back: their work failed.

    They return to their places, or after --delay. One that was delivered as often as its queue allows becomes a dead
    letter.
    """
    with connected(url) as client:
        handled = client.queue(queue).nack(handles, delay=delay, failure=failure)
    _tell_handled("given back", handles, handled, as_json)


@click.command()
@queue_argument
@_handles_argument
@click.option("--delay", type=DURATION, default=0, help="They come back after so long.")
@client_options
def release(queue: str, handles: tuple[Handle, ...], delay: float, url: str | None, as_json: bool) -> None:
    """Give messages back unharmed.

    As nack, but no failure is counted.
    """
    with connected(url) as client:
        handled = client.queue(queue).release(handles, delay=delay)
    _tell_handled("given back", handles, handled, as_json)


@click.command()
@queue_argument
@_handles_argument
@click.option("--lease", type=DURATION, required=True, help="They are yours for so long, from now.")
@client_options
def extend(queue: str, handles: tuple[Handle, ...], lease: float, url: str | None, as_json: bool) -> None:
    """Give leases a new deadline."""
    if not lease:
        raise click.UsageError("A lease has a length; to give messages back there is `penstock release`.")
    with connected(url) as client:
        handled = client.queue(queue).extend(handles, lease)
    _tell_handled("extended", handles, handled, as_json)


def _tell_nothing(queue: str) -> None:
    click.echo(f"penstock: {shown_queue(queue)} has nothing to take", err=True)
    raise click.exceptions.Exit(NOTHING)


def _tell_handled(done: str, handles: Sequence[Handle], handled: Handled, as_json: bool) -> None:
    if as_json:
        lost = [f"{handles[position][0]}:{handles[position][1]}" for position in handled.lost]
        write_json({"count": handled.count, "lost": lost})
    else:
        click.echo(f"{handled.count} {done}")
    _tell_lost(handles, handled)


def _tell_lost(handles: Sequence[Handle], handled: Handled) -> None:
    for position in handled.lost:
        record_id, token = handles[position]
        click.echo(f"penstock: the lease {record_id}:{token} had ended before", err=True)
    if handled.lost:
        raise click.exceptions.Exit(FAILED)
