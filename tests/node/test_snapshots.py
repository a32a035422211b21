"""Snapshots in service: large records, and what a failing disk does."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from penstock.doors.server import Server
from penstock.engine import snapshot
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage.disk import Disk
from penstock.testing import OTHER_DOORS_CLOSED
from tests.node.support import Told, put


def settings(tmp_path: Path, snapshot_bytes: int = 1 << 40) -> Settings:
    return Settings(
        data_dir=str(tmp_path / "data"),
        storage=StorageSettings(snapshot_bytes=snapshot_bytes, reserve_bytes=0),
        taskflux=TaskfluxSettings(enabled=False),
        **OTHER_DOORS_CLOSED,
    )


async def put_all(server: Server, payloads: list[bytes]) -> None:
    told = Told()
    for ref, payload in enumerate(payloads):
        server.node.submit(put("", payload), told, ref)
    while len(told.answers) < len(payloads):
        await asyncio.sleep(0.001)


def test_a_chunk_of_large_records_is_saved_in_blocks_of_bounded_size_and_restored(tmp_path: Path) -> None:
    payloads = [bytes([number]) * 1_000_000 for number in range(40)]

    async def fill() -> None:
        server = Server(settings(tmp_path))
        await server.start()
        await put_all(server, payloads)
        assert all(len(block) < 10_000_000 for block in snapshot.begin(server.node.engine))
        server.node.snapshots.begin()
        await server.node.snapshots.done.wait()
        assert server.node.store.snapshot_index == server.node.engine.state.index
        await server.stop()

    async def again() -> list[bytes]:
        server = Server(settings(tmp_path))
        await server.start()
        found = [record.payload for record in server.node.engine.state.by_name[""].order.walk()]
        await server.stop()
        return found

    asyncio.run(fill())
    assert asyncio.run(again()) == payloads


class FailingDisk(Disk):
    """Says EIO when a snapshot is synced."""

    def before(self, site: str, path: Path) -> None:
        if site == "snapshot.sync":
            raise OSError(5, "Input/output error")


def test_a_disk_that_fails_under_a_snapshot_stops_the_node(tmp_path: Path) -> None:
    async def run() -> str:
        server = Server(settings(tmp_path), disk=FailingDisk())
        await server.start()
        await put_all(server, [b"x"])
        server.node.snapshots.begin()
        failure = await server.node.failed
        await server.stop()
        return str(failure)

    assert "snapshot" in asyncio.run(run())


def test_a_large_state_is_saved_only_when_the_log_has_grown_by_as_much(tmp_path: Path) -> None:
    """Else a backlog of gigabytes would be written again for every 256 MiB of new messages."""
    payload = b"x" * 10_000

    async def run() -> list[int]:
        server = Server(settings(tmp_path, snapshot_bytes=100_000))
        await server.start()
        taken: list[int] = []
        for _ in range(80):  # 800 kB in all
            await put_all(server, [payload])
            await server.node.snapshots.done.wait()
            if server.node.store.snapshot_index not in (-1, *taken):
                taken.append(server.node.store.snapshot_index)
        await server.stop()
        return taken

    taken = asyncio.run(run())
    gaps = [after - before for before, after in itertools.pairwise(taken)]
    assert len(taken) >= 3, taken
    assert all(later >= 1.8 * earlier for earlier, later in itertools.pairwise(gaps)), f"snapshots at {taken}"
