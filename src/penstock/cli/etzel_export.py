"""`penstock export etzel`: queues as the records that Etzel would keep on disk, as lines of JSON; see `etzel`."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from math import ceil
from typing import IO, TYPE_CHECKING, Final

import click

from penstock.cli.connecting import client_options, connected
from penstock.cli.etzel import ERROR_COUNT_HEADER, TIMEOUT_S_DEFAULT, UID_HEADER, counted, layout_option
from penstock.cli.output import progress, shown_queue, write_json
from penstock.cli.parameters import QUEUE

if TYPE_CHECKING:
    from penstock.client import Record
    from penstock.client.sync import Client
    from penstock.engine.views import QueueView
    from penstock.wire.etzel import StoredRecord

NEVER_S: Final = 2**63 - 1
"""Written for a message that never expires. Etzel adds the time to it at each fetch, which 2**64 - 1 would not bear."""
PAGE: Final = 500


@click.command("etzel")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--queue", "queues", type=QUEUE, multiple=True, help="Only this queue; may be repeated.")
@layout_option
@client_options
def export_etzel(file: str, queues: tuple[str, ...], layout: str, url: str | None, as_json: bool) -> None:
    """Write queues as stored records of Etzel.

    FILE, or standard output, gets one line for each message that waits or is leased: {"key": hex, "value": hex}.
    Nothing is taken from the queues; what comes or goes meanwhile may be there or not. A leased message is due when its
    lease ends. Says what such records cannot hold.
    """
    export = _Export(layout)
    with connected(url) as client:
        if file == "-":
            export.write(client, queues, sys.stdout.buffer)
            sys.stdout.flush()
        else:
            # Not under its name before it is whole.
            with open(f"{file}.part", "wb") as stream:
                export.write(client, queues, stream)
            os.replace(f"{file}.part", file)
    export.tell(file, as_json)


class _Export:
    """Queues on their way into a file."""

    def __init__(self, layout: str) -> None:
        from penstock.wire.etzel import Layout

        self._layout = Layout(layout)
        self._records = self._queues = 0
        self._lost: dict[str, int] = {}

    def write(self, client: Client, names: tuple[str, ...], stream: IO[bytes]) -> None:
        """Write the records of these queues, or of all."""
        from penstock.wire.etzel import qname_of

        views = [client.queue(name).info() for name in dict.fromkeys(names)] if names else client.queues()
        total = sum(view.ready + view.delayed + view.leased for view in views)
        with progress("exporting", total) as bar:
            for view in views:
                qname = qname_of(view.name)
                if qname is None:
                    count = view.ready + view.delayed + view.leased
                    self._lose(f"message of {shown_queue(view.name)}, which is no name in Etzel", count)
                    continue
                self._queues += 1
                for record in client.queue(view.name).browse(page=PAGE):
                    self._write_record(stream, qname, view, record)
                    bar.update(self._records)

    def _write_record(self, stream: IO[bytes], qname: str, view: QueueView, record: Record) -> None:
        from penstock.wire.etzel import encode_stored

        if record.state == "buried":
            self._lose("buried message", 1)
            return
        self._lose("key other than 0", record.key != 0)
        self._lose("message with headers", not record.headers.keys() <= {UID_HEADER, ERROR_COUNT_HEADER})
        key, value = encode_stored(_stored(qname, view.uid, record), self._layout)
        stream.write(b'{"key":"%b","value":"%b"}\n' % (key.hex().encode(), value.hex().encode()))
        self._records += 1

    def _lose(self, what: str, count: int) -> None:
        if count:
            self._lost[what] = self._lost.get(what, 0) + count

    def tell(self, file: str, as_json: bool) -> None:
        """Say what was written; beside the records where these go to standard output."""
        to_errors = file == "-"
        if as_json:
            shape = {"records": self._records, "queues": self._queues, "lost": self._lost}
            if to_errors:
                click.echo(json.dumps(shape, separators=(",", ":")), err=True)
            else:
                write_json({"file": file, **shape})
            return
        for what, count in self._lost.items():
            click.echo(f"not held by Etzel's records: {count} × {what}", err=to_errors)
        where = "" if to_errors else f" to {file}"
        text = f"exported {counted(self._records, 'record')} of {counted(self._queues, 'queue')}{where}"
        click.echo(text, err=to_errors)


def _stored(qname: str, queue_uid: int, record: Record) -> StoredRecord:
    from penstock.wire.etzel import StoredRecord, encode_uid

    due = {"delayed": record.available_at, "leased": record.lease_until}.get(record.state)
    before = record.headers.get(ERROR_COUNT_HEADER, "")
    return StoredRecord(
        qname=qname,
        uid=encode_uid(queue_uid, record.id),
        payload=record.payload,
        error_count=record.deliveries + (int(before) if before.isdecimal() and len(before) <= 3 else 0),
        available_at_s=int(record.published_at.timestamp()) if due is None else _whole_second(due),
        expires_at_s=NEVER_S if record.expires_at is None else _whole_second(record.expires_at),
        timeout_s=ceil(record.lease) or TIMEOUT_S_DEFAULT,
    )


def _whole_second(moment: datetime) -> int:
    """The first whole second that is not before a moment: nothing is due too early, and nothing ends too early."""
    time_s = int(moment.timestamp())
    return time_s + 1 if moment.microsecond else time_s
