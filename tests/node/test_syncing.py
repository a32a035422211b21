"""The modes of durability: what is synced before an answer, and what after."""

from __future__ import annotations

import asyncio
import threading

from penstock.consensus.lone import LoneVoter
from penstock.engine.answers import PutAnswer
from penstock.node.syncing import SLOW_SYNC_S, Syncer
from tests.node.support import Told, WatchedDisk, make_node, on_loop, put, stores, turns, until


@on_loop
async def test_durable_syncs_before_it_answers_in_the_loop_while_the_disk_is_quick() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, "durable")), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    assert told.answers == {1: PutAnswer(1, 1)}
    assert disk.sync_threads == [threading.current_thread().name]
    await node.stop()


@on_loop
async def test_durable_leaves_the_sync_to_a_thread_when_the_disk_is_slow() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    syncer = Syncer(store, "durable")
    syncer.average_s = 2 * SLOW_SYNC_S
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=syncer), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await until(lambda: told.answers)
    assert disk.sync_threads == ["penstock-sync"]
    await node.stop()


@on_loop
async def test_a_disk_that_became_quick_again_is_synced_in_the_loop_again() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    syncer = Syncer(store, "durable")
    syncer.average_s = 2 * SLOW_SYNC_S
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=syncer), Told()
    node.start()
    for ref in range(100):
        node.submit(put("", b"a"), told, ref)
        await until(lambda ref=ref: ref in told.answers)  # type: ignore[misc]
    assert disk.sync_threads[0] == "penstock-sync"
    assert disk.sync_threads[-1] != "penstock-sync"
    await node.stop()


@on_loop
async def test_interval_answers_at_once_and_syncs_soon_after_once_for_many() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, "interval", interval_ms=20)), Told()
    node.start()
    for ref in range(10):
        node.submit(put("", b"a"), told, ref)
        await turns()
    assert len(told.answers) == 10
    assert disk.sync_threads == []
    await until(lambda: disk.sync_threads)
    assert disk.sync_threads == ["penstock-sync"]
    await node.stop()


@on_loop
async def test_a_sync_that_fails_later_stops_the_node_too() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    disk.fails_at = "log.sync"
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, "interval", interval_ms=1)), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    assert "raft.log" in str(await node.failed)


@on_loop
async def test_none_never_syncs_by_itself() -> None:
    disk = WatchedDisk()
    store = stores.open(disk)
    node, told = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, "none")), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    await asyncio.sleep(0.01)
    assert told.answers == {1: PutAnswer(1, 1)}
    assert disk.sync_threads == []
    await node.stop()
