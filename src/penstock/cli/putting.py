"""`penstock put`: from an argument, a file, or the lines of standard input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import client_options, connected, queue_argument
from penstock.cli.errors import REFUSED, Failure
from penstock.cli.output import progress, shown_queue, write_json
from penstock.cli.parameters import DURATION, HEADER, KEY, MOMENT, DurationOrMoment

if TYPE_CHECKING:
    from penstock.client import Item, PutResult
    from penstock.client.sync import Queue

READ_BYTES: Final = 256 * 1024
BATCH_LINES_MAX: Final = 1_000
LINE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""As long as any node may allow a payload to be: more is not kept in memory for the sake of a refusal."""
_REFUSALS_SHOWN: Final = 5


@click.command()
@queue_argument
@click.argument("payload", required=False)
@click.option("--file", "file", type=click.File("rb"), help="The whole file is one message; - is standard input.")
@click.option("--key", type=KEY, default=0, help="Its priority: the smallest comes first.  [default: 0]")
@click.option("--delay", type=DURATION, default=0, help="It cannot be taken before so long.")
@click.option("--at", type=MOMENT, help="It cannot be taken before then.")
@click.option("--expires", type=DurationOrMoment(), default=0, help="It is dropped if it still waits after so long.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="Something to say about it; may be repeated.")
@click.option("--dedup-key", metavar="TEXT", help="A repeat of the same key adds nothing. For one message only.")
@click.option("--lease", type=DURATION, default=0, help="How long takes of it last.")
@click.option("--create", is_flag=True, help="Make the queue if it is missing.")
@click.option("--atomic", is_flag=True, help="Put all lines or none, at most 10,000.")
@client_options
def put(
    queue: str,
    payload: str | None,
    file: IO[bytes] | None,
    key: int,
    delay: float,
    at: datetime | None,
    expires: float | datetime,
    headers: tuple[tuple[str, str], ...],
    dedup_key: str | None,
    lease: float,
    create: bool,
    atomic: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Put messages into a queue.

    PAYLOAD is the message. Without it, and without --file, every line of standard input is a message. They are durable
    when the command ends. If the node refuses some of the lines, the others are put, and the exit code is 4.
    """
    if payload is not None and file is not None:
        raise click.UsageError("Give PAYLOAD or --file, not both.")
    if atomic and create:
        raise click.UsageError("--atomic puts into queues that are there: leave out --create.")
    options: dict[str, Any] = {
        "key": key,
        "delay": delay,
        "at": at,
        "expires": expires,
        "headers": dict(headers) or None,
        "dedup_key": dedup_key,
        "lease": lease,
    }
    if payload is not None or file is not None:
        content = file.read() if file is not None else os.fsencode(payload or "")
        _put_one(url, queue, content, options, create, as_json)
        return
    if dedup_key is not None:
        raise click.UsageError("--dedup-key names one message: give PAYLOAD or --file.")
    _Lines(queue, options, create, atomic, as_json).run(url)


def _put_one(url: str | None, queue: str, content: bytes, options: dict[str, Any], create: bool, as_json: bool) -> None:
    with connected(url) as client:
        result = client.queue(queue).put(content, create=create, **options)
    if as_json:
        write_json(_result_shape(queue, result))
    elif result.duplicate:
        click.echo(f"{shown_queue(queue)} has it already as message {result.id}; nothing was added")
    else:
        click.echo(f"put message {result.id} into {shown_queue(queue)}")


def _result_shape(queue: str, result: PutResult) -> dict[str, Any]:
    return {"queue": queue, "id": result.id, "duplicate": result.duplicate}


class _Lines:
    """Lines of standard input on their way into a queue."""

    def __init__(self, queue: str, options: dict[str, Any], create: bool, atomic: bool, as_json: bool) -> None:
        self._queue = queue
        self._options = options
        self._create = create
        self._atomic = atomic
        self._as_json = as_json
        self._lines_read = 0
        self._accepted = 0
        self._refused: list[tuple[int, str]] = []

    def run(self, url: str | None) -> None:
        """Put what comes, as it comes, and tell what became of it."""
        stream = sys.stdin.buffer
        if sys.stdin.isatty():
            click.echo("Every line is a message; end with Ctrl-D.", err=True)
        with connected(url) as client, progress("putting", _size_of(stream), is_bytes=True) as bar:
            queue = client.queue(self._queue)
            bytes_done = 0
            for lines in [_all_lines(stream)] if self._atomic else _batches(stream):
                self._put(queue, lines)
                bytes_done += sum(len(line) + 1 for line in lines)
                bar.update(bytes_done)
        self._tell()

    def _put(self, queue: Queue, lines: list[bytes]) -> None:
        from penstock.client import Item, Refused

        items: list[Item] = [Item(payload=line, **self._options) for line in lines]
        if self._atomic:
            outcomes: list[PutResult | Refused] = [*queue.put_many(items)] if items else []
        else:
            outcomes = queue.put_each(items, create=self._create)
        for outcome in outcomes:
            self._lines_read += 1
            if isinstance(outcome, Refused):
                self._refused.append((self._lines_read, outcome.name))
            else:
                self._accepted += 1
                if self._as_json:
                    write_json(_result_shape(self._queue, outcome))

    def _tell(self) -> None:
        if not self._as_json:
            click.echo(f"put {self._accepted} messages into {shown_queue(self._queue)}")
        for line, name in self._refused[:_REFUSALS_SHOWN]:
            click.echo(f"penstock: line {line} was refused ({name})", err=True)
        if len(self._refused) > _REFUSALS_SHOWN:
            click.echo(f"penstock: and {len(self._refused) - _REFUSALS_SHOWN} more lines", err=True)
        if self._refused:
            raise click.exceptions.Exit(REFUSED)


def _size_of(stream: IO[bytes]) -> int | None:
    """How many bytes will come, where that can be known."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # Not a file of the system's.
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _all_lines(stream: IO[bytes]) -> list[bytes]:
    return [line for lines in _batches(stream) for line in lines]


def _batches(stream: Any) -> Iterator[list[bytes]]:
    """Whatever whole lines are there, without waiting for more: a slow source is not held back by a batch."""
    rest: list[bytes] = []
    rest_bytes = 0
    while data := stream.read1(READ_BYTES):
        *whole, last = data.split(b"\n")
        if not whole:
            rest.append(last)
            rest_bytes += len(last)
            if rest_bytes > LINE_BYTES_MAX:
                raise Failure(f"a line is longer than {LINE_BYTES_MAX} bytes; nothing of it was put")
            continue
        whole[0] = b"".join([*rest, whole[0]])
        rest, rest_bytes = [last] if last else [], len(last)
        for start in range(0, len(whole), BATCH_LINES_MAX):
            yield whole[start : start + BATCH_LINES_MAX]
    if rest:
        yield [b"".join(rest)]
