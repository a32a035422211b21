"""No entry and no turn of the loop is long: entries are cut by cost, applied in turns, and reads go in slices."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Struct

from penstock.consensus.lone import LoneVoter
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import PutAnswer
from penstock.engine.bindings import Bindings
from penstock.engine.entries import decode_entry
from penstock.engine.views import BindingView
from penstock.node import latest as latest_module
from penstock.node import node as node_module
from penstock.node.costs import ENTRY_COST_MAX, SMALL_BODY_SHIFT, cost_of
from penstock.wire.native import messages as m
from tests.node.support import DirectedConsensus, Told, WatchedDisk, command, make_node, on_loop, put, stores, turns

BIG = 2_000


def test_commands_that_are_too_much_work_for_one_entry_are_parted_and_share_a_sync() -> None:
    @on_loop
    async def run() -> None:
        disk = WatchedDisk()
        node, told = make_node(LoneVoter(0, 0, -1), stores.open(disk)), Told()
        node.start()
        await turns()
        syncs, index = len(disk.sync_threads), node.engine.state.index
        for ref in range(20):
            node.submit(put("", *[b"x"] * BIG), told, ref)
        await turns(1)
        assert len(disk.sync_threads) == syncs + 1, "one write and one sync for all"
        while len(told.answers) < 20:
            await turns(1)
        applied = node.engine.state.index - index
        assert applied >= 20 * BIG / (ENTRY_COST_MAX + BIG), "no entry has more than its cost, but for the last command"
        assert [told.answers[ref].first for ref in range(20)] == [1 + ref * BIG for ref in range(20)], "in order"
        await node.stop()

    run()


@pytest.mark.parametrize(
    ("args", "at_least"),
    [
        (c.Take("", 1000), 250),
        (c.AckTake("", [(1, 1)] * 100, 1000), 350),
        (c.Kick("", [], 10_000), 10_000),
        (c.Put("", [c.Item(0, b"")] * 1000), 1000),
        (c.PutMany([("", [c.Item(0, b"")] * 500)] * 2), 1000),
        (c.Stage("q", 0, 0, 0, 0, [("", [c.Item(0, b"")] * 1000)]), 1000),
        (c.Ack("", [(1, 2**40)] * 1000), 1000),
        (c.Return("", [(1, 2**40)] * 1000), 1000),
        (c.Extend("", [(1, 2**40)] * 1000, 5), 1000),
        (c.Bury("", [(1, 2**40)] * 1000), 1000),
        (c.Delete("", [1] * 1000), 1000),
        (c.Move("", [1] * 1000, "x"), 1000),
        (c.Publish("q", 0, [(1, 1)] * 1000), 1000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Struct) else "",
)
def test_every_command_that_names_records_costs_by_their_number(args: Any, at_least: int) -> None:
    assert cost_of(command(args), Bindings()) >= at_least


def test_a_topic_message_costs_what_its_bindings_do() -> None:
    bindings = Bindings()
    for number in range(5):
        bindings[f"b{number}"] = BindingView(f"b{number}", "spec", "", "q", 0, False)
    assert cost_of(command(c.Broadcast(0, b"", b"", "spec")), bindings) == 6
    assert cost_of(command(c.Broadcast(0, b"", b"", "other")), bindings) == 1


def test_a_small_command_is_never_counted_for_much_less_than_it_names() -> None:
    """Records need at least 4 bytes in a body: the estimate by length is at most twice too low."""
    body = command(c.Put("", [c.Item(0, b"")] * 60)).body
    assert 2 * (1 + (len(body) >> SMALL_BODY_SHIFT)) >= 60


def test_committed_entries_are_applied_in_turns_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "TURN_S", 0.0)  # one entry in each turn

    @on_loop
    async def run() -> None:
        consensus = DirectedConsensus()
        node, told = make_node(consensus), Told()
        node.start()
        seen: list[tuple[int, int]] = []
        for ref in range(10):
            node.submit(put("", b"x"), told, ref)
            node.read(lambda ref=ref: seen.append((ref, node.engine.state.index)), told)  # type: ignore[misc]
            await turns()
        consensus.commit(9)
        node.step()
        assert node.engine.state.index == 0, "others have their turn now"
        others = 0
        while len(seen) < 10:
            await turns(1)
            others += 1
        assert others >= 9
        assert [told.answers[ref].first for ref in range(10)] == list(range(1, 11))
        assert all(index >= ref for ref, index in seen), "a read sees everything that was submitted before it"

    run()


def test_leadership_that_goes_between_two_turns_does_not_hide_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "TURN_S", 0.0)

    @on_loop
    async def run() -> None:
        consensus = DirectedConsensus()
        node, told = make_node(consensus), Told()
        node.start()
        for ref in range(5):
            node.submit(put("", b"x"), told, ref)
            await turns()
        consensus.commit(2)
        node.step()
        consensus.lose()
        node.step()
        await turns(10)
        assert [type(told.answers[ref]) for ref in range(3)] == [PutAnswer] * 3
        assert [told.answers[ref].code for ref in (3, 4)] == [e.OUTCOME_UNKNOWN] * 2

    run()


def test_reads_behind_one_entry_go_in_slices_and_a_stop_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "TURN_S", 0.0)

    @on_loop
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        await turns()
        seen: list[int] = []
        node.submit(put("", b"x"), told, 0)
        for number in range(50):
            node.read(lambda number=number: seen.append(number), told)  # type: ignore[misc]
        await turns(2)
        assert 0 < len(seen) < 50
        node.read(lambda: seen.append(50), told)
        await node.stop()
        assert seen == list(range(51)), "in the order in which they came"

    run()


def test_latest_wakes_only_those_whose_entry_is_reached_and_those_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_module, "WOKEN_PER_TURN_MAX", 10)

    @on_loop
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        await turns()
        feeding, last = node.feeding, node.engine.state.index
        near = [asyncio.ensure_future(feeding.latest(m.Latest(last, 60_000), number)) for number in range(95)]
        far = [asyncio.ensure_future(feeding.latest(m.Latest(last + 1000, 60_000), 1)) for _ in range(20)]
        await turns()
        assert feeding.latest_waits.count == 115
        node.submit(put("", b"x"), told, 0)
        counts = []
        while not all(each.done() for each in near):
            counts.append(sum(each.done() for each in near))
            await turns(1)
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) <= 10
        assert feeding.latest_waits.count == 20
        for each in far:
            each.cancel()
        await turns()
        assert feeding.latest_waits.count == 0
        assert feeding.latest_waits._by_owner == {}
        assert all(reach.result().applied_index == last + 1 for reach in near)  # type: ignore[union-attr]
        await node.stop()

    run()


def test_latest_gives_up_at_its_time_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_module, "WAITING_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(latest_module, "WAITING_MAX", 3)

    @on_loop
    async def run() -> None:
        node = make_node(LoneVoter(0, 0, -1))
        node.start()
        await turns()
        feeding, last = node.feeding, node.engine.state.index
        waiting = [asyncio.ensure_future(feeding.latest(m.Latest(last, 20), 1)) for _ in range(2)]
        await turns()
        refused = await feeding.latest(m.Latest(last, 20), 1)
        assert getattr(refused, "code", None) == e.TOO_MANY_IN_FLIGHT
        other = asyncio.ensure_future(feeding.latest(m.Latest(last, 5), 2))
        await turns(1)
        refused = await feeding.latest(m.Latest(last, 20), 3)
        assert getattr(refused, "code", None) == e.TOO_MANY_IN_FLIGHT, "all connections together have a limit, too"
        assert not isinstance(await feeding.latest(m.Latest(last, 0), 1), e.Refusal), "no wait, no limit"
        await asyncio.wait([*waiting, other])
        assert feeding.latest_waits.count == 0
        await node.stop()

    run()


def test_an_entry_is_decoded_as_it_was_proposed() -> None:
    @on_loop
    async def run() -> None:
        consensus = DirectedConsensus()
        node, told = make_node(consensus), Told()
        node.start()
        await turns()
        for ref in range(3):
            node.submit(put("", *[b"x"] * ENTRY_COST_MAX), told, ref)
        await turns()
        counts = [len(entry.commands) for each in consensus.log if (entry := decode_entry(each.data)) is not None]
        assert counts == [1, 1, 1, 1], "a command that costs as much as an entry may is alone in one"

    run()
