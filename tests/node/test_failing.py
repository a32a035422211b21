"""Errors on the commit path: one of a connection ends that connection, one of the engine or the disk ends the node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.consensus.lone import LoneVoter
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import machine
from penstock.engine.answers import PutAnswer
from penstock.engine.entries import Command
from penstock.node import node as node_module
from penstock.node.errors import EntryFailed, NodeFailed
from penstock.node.node import Node
from penstock.node.syncing import Syncer
from tests.node.support import HeldDisk, Told, WatchedDisk, command, make_node, on_loop, put, stores, turns, until


class Clumsy(Told):
    """A sink whose code has bugs."""

    def __init__(self, *fails_in: str) -> None:
        super().__init__()
        self.fails_in = fails_in

    def answered(self, ref: int, command: Command, answer: Any) -> None:
        super().answered(ref, command, answer)
        if "answered" in self.fails_in:
            raise ZeroDivisionError("in answered")

    def flush(self) -> None:
        if "flush" in self.fails_in:
            raise ZeroDivisionError("in flush")


async def started() -> Node:
    node = make_node(LoneVoter(0, 0, -1))
    node.start()
    await turns()
    return node


def break_handler(monkeypatch: pytest.MonkeyPatch, op: int) -> None:
    """A handler of the engine that changes something and then fails, from now on."""
    handler = machine.HANDLERS[op]

    def broken(st: Any, args: Any) -> Any:
        handler(st, args)
        raise KeyError("a bug in a handler")

    monkeypatch.setitem(machine.HANDLERS, op, broken)


@pytest.mark.parametrize("where", ["answered", "flush", "read"])
def test_an_error_in_one_connection_ends_that_one_and_the_others_are_answered(where: str) -> None:
    @on_loop
    async def run() -> None:
        node = await started()
        clumsy, told = Clumsy(where), Told()
        node.submit(put("", b"a"), told, 1)
        node.submit(put("", b"b"), clumsy, 1)
        node.submit(put("", b"c"), told, 2)
        if where == "read":
            node.read(lambda: 1 // 0, clumsy)  # type: ignore[arg-type,return-value]
        if where == "flush":
            node.dirty(clumsy)
        seen: list[int] = []
        node.read(lambda: seen.append(node.engine.state.by_name[""].counts[0]), told)
        await turns()
        assert told.answers == {1: PutAnswer(1, 1), 2: PutAnswer(3, 1)}
        assert seen == [3]
        assert [type(problem) for problem in clumsy.problems] == [ZeroDivisionError]
        assert told.problems == []
        assert not node.failed.done()
        await node.stop()

    run()


def test_an_observer_that_fails_does_not_keep_the_others_from_their_work(caplog: pytest.LogCaptureFixture) -> None:
    @on_loop
    async def run() -> None:
        node = await started()
        told, seen = Told(), []
        node.on_woken += [lambda _: 1 // 0, seen.append]  # type: ignore[list-item,arg-type,return-value]
        node.submit(command(c.Take("", 1, wait_ms=60_000)), told, 1)
        node.submit(put("", b"a"), told, 2)
        await turns()
        assert set(told.answers) == {1, 2}
        assert seen
        assert not node.failed.done()
        await node.stop()

    run()
    assert "failed to handle what was applied" in caplog.text


def test_an_error_in_the_engine_ends_the_node_and_names_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_loop
    async def run() -> None:
        node = await started()
        told = Told()
        node.submit(put("", b"before"), told, 1)
        await turns()
        index = node.engine.state.index
        break_handler(monkeypatch, c.PURGE)
        node.submit(put("", b"with it"), told, 2)
        node.submit(command(c.Purge("")), told, 3)
        node.read(lambda: told.answers.update({9: "the state was looked at"}), told)
        await turns()
        failure = node.failed.result()
        assert isinstance(failure, NodeFailed)
        assert isinstance(failure.cause, EntryFailed)
        assert f"entry {index + 1} (Put, Purge) cannot be applied: unexpected KeyError: 'a bug in a" in str(failure)
        assert told.answers[1] == PutAnswer(1, 1)
        assert [told.answers[ref].code for ref in (2, 3)] == [e.OUTCOME_UNKNOWN] * 2
        assert 9 not in told.answers, "a state that is half changed is not shown"
        node.submit(put("", b"after"), told, 4)
        assert told.answers[4].code == e.STOPPING
        node.read(lambda: told.answers.update({10: "the state was looked at"}), told)
        node.snapshots.begin()
        assert node.snapshots.done.is_set(), "a state that is half changed is not saved"
        await node.stop()
        assert 10 not in told.answers
        assert node.store.snapshot_index == -1

    run()


def test_entries_before_the_one_that_fails_are_answered_and_those_behind_it_are_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "ENTRY_BYTES_MAX", 1)  # each command is an entry

    @on_loop
    async def run() -> None:
        node = await started()
        break_handler(monkeypatch, c.PURGE)
        told = Told()
        for ref, args in enumerate((put("", b"1"), command(c.Purge("")), put("", b"2"))):
            node.submit(args, told, ref)
        await turns()
        assert node.failed.done()
        assert told.answers[0] == PutAnswer(1, 1)
        assert [told.answers[ref].code for ref in (1, 2)] == [e.OUTCOME_UNKNOWN] * 2
        await node.stop()

    run()


@pytest.mark.parametrize("site", ["log.write", "log.sync", "metadata.write"])
def test_a_stop_ends_though_the_disk_fails_during_it(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "STOP_S_MAX", 1000.0)  # longer than a test may take: it must not be waited for

    @on_loop
    async def run() -> None:
        disk = HeldDisk()
        store = stores.open(disk)
        node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
        node.start()
        await until(lambda: not node.is_busy)
        disk.holds = True
        told = Told()
        node.submit(put("", b"a"), told, 1)
        await turns()
        node.submit(put("", b"b"), told, 2)  # waits for the sync of the first
        disk.fails_at = site
        stopping = node.stop()
        disk.go.release(2)
        await stopping
        assert set(told.answers) == {1, 2}
        assert node.failed.done() == (site != "metadata.write"), "nothing is written there by a stop"

    run()


def test_a_stop_refuses_commands_at_once_and_finishes_those_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "STOP_S_MAX", 1000.0)

    @on_loop
    async def run() -> None:
        disk = HeldDisk()
        store = stores.open(disk)
        node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
        node.start()
        await until(lambda: not node.is_busy)
        disk.holds = True
        told = Told()
        node.submit(command(c.Take("", 1, wait_ms=60_000)), told, 0)
        node.submit(put("", b"a"), told, 1)
        await turns()
        node.submit(put("", b"b"), told, 2)
        before = len(disk.sync_threads)

        async def go_on_sending() -> None:
            for ref in range(10, 60):
                node.submit(put("", b"late"), told, ref)
                node.submit(command(c.Take("", 1, wait_ms=60_000)), told, ref + 100)
                await turns()
            disk.holds = False
            disk.go.release(2)

        await asyncio.gather(node.stop(), go_on_sending())
        assert isinstance(told.answers[1], PutAnswer)
        assert isinstance(told.answers[2], PutAnswer)
        late = [told.answers[ref] for ref in (*range(10, 60), *range(110, 160))]
        assert {answer.code for answer in late} == {e.STOPPING}
        assert len(disk.sync_threads) - before <= 2
        assert not node.failed.done()

    run()


def test_a_stop_ends_though_the_disk_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_module, "STOP_S_MAX", 0.05)
    disk = HeldDisk()

    @on_loop
    async def run() -> None:
        store = stores.open(disk)
        node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
        node.start()
        await until(lambda: not node.is_busy)
        disk.holds = True
        told = Told()
        node.submit(put("", b"a"), told, 1)
        await turns()
        node.submit(put("", b"b"), told, 2)
        await node.stop()
        assert told.answers[1].code == e.OUTCOME_UNKNOWN
        assert told.answers[2].code == e.STOPPING
        assert "did not finish a sync" in str(node.failed.result())
        disk.holds = False
        disk.go.release(10)
        await until(lambda: store.durable_index == store.last_index)

    run()
    assert "2 commands were not done within" in caplog.text


def test_a_snapshot_that_cannot_be_begun_ends_the_node_and_not_the_stop() -> None:
    @on_loop
    async def run() -> None:
        disk = WatchedDisk()
        node = make_node(LoneVoter(0, 0, -1), stores.open(disk))
        node.start()
        await turns()
        disk.fails_at = "snapshot.create"
        node.snapshots.begin()
        assert "snapshot.create failed" in str(await node.failed)
        await node.stop()
        assert node.snapshots.done.is_set()

    run()


def test_a_segment_that_was_removed_by_hand_stops_neither_snapshots_nor_the_stop() -> None:
    @on_loop
    async def run() -> None:
        store = stores.open(segment_bytes=16 * 1024, retention_bytes=1)
        node, told = make_node(LoneVoter(0, 0, -1), store), Told()
        node.start()
        for ref in range(100):
            node.submit(put("", bytes(1000)), told, ref)
            await until(lambda ref=ref: ref in told.answers)  # type: ignore[misc]
        segments = sorted((store.data_dir / "consensus" / "archive").glob("*.log"))
        assert len(segments) > 3
        segments[0].unlink()
        segments[2].unlink()
        for _ in range(2):
            node.snapshots.begin()
            await node.snapshots.done.wait()
            assert store.snapshot_index == node.engine.state.index
            node.submit(put("", b"a"), told, len(told.answers))
            await until(lambda: not node.is_busy)
        await node.stop()
        assert not node.failed.done()

    run()
