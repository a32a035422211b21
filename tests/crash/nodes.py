"""Real processes for the crash tests: served nodes with a fault wanted, and `penstock serve` itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.engine import commands as c
from penstock.engine.answers import PutAnswer
from penstock.engine.views import RecordView
from penstock.wire.native import messages as m
from soak.client import Connection
from soak.process import ROOT, Served, start

KIB = 1024
QUEUE = ""


@contextmanager
def served(directory: Path, name: str = "data", **options: Any) -> Iterator[Served]:
    """A served node on `directory`/`name`, killed at the end unless it has stopped by then."""
    with start({"data_dir": str(directory / name), **options}, directory / f"errors-{name}") as process:
        yield process


def put(connection: Connection, *payloads: bytes, key: int = 0) -> Any:
    """Put payloads in one request; its answer."""
    return connection.ask(c.Put(QUEUE, [c.Item(key, payload) for payload in payloads]))


def put_each(port: int, payloads: list[bytes]) -> None:
    """Put payloads, one request and so one entry of the log each."""
    with Connection(port) as connection:
        for payload in payloads:
            assert isinstance(put(connection, payload), PutAnswer)


def browse(port: int) -> list[RecordView]:
    """Everything in the default queue, in the order of ids."""
    records: list[RecordView] = []
    with Connection(port) as connection:
        cursor = 0
        while True:
            page = connection.ask(m.Browse(QUEUE, None, None, cursor, 1000))
            records += page.records
            cursor = page.cursor
            if not cursor:
                return records


def serve_command(data_dir: Path, *options: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `penstock serve`, which is expected to end by itself."""
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(data_dir), "--taskflux-port", "0", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
