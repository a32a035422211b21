"""The exit codes of a node, as docs/operations.md lists them, and the way on from an entry that cannot be applied."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import serve
from penstock.client import connect_sync
from penstock.doors.server import Server
from penstock.engine import commands as c
from penstock.engine import machine
from penstock.node.errors import ReplayFailed
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage.datafiles import DataFiles
from penstock.storage.disk import SITES, Disk
from penstock.storage.errors import CannotSkip
from penstock.storage.layout import Layout
from penstock.storage.verify import verify
from penstock.testing import OTHER_DOORS_CLOSED
from tests.cli.support import PATIENCE_S, Command, environment, started

CLOSED = ["--no-etzel", "--no-monique", "--taskflux-port", "0"]
SMALL = [*CLOSED, "--storage-segment-bytes", "1MiB", "--storage-reserve-bytes", "0"]


class DyingDisk(Disk):
    """A disk that fails for good at its first call at a site, once the node leads; then at all others, too."""

    def __init__(self, site: str) -> None:
        super().__init__()
        self._site = site
        self.serves = False
        self.is_dead = False

    def before(self, site: str, path: Path) -> None:
        self.is_dead = self.is_dead or (self.serves and site == self._site)
        if self.is_dead:
            raise OSError(errno.EIO, "Input/output error")


def dying_server(site: str) -> Any:
    """`Server`, on a disk that dies after the start."""
    disk = DyingDisk(site)

    class Dying(Server):
        async def start(self) -> None:
            await super().start()
            disk.serves = True

    return lambda settings, **options: Dying(settings, disk=disk, **options)


@pytest.mark.parametrize("site", ["log.write", "log.sync", "metadata.write"])
def test_70_when_the_disk_fails_also_if_it_stays_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    assert site in SITES
    monkeypatch.setattr(serve, "Server", dying_server(site))
    # The first entry of the term is written after the start, so the disk fails without a client.
    result = Command()("serve", "--data-dir", str(tmp_path / "d"), *SMALL, code=70)
    assert "penstock: the node stopped: " in result.stderr
    assert "Input/output error" in result.stderr


def test_70_when_the_disk_fails_while_the_node_stops(tmp_path: Path) -> None:
    """The last sync fails: the stop ends, and the failure is reported."""

    async def run() -> None:
        disk = DyingDisk("tail.create")
        settings = Settings(
            data_dir=str(tmp_path / "d"),
            storage=StorageSettings(reserve_bytes=0),
            taskflux=TaskfluxSettings(enabled=False),
            **OTHER_DOORS_CLOSED,
        )
        server = Server(settings, disk=disk)
        await server.start()
        disk.serves = True
        await server.stop()
        assert "tail.create failed" in str(server.node.failed.result())

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


HANGING = """
import sys
import time
from penstock.cli import main, serve
from penstock.doors.server import Server
from penstock.node import node
from penstock.storage.disk import Disk

class HangingDisk(Disk):
    served = False
    def before(self, site, path):
        if self.served and site == "log.sync":
            time.sleep(3600)

disk = HangingDisk()

class Hanging(Server):
    async def start(self):
        await super().start()
        disk.served = True

