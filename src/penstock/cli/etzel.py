"""`penstock import etzel`: the records that Etzel keeps on disk, from lines of JSON; `export` stands in `etzel_export`.

A line is {"key": "…", "value": "…"}, both in hex, as they lie in Etzel's database; `wire.etzel.stored` has their
layouts.

An import reads its file twice: first to find what is wrong with it, before anything is put, then to put it in batches.
Each batch is staged and published under a name that follows from the file's content, so the same file adds nothing
twice: an import that was broken off goes on where it stopped. Deduplication keys would not do, since a queue forgets
them after minutes and refuses more than it may remember.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import client_options, connected
from penstock.cli.errors import FAILED, REFUSED, Failure
from penstock.cli.output import printable, progress, write_json
from penstock.cli.parameters import KEY

if TYPE_CHECKING:
    from penstock.client import Item, Refused
    from penstock.client.sync import Client
    from penstock.wire.etzel import Layout, StoredRecord

UID_HEADER: Final = "etzel-uid"
ERROR_COUNT_HEADER: Final = "etzel-error-count"
"""What Etzel knew of an imported message and a new one cannot have: the name it had, and how often it was delivered."""

LINE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Room for the longest payload that any node takes, in hex."""
BATCH_LINES: Final = 1_000
BATCH_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_BAD_LINES_SHOWN: Final = 5
_YEAR_2001_S: Final = 1_000_000_000
_YEAR_9999_S: Final = 253_402_300_799
TIMEOUT_S_DEFAULT: Final = 60

Lines = list[tuple[int, bytes]]


def layout_option(function: Any) -> Any:
    """The option `layout`."""
    return click.option(
        "--layout",
        type=click.Choice(["etzel", "seed"]),
        default="etzel",
        show_default=True,
        help="etzel: a header of 17 bytes, as Etzel's code has it; seed: 25, with a timeout, as in its design.",
    )(function)


@click.command("etzel")
@click.argument("file", type=click.File("rb"), default="-")
@layout_option
@click.option("--key", type=KEY, default=0, help="The priority they get: the smallest comes first.  [default: 0]")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that cannot be read, or that the node refuses.")
@click.option("--again", is_flag=True, help="Import also what was imported from this file before.")
@client_options
def import_etzel(
    file: IO[bytes], layout: str, key: int, skip_bad: bool, again: bool, url: str | None, as_json: bool
) -> None:
    """Put the stored records of Etzel into queues.

    FILE, or standard input, has one record a line: {"key": hex, "value": hex}. Queues that are missing are made. A
    message keeps the moments at which its delay and its life end, and its timeout becomes its lease; what has expired
    is left out. It gets a new uid: the old one stays in the header etzel-uid, and how often Etzel had delivered it in
    etzel-error-count.

    If a line is bad, nothing is imported. If the import is broken off, run it again: of the same file nothing is put
    twice.
    """
    if file is sys.stdin.buffer and sys.stdin.isatty():
        click.echo("Every line is a record; end with Ctrl-D.", err=True)
    with _seekable(file) as lines_file:
        _Import(lines_file, layout, key, skip_bad=skip_bad, again=again, as_json=as_json).run(url)


