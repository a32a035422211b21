"""Waiting takes: their order, their limits, and that a wait which ended leaves nothing behind."""

from __future__ import annotations

import tracemalloc

import pytest

from penstock.consensus.lone import LoneVoter
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import Taken
from penstock.node import takes as takes_module
from penstock.node import waiting as waiting_module
from penstock.node.requests import Request
from penstock.node.waiting import WAITING_BYTES, Waiters
from tests.node.support import Told, command, make_node, on_loop, put, turns, until

FOREVER_US = 10**15


def take(queue: str, until_us: int, sink: Told) -> Request:
    request = Request(command(c.Take(queue, 1, wait_ms=1000)), sink, 0)
    request.wait_until_us = until_us
    return request


def entries(waiters: Waiters) -> int:
    """All entries of all heaps, stale ones included."""
    return waiters._due.entries_count + sum(heap.entries_count for heap in waiters.queues.values())


def test_polls_that_expire_leave_nothing_though_an_older_one_waits() -> None:
    waiters, idle, told = Waiters(), Told(), Told()
    waiters.add(take("q", FOREVER_US, idle))
    for now_us in range(20_000):
        waiters.add(take("q", now_us, told))
        assert len(waiters.remove_overdue(now_us, 10)) == 1
        assert entries(waiters) <= 2 * 64
    assert waiters.count == 1
    assert waiters._by_sink.keys() == {idle}


def test_a_subscription_that_is_served_again_and_again_leaves_nothing_in_the_deadlines() -> None:
    waiters, idle, told = Waiters(), Told(), Told()
    waiters.add(take("other", 5, idle))
    for _ in range(20_000):
        waiters.add(take("q", FOREVER_US, told))
        assert waiters.pop("q") is not None
        assert entries(waiters) <= 2 * 64
    assert set(waiters.queues) == {"other"}


def test_connections_that_leave_take_their_waits_with_them() -> None:
    waiters = Waiters()
    sinks = [Told() for _ in range(10)]
    for number in range(1000):
        waiters.add(take(f"q{number % 7}", number, sinks[number % 10]))
    for sink in sinks:
        assert len(waiters.remove_sink(sink)) == 100
    assert (waiters.count, waiters.queues, waiters._by_sink) == (0, {}, {})
    assert entries(waiters) <= 64


def test_takes_come_in_turn_and_go_back_to_it() -> None:
    waiters, told = Waiters(), Told()
    requests = [take("q", FOREVER_US + number, told) for number in range(100)]
    for request in requests:
        waiters.add(request)
    woken = [waiters.pop("q") for _ in range(10)]
    assert woken == requests[:10]
    for request in reversed(woken):
        assert request is not None
        waiters.add(request)
    waiters.remove_overdue(FOREVER_US + 4, 1000)
    assert [waiters.pop("q") for _ in range(95)] == requests[5:]
    assert waiters.pop("q") is None


def test_the_count_of_memory_is_near_the_truth() -> None:
    told, number = Told(), 5_000
    waiters = Waiters()
    tracemalloc.start()
    for at in range(number):
        waiters.add(take("q", at, told))
    measured = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 < measured / waiters.memory_bytes < 1.2, f"{measured / number} bytes each, counted {WAITING_BYTES}"


def test_a_connection_and_the_node_have_a_limit_of_waiting_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "WAITING_PER_SINK_MAX", 3)
    monkeypatch.setattr(waiting_module, "WAITING_MAX", 5)

    @on_loop
    async def run() -> None:
        node = make_node(LoneVoter(0, 0, -1))
        node.start()
        await turns()
        one, other = Told(), Told()
        for sink in (one, other):
            for ref in range(4):
                node.submit(command(c.Take("", 1, wait_ms=60_000)), sink, ref)
        assert {ref: answer.code for ref, answer in one.answers.items()} == {3: e.TOO_MANY_IN_FLIGHT}
        assert {ref: answer.code for ref, answer in other.answers.items()} == dict.fromkeys(
            (2, 3), e.TOO_MANY_IN_FLIGHT
        )
        node.submit(put("", b"a"), one, 10)
        await turns()
        assert isinstance(one.answers[0], Taken)
        node.submit(command(c.Take("", 1, wait_ms=60_000)), one, 11)
        assert 11 not in one.answers, "there is room again"
        await node.stop()

    run()


def test_an_acknowledgement_is_never_refused_for_want_of_a_place_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "WAITING_MAX", 0)

    @on_loop
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        node.submit(put("", b"a"), told, 0)
        node.submit(command(c.Take("", 1)), told, 1)
        await turns()
        token = told.answers[1].token
        node.submit(command(c.AckTake("", [(1, token)], 1, wait_ms=60_000)), told, 2)
        await turns()
        assert told.answers[2].acked.count == 1
        assert told.answers[2].taken.records == []
        await node.stop()

    run()


def test_many_waits_that_expire_together_are_answered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takes_module, "OVERDUE_PER_TURN_MAX", 10)

    @on_loop
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        await turns()
        largest = 0
        for ref in range(100):
            node.submit(command(c.Take("", 1, wait_ms=1)), told, ref)
        give_up = node._takes.give_up_of

        def counted(requests: list[Request]) -> None:
            nonlocal largest
            largest = max(largest, len(requests))
            give_up(requests)

        monkeypatch.setattr(takes_module.Takes, "give_up_of", lambda _, requests: counted(requests))
        await until(lambda: len(told.answers) == 100)
        assert largest == 10
        await node.stop()

    run()


def test_many_takes_are_woken_in_slices_and_all_of_them_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takes_module, "WOKEN_PER_ENTRY_MAX", 10)

    @on_loop
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        node.submit(command(c.Pause("", True)), told, 0)
        node.submit(put("", *[b"%d" % number for number in range(95)]), told, 1)
        await turns()
        for ref in range(100, 200):
            node.submit(command(c.Take("", 1, wait_ms=60_000)), told, ref)
        node.submit(command(c.Pause("", False)), told, 2)
        await turns(1)
        sizes = []
        while len(told.answers) < 98:
            sizes.append(len(node._pending))
            await turns(1)
        assert max(sizes) <= 10
        served = [told.answers[ref].records[0].payload for ref in range(100, 195)]
        assert served == [b"%d" % number for number in range(95)], "in turn"
        await node.stop()

    run()