serve.Server = lambda settings, **options: Hanging(settings, disk=disk, **options)
serve.STOP_S_MAX = 1.0
main.main()
"""


def test_70_when_a_hanging_disk_holds_up_the_stop(tmp_path: Path) -> None:
    options = [*SMALL, "--storage-sync-thread", "always"]  # a sync in the loop would hold up the signal, too
    command = [sys.executable, "-c", HANGING, "serve", "--data-dir", "d", *options]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            next(line for line in iter(process.stdout.readline, "") if line.endswith("is ready.\n"))
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 70
    assert "did not stop within 1 s" in errors


def test_0_after_a_stop_and_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with started("serve", *SMALL, cwd=tmp_path) as process:
        assert process.stdout is not None
        next(line for line in iter(process.stdout.readline, "") if line.endswith("is ready.\n"))
        process.send_signal(signal.SIGTERM)
        give_up_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < give_up_s:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)


# An entry that cannot be applied.


def break_at(monkeypatch: pytest.MonkeyPatch, payload: bytes) -> None:
    """A bug in the engine: a put of this payload changes something, then raises an error."""
    put = machine.HANDLERS[c.PUT]

    def broken(st: Any, args: c.Put) -> Any:
        answer = put(st, args)
        if any(item.payload == payload for item in args.items):
            raise ZeroDivisionError("a bug in a handler")
        return answer

    monkeypatch.setitem(machine.HANDLERS, c.PUT, broken)


class Node:
    """A server on a data directory, on the loop of a test."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        settings = Settings(
            data_dir=str(tmp_path / "d"),
            storage=StorageSettings(reserve_bytes=0, segment_bytes=1 << 20),
            taskflux=TaskfluxSettings(port=0),
            **OTHER_DOORS_CLOSED,
        )
        self.server = Server(settings, **options)

    async def __aenter__(self) -> Server:
        await self.server.start()
        return self.server

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def put(self, *payloads: bytes) -> None:
        """Put messages, one request each; the node may fail on the way."""
        url = f"penstock://127.0.0.1:{self.server.listeners[0].port}"

        def work() -> None:
            with connect_sync(url, retry_timeout=0.1) as client:
                for payload in payloads:
                    client.queue().put(payload)

        await asyncio.to_thread(work)

    def payloads(self) -> list[bytes]:
        """What is in the default queue."""
        return [record.payload for record in self.server.node.engine.state.by_name[""].order.walk()]


async def fill_with_poison(tmp_path: Path) -> int:
    """A data directory whose log has an entry that cannot be applied; its index."""
    node = Node(tmp_path)
    async with node:
        await node.put(b"before")
        with pytest.raises(Exception, match=r"."):
            await node.put(b"poison")
        failure = await node.server.node.failed
    cause: Any = failure.cause
    assert f"entry {cause.index} (Put) cannot be applied: unexpected ZeroDivisionError: a bug" in str(failure)
    return int(cause.index)


def test_an_entry_that_cannot_be_applied_is_named_at_the_next_start_and_can_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_at(monkeypatch, b"poison")

    async def run() -> None:
        index = await fill_with_poison(tmp_path)
        for _ in range(2):  # again and again, with the same words
            with pytest.raises(ReplayFailed, match=rf"entry {index} \(Put\) cannot be .*--skip-entry {index} "):
                await Node(tmp_path).server.start()
        with pytest.raises(CannotSkip, match="a start applies the entries 0 to"):
            await Node(tmp_path, skip_entries=[index + 1000]).server.start()
        node = Node(tmp_path, skip_entries=[index])
        async with node:
            assert node.payloads() == [b"before"]
            await node.put(b"after")
        # The decision holds, whether or not it is repeated, and for readers of the files.
        for options in ({}, {"skip_entries": [index]}):
            node = Node(tmp_path, **options)
            async with node:
                assert node.payloads() == [b"before", b"after"]
        files = DataFiles(Layout(tmp_path / "d"))
        assert [record.payload for record in files.engine().state.by_name[""].order.walk()] == [b"before", b"after"]
        files.close()
        assert verify(tmp_path / "d").ok

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_1_for_an_entry_that_cannot_be_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, b"poison")
    index = asyncio.run(asyncio.wait_for(fill_with_poison(tmp_path), PATIENCE_S))
    result = Command()("serve", "--data-dir", str(tmp_path / "d"), *SMALL, code=1)
    assert f"penstock: entry {index} (Put) cannot be applied" in result.stderr
    assert f"--skip-entry {index}" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_record_of_skipped_entries_that_is_damaged_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_at(monkeypatch, b"poison")
    index = asyncio.run(asyncio.wait_for(fill_with_poison(tmp_path), PATIENCE_S))

    async def skip() -> None:
        async with Node(tmp_path, skip_entries=[index]):
            pass

    asyncio.run(asyncio.wait_for(skip(), PATIENCE_S))
    path = Layout(tmp_path / "d").skipped
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    result = Command()("serve", "--data-dir", str(tmp_path / "d"), *SMALL, code=1)
    assert "skipped" in result.stderr
    assert "wrong checksum" in result.stderr
    assert not verify(tmp_path / "d").ok