@contextmanager
def _seekable(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The file itself, or a copy of what cannot be read twice."""
    if file.seekable():
        yield file
        return
    stream: Any = file
    with tempfile.TemporaryFile() as copy:
        # What is there, again and again: a read of so many bytes would need Ctrl-D twice at a terminal.
        while data := stream.read1(_READ_BYTES):
            copy.write(data)
        copy.seek(0)
        yield copy


class _Import:
    """One file on its way into a node."""

    def __init__(self, file: IO[bytes], layout: str, key: int, *, skip_bad: bool, again: bool, as_json: bool) -> None:
        from penstock.wire.etzel import Layout

        self._file = file
        self._layout = Layout(layout)
        self._key = key
        self._skip_bad = skip_bad
        self._again = again
        self._as_json = as_json
        self._now_s = time.time()
        self._attempt = secrets.randbelow(2**31)
        self._query = ""
        self._queues: set[str] = set()
        self._bytes_total = 0
        self._bad: list[tuple[int, str]] = []
        self._expired = self._imported = self._imported_before = 0

    def run(self, url: str | None) -> None:
        """Read, put, and tell what became of it."""
        start = self._file.tell()
        self._survey()
        if self._bad and not self._skip_bad:
            self._tell_bad()
            raise Failure("nothing was imported", FAILED, "--skip-bad leaves these lines out")
        self._file.seek(start)
        with connected(url) as client, progress("importing", self._bytes_total, is_bytes=True) as bar:
            self._make_queues(client)
            is_new, bytes_done = self._again, 0
            for number, lines in enumerate(_batches(self._file)):
                items = self._items(lines)
                is_new = is_new or not self._was_published(client, number)
                if is_new:
                    self._put(client, number, items)
                else:
                    self._imported_before += len(items)
                bytes_done += sum(len(line) for _, line in lines)
                bar.update(bytes_done)
        self._tell()

    def _survey(self) -> None:
        """Read the whole file: what is bad, which queues it speaks of, and its name."""
        from penstock.wire.etzel import queue_name

        digest = hashlib.sha256()
        for number, line in _lines(self._file):
            digest.update(line)
            self._bytes_total += len(line)
            record = _record_of(line, self._layout)
            if isinstance(record, str):
                self._bad.append((number, record))
            elif record is not None and not self._has_expired(record):
                self._queues.add(queue_name(record.qname))
        once_more = f" {secrets.token_hex(8)}" if self._again else ""
        self._query = f"import etzel {self._layout} {digest.hexdigest()}{once_more}"

    def _make_queues(self, client: Client) -> None:
        from penstock.client import QueueExists

        for name in sorted(self._queues - {view.name for view in client.queues()}):
            try:
                client.queue(name).create(if_absent=True)
            except QueueExists:  # somebody was quicker
                continue

    def _items(self, lines: Lines) -> list[tuple[int, str, Item]]:
        """What is to be put: line, queue and message of each."""
        from penstock.wire.etzel import queue_name

        items = []
        for number, line in lines:
            record = _record_of(line, self._layout)
            if record is None or isinstance(record, str):
                continue
            if self._has_expired(record):
                self._expired += 1
                continue
            items.append((number, queue_name(record.qname), self._item(record)))
        return items

    def _has_expired(self, record: StoredRecord) -> bool:
        return 0 < record.expires_at_s <= self._now_s

    def _item(self, record: StoredRecord) -> Item:
        from penstock.client import Item

        headers = {UID_HEADER: record.uid}
        if record.error_count:
            headers[ERROR_COUNT_HEADER] = str(record.error_count)
        has_end = 0 < record.expires_at_s <= _YEAR_9999_S
        return Item(
            payload=record.payload,
            key=self._key,
            at=_moment(record.available_at_s) if record.available_at_s > self._now_s else None,
            expires=_moment(record.expires_at_s) if has_end else 0,
            headers=headers,
            lease=record.timeout_s or TIMEOUT_S_DEFAULT,
        )

    def _was_published(self, client: Client, batch: int) -> bool:
        """Whether an earlier import of this file came to this batch."""
        from penstock.client import BatchNotStaged

        try:
            return not client.publish(self._query, batch, [(0, self._attempt)]).fresh
        except BatchNotStaged:
            return False

    def _put(self, client: Client, batch: int, items: list[tuple[int, str, Item]]) -> None:
        from penstock.client import KeyOutOfRange, PayloadTooLarge

        while items:
            by_queue: dict[str, list[tuple[int, Item]]] = {}
            for number, queue, item in items:
                by_queue.setdefault(queue, []).append((number, item))
            puts = {queue: [item for _, item in numbered] for queue, numbered in by_queue.items()}
            try:
                client.stage(self._query, batch, puts, attempt=self._attempt)
            except (KeyOutOfRange, PayloadTooLarge) as error:
                # Only these two are about one record, and the last figure says about which.
                position = error.figures[-1] if error.position is None else error.position
                line = [number for numbered in by_queue.values() for number, _ in numbered][position]
                self._refuse(line, error)
                items = [each for each in items if each[0] != line]
            else:
                self._imported += client.publish(self._query, batch, [(0, self._attempt)]).count
                return

    def _refuse(self, line: int, error: Refused) -> None:
        if not self._skip_bad:
            in_node = self._imported + self._imported_before
            hint = (
                f"{in_node} records before it are in; mend the reason and run the import again, or pass over "
                "such lines with --skip-bad"
            )
            raise Failure(f"line {line} was refused: {error.detail} ({error.name})", REFUSED, hint)
        self._bad.append((line, f"{error.detail} ({error.name})"))

    def _tell_bad(self) -> None:
        for line, reason in self._bad[:_BAD_LINES_SHOWN]:
            click.echo(f"penstock: line {line}: {printable(reason)}", err=True)
        if len(self._bad) > _BAD_LINES_SHOWN:
            click.echo(f"penstock: and {len(self._bad) - _BAD_LINES_SHOWN} more lines", err=True)

    def _tell(self) -> None:
        if self._as_json:
            write_json(
                {
                    "imported": self._imported,
                    "imported_before": self._imported_before,
                    "expired": self._expired,
                    "queues": sorted(self._queues),
                    "bad": [{"line": line, "reason": reason} for line, reason in sorted(self._bad)],
                }
            )
            return
        self._tell_bad()
        text = f"imported {counted(self._imported, 'record')} into {counted(len(self._queues), 'queue')}"
        text += f"; {self._expired} had expired" if self._expired else ""
        text += f"; {len(self._bad)} were left out" if self._bad else ""
        text += f"; {self._imported_before} were imported before" if self._imported_before else ""
        click.echo(text)
        if self._imported_before and not self._imported:
            click.echo("penstock: this file was imported before; --again puts its records once more", err=True)


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise Failure(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        yield number, line


def _batches(file: IO[bytes]) -> Iterator[Lines]:
    """Some lines at a time. Where batches begin follows from the file alone: an import that goes on must agree."""
    batch: Lines = []
    batch_bytes = 0
    for number, line in _lines(file):
        batch.append((number, line))
        batch_bytes += len(line)
        if len(batch) == BATCH_LINES or batch_bytes >= BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def _record_of(line: bytes, layout: Layout) -> StoredRecord | str | None:
    """The record of a line, or what is wrong with it; None for an empty line."""
    from penstock.wire.etzel import RequestError, StoredError, decode_stored, queue_name

    if not line.strip():
        return None
    try:
        fields = json.loads(line)
        key, value = bytes.fromhex(fields["key"]), bytes.fromhex(fields["value"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return 'is not {"key": "…", "value": "…"} with both in hex'
    try:
        record = decode_stored(key, value, layout)
        queue_name(record.qname)
    except (StoredError, RequestError) as error:
        return error.reason
    return _doubt(record, layout) or record


def _doubt(record: StoredRecord, layout: Layout) -> str | None:
    """What cannot be right in a record that can be read: mostly it is the other layout."""
    from penstock.wire.etzel.requests import TIMEOUT_S_MAX
    from penstock.wire.etzel.stored import Layout as Layouts

    if layout is Layouts.ETZEL and 0 < record.available_at_s < _YEAR_2001_S:
        return f"is due at second {record.available_at_s}, before there was Etzel: is it of --layout seed?"
    if layout is Layouts.SEED and record.timeout_s > TIMEOUT_S_MAX:
        return f"has a timeout of {record.timeout_s} s, more than a day: is it of --layout etzel?"
    if record.available_at_s > _YEAR_9999_S:
        return f"is due at second {record.available_at_s}, after the year 9999"
    return None


def _moment(time_s: int) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def counted(number: int, one: str) -> str:
    """A number of things, in words."""
    return f"{number} {one if number == 1 else one + 's'}"
