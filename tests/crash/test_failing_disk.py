"""A disk that fails: the node stops with a clear message, and what it had acknowledged is there at the next start.

A disk that is full: puts are refused, takes and acknowledgements go on, and puts come back with the space.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import commands as c
from penstock.engine.answers import PutAnswer
from penstock.engine.errors import DISK_FULL, OUTCOME_UNKNOWN, STOPPING, Refusal
from penstock.wire.native import messages as m
from soak.client import Connection, ConnectionGone
from soak.process import wait_until
from soak.served import NODE_FAILED
from tests.crash.nodes import KIB, QUEUE, browse, put, served

STORAGE = {"segment_bytes": 16 * KIB, "snapshot_bytes": 32 * KIB, "reserve_bytes": 0}


@pytest.mark.parametrize(
    "site", ["log.write", "log.sync", "log.create", "log.seal", "log.publish", "log.sync_directory", "journal.write"]
)
def test_a_failing_disk_stops_the_node_and_loses_nothing_acknowledged(tmp_path: Path, site: str) -> None:
    # A start makes some of these calls too, and they must succeed.
    fault = {"site": site, "after": 20 if site in ("log.write", "log.sync") else 4, "errno": errno.EIO}
    acknowledged = []
    with served(tmp_path, storage=STORAGE, fault=fault) as node, Connection(node.port) as connection:
        for number in range(2000):
            payload = b"%05d" % number + bytes(100)
            answer = try_put(connection, payload)
            if not isinstance(answer, PutAnswer):
                assert answer is None or answer.code in (OUTCOME_UNKNOWN, STOPPING)
                break
            acknowledged.append(payload)
        assert node.wait_end() == NODE_FAILED
        last_line = node.errors().strip().splitlines()[-1]
        assert last_line.startswith(f"the node stopped: {tmp_path}/data/consensus")
        assert last_line.endswith(f"{site} failed: Input/output error")
        assert "Traceback" not in node.errors()
    with served(tmp_path, storage=STORAGE) as node:
        found = [record.payload for record in browse(node.port)]
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1, "at most the one put whose fate was unknown"


def try_put(connection: Connection, payload: bytes) -> Any:
    """The answer to a put; None if the node was gone first."""
    try:
        return put(connection, payload)
    except ConnectionGone:
        return None


# --- a full disk ------------------------------------------------------------------------------------------------------

MIB = 1024 * KIB
FULL_STORAGE = {"segment_bytes": 256 * KIB, "snapshot_bytes": 512 * KIB, "reserve_bytes": 4 * MIB}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of our own."""
    point = tmp_path / "small"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "penstock-test", str(point)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_a_full_disk_refuses_puts_while_takes_go_on_and_recovers_with_the_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with served(small_disk, storage=FULL_STORAGE) as node, Connection(node.port) as connection:
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free_bytes(small_disk) - 2 * MIB)
        put_count = put_until_refused(connection)
        assert put_count > 10
        assert connection.ask(m.Status()).disk_full
        # The reserve has room for what is taken and acknowledged now.
        for _ in range(put_count):
            taken = connection.ask(c.Take(QUEUE, 1))
            assert connection.ask(c.Ack(QUEUE, [(taken.records[0].id, taken.token)])).count == 1
        refused = put(connection, b"still full")
        assert refused.code == DISK_FULL
        ballast.unlink()
        assert wait_until(lambda: isinstance(put(connection, b"again"), PutAnswer), every_s=0.05)
        assert not connection.ask(m.Status()).disk_full
        assert node.stop() == 0
    with served(small_disk, storage=FULL_STORAGE) as node:
        assert [record.payload for record in browse(node.port)] == [b"again"]


def test_useless_commands_on_a_full_disk_use_up_nothing(small_disk: Path) -> None:
    """208 ACKs of handles that nobody held used up a reserve of 4 MiB and ended the node."""
    with served(small_disk, storage=FULL_STORAGE) as node, Connection(node.port) as connection:
        with (small_disk / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free_bytes(small_disk) - 2 * MIB)
        put_count = put_until_refused(connection)
        taken = connection.ask(c.Take(QUEUE, 1))
        handle = (taken.records[0].id, taken.token)
        junk = [(2**60 + number, 2**60) for number in range(9_999)]
        free_before = free_bytes(small_disk)
        useless = [
            c.Ack(QUEUE, [handle, *junk]),
            c.Delete(QUEUE, [record for record, _ in junk]),
            c.Purge("not there"),
            c.Extend(QUEUE, [handle], 60_000),
            c.Return(QUEUE, [handle]),
        ]
        for number in range(300):
            assert connection.ask(useless[number % len(useless)]).code == DISK_FULL
        assert free_bytes(small_disk) == free_before
        assert connection.ask(c.Ack(QUEUE, [handle])).count == 1
        for _ in range(put_count - 1):
            taken = connection.ask(c.Take(QUEUE, 1))
            assert connection.ask(c.Ack(QUEUE, [(taken.records[0].id, taken.token)])).count == 1


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def put_until_refused(connection: Connection) -> int:
    """Put until the disk is full; how many were accepted."""
    for count in range(100_000):
        answer = put(connection, bytes(10_000))
        if isinstance(answer, Refusal):
            assert answer.code == DISK_FULL, answer
            return count
    raise AssertionError("the disk never got full")


def test_a_node_with_empty_queues_takes_puts_however_small_the_disk_is(small_disk: Path) -> None:
    """Its own archive filled the disk: 168 hours and 8 GiB are kept, and nobody looked at the free space."""
    storage = {"segment_bytes": 256 * KIB, "snapshot_bytes": 512 * MIB, "reserve_bytes": MIB}
    with served(small_disk, storage=storage) as node, Connection(node.port) as connection:
        for number in range(600):
            payload = bytes([number % 256]) * 50_000
            assert wait_until(lambda payload=payload: isinstance(put(connection, payload), PutAnswer), every_s=0.01)
            taken = connection.ask(c.Take(QUEUE, 1))
            assert connection.ask(c.Ack(QUEUE, [(taken.records[0].id, taken.token)])).count == 1
        assert not connection.ask(m.Status()).disk_full
        put(connection, b"last")
        assert node.stop() == 0
    with served(small_disk, storage=storage) as node:
        assert [record.payload for record in browse(node.port)] == [b"last"]
