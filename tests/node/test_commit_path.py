"""The commit path: no answer before commit, and the truth about what was in flight when leadership went."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.consensus.lone import LoneVoter
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Done, PutAnswer, Taken
from penstock.engine.entries import Entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.node.syncing import Syncer
from penstock.storage.errors import StorageFailed
from penstock.storage.memory import MemoryStore
from tests.node.support import DirectedConsensus, Told, command, make_node, put


def on_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 20))

    run.__doc__ = test.__doc__
    run.__name__ = test.__name__
    return run


async def turns(count: int = 5) -> None:
    """Let the loop turn: everything that is scheduled with call_soon has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


@on_loop
async def test_nothing_is_answered_before_it_is_committed() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    assert consensus.persisted_index >= 0
    assert told.answers == {}
    consensus.commit(consensus.persisted_index)
    node.step()
    assert told.answers == {1: PutAnswer(1, 1)}


@on_loop
async def test_commands_of_one_turn_share_an_entry_and_those_of_the_next_do_not() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    for ref in range(10):
        node.submit(put("", b"x"), told, ref)
    await turns()
    assert len(consensus.log) == 1
    node.submit(put("", b"y"), told, 10)
    await turns()
    assert len(consensus.log) == 2
    consensus.commit(1)
    node.step()
    assert [told.answers[ref].first for ref in range(11)] == list(range(1, 12))


@on_loop
async def test_a_late_commit_of_two_batches_answers_both_in_order() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    node.submit(put("", b"b"), told, 2)
    await turns()
    consensus.commit(0)
    node.step()
    assert list(told.answers) == [1]
    consensus.commit(1)
    node.step()
    assert list(told.answers) == [1, 2]


@on_loop
async def test_losing_leadership_tells_unknown_for_what_was_proposed_and_not_leader_for_the_rest() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    node.submit(put("", b"in flight"), told, 1)
    await turns()
    node.submit(put("", b"never proposed"), told, 2)
    consensus.lose(to=2)
    node.submit(put("", b"too late"), told, 3)
    await turns()
    assert told.answers[1].code == e.OUTCOME_UNKNOWN
    assert told.answers[2] == Refusal(e.NOT_LEADER, told.answers[2].detail, (2,))
    assert told.answers[3].code == e.NOT_LEADER


@on_loop
async def test_an_entry_that_another_leader_replaced_is_never_answered_as_done() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    await turns()
    consensus.commit(0)
    node.step()
    node.submit(put("", b"mine"), told, 1)
    await turns()
    other = encode_entry(Entry(node.clock.now_us(), [put("", b"theirs"), put("", b"theirs too")]))
    consensus.lose()
    consensus.replace_from(1, other)
    node.step()
    consensus.commit(1)
    node.step()
    assert told.answers[1].code == e.OUTCOME_UNKNOWN
    assert [record.payload for record in node.engine.state.by_name[""].order.walk()] == [b"theirs", b"theirs too"]


@on_loop
async def test_an_entry_replaced_while_we_still_lead_is_told_as_unknown() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    await turns()
    node.submit(put("", b"mine"), told, 1)
    await turns()
    consensus.replace_from(1, encode_entry(Entry(0, [])))  # lost the lead and won it again, with another log
    node.step()
    consensus.commit(1)
    node.step()
    assert told.answers[1].code == e.OUTCOME_UNKNOWN


@on_loop
async def test_waiting_takes_are_told_when_leadership_goes() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    await turns()
    consensus.commit(0)
    node.step()
    node.submit(command(c.Take("", 1, wait_ms=60_000)), told, 1)
    await turns()
    assert told.answers == {}
    assert len(consensus.log) == 1, "a take on an empty queue proposes nothing"
    consensus.lose()
    node.step()
    assert told.answers[1].code == e.NOT_LEADER


@on_loop
async def test_reads_see_everything_submitted_before_them() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    seen: list[int] = []
    node.submit(put("", b"a", b"b"), told, 1)
    node.read(lambda: seen.append(node.engine.state.by_name[""].counts[0]))
    await turns()
    node.read(lambda: seen.append(node.engine.state.by_name[""].counts[0]))
    assert seen == []
    consensus.commit(0)
    node.step()
    assert seen == [2, 2]


class SlowStore(MemoryStore):
    """A store whose sync waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        import threading

        self.go = threading.Semaphore(0)
        self.syncs = 0
        self.fail = False

    def sync(self) -> None:
        self.go.acquire()
        self.syncs += 1
        if self.fail:
            raise StorageFailed("log.sync", "raft.log", 5)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@on_loop
async def test_commands_that_arrive_while_a_sync_runs_form_the_next_batch() -> None:
    store = SlowStore()
    node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
    told = Told()
    node.start()
    node.submit(put("", b"a"), told, 0)
    await turns()
    for ref in range(1, 51):
        node.submit(put("", b"b"), told, ref)
        await turns()
    assert told.answers == {}
    store.go.release()
    await until(lambda: 0 in told.answers)
    assert 1 not in told.answers, "the second batch waits for its own sync"
    store.go.release()
    await until(lambda: len(told.answers) == 51)
    assert store.syncs == 2
    await node.stop()


@on_loop
async def test_a_failed_sync_stops_the_node_and_confirms_nothing() -> None:
    store = SlowStore()
    store.fail = True
    node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
    told = Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    node.submit(put("", b"b"), told, 2)
    store.go.release()
    failure = await node.failed
    assert "raft.log" in str(failure)
    assert told.answers[1].code == e.OUTCOME_UNKNOWN
    assert told.answers[2].code == e.STOPPING
    node.submit(put("", b"c"), told, 3)
    assert told.answers[3].code == e.STOPPING


@on_loop
async def test_a_put_carries_the_take_that_waits_for_it_in_one_entry() -> None:
    consensus = DirectedConsensus()
    node, told = make_node(consensus), Told()
    node.start()
    await turns()
    consensus.commit(0)
    node.step()
    for ref in (1, 2):
        node.submit(command(c.Take("", 1, wait_ms=60_000)), told, ref)
    node.submit(put("", b"a"), told, 3)
    await turns()
    assert len(consensus.log) == 2
    consensus.commit(1)
    node.step()
    assert isinstance(told.answers[1], Taken)
    assert [record.payload for record in told.answers[1].records] == [b"a"]
    assert 2 not in told.answers, "first come, first served"


@on_loop
async def test_a_waiter_whose_put_was_refused_keeps_its_turn() -> None:
    node, told = make_node(LoneVoter(0, 0, -1)), Told()
    node.start()
    node.submit(command(c.CreateQueue("small", c.QueueSettings(payload_bytes_max=1))), told, 0)
    await turns()
    node.submit(command(c.Take("small", 1, wait_ms=60_000)), told, 1)
    node.submit(command(c.Take("small", 1, wait_ms=60_000)), told, 2)
    node.submit(put("small", b"too long"), told, 3)
    await turns()
    assert 1 not in told.answers
    node.submit(put("small", b"x"), told, 4)
    await turns()
    assert [record.payload for record in told.answers[1].records] == [b"x"]
    assert 2 not in told.answers
    await node.stop()
    assert told.answers[2].code == e.STOPPING


@on_loop
async def test_an_ack_and_take_that_finds_nothing_acks_at_once_and_waits_for_the_rest() -> None:
    node, told = make_node(LoneVoter(0, 0, -1)), Told()
    node.start()
    node.submit(put("", b"a"), told, 0)
    node.submit(command(c.Take("", 1)), told, 1)
    await turns()
    taken = told.answers[1]
    node.submit(command(c.AckTake("", [(1, taken.token)], 1, wait_ms=60_000)), told, 2)
    await turns()
    assert node.engine.state.by_name[""].counts == [0, 0, 0, 0]
    assert 2 not in told.answers
    node.submit(put("", b"b"), told, 3)
    await turns()
    answer = told.answers[2]
    assert isinstance(answer, AckTaken)
    assert answer.acked.count == 1
    assert [record.payload for record in answer.taken.records] == [b"b"]
    await node.stop()


@on_loop
async def test_a_waiting_take_gives_up_when_its_time_is_over() -> None:
    node, told = make_node(LoneVoter(0, 0, -1)), Told()
    node.start()
    await turns()
    node.submit(command(c.Take("", 1, wait_ms=20)), told, 1)
    await until(lambda: 1 in told.answers)
    assert told.answers[1].records == []
    await node.stop()


@on_loop
async def test_timers_fire_without_traffic_by_a_tick() -> None:
    node, told = make_node(LoneVoter(0, 0, -1)), Told()
    node.start()
    node.submit(command(c.Put("", [c.Item(0, b"later", c.Options(delay_ms=30))])), told, 0)
    node.submit(command(c.Take("", 1, wait_ms=10_000)), told, 1)
    await until(lambda: 1 in told.answers)
    assert [record.payload for record in told.answers[1].records] == [b"later"]
    await node.stop()


@on_loop
async def test_the_first_entry_of_a_term_releases_what_earlier_connections_held() -> None:
    consensus = LoneVoter(0, 0, -1)
    node, told = make_node(consensus), Told()
    node.start()
    owner = node.new_owner()
    node.submit(put("", b"a"), told, 0)
    node.submit(command(c.Take("", 1, lease_ms=0), owner), told, 1)
    await turns()
    assert node.engine.state.by_name[""].counts == [0, 0, 1, 0]
    node.start()
    await until(lambda: node.engine.state.by_name[""].counts == [1, 0, 0, 0])
    assert consensus.term == 2
    await node.stop()


@on_loop
async def test_a_connection_that_goes_releases_what_is_bound_to_it() -> None:
    node, told = make_node(LoneVoter(0, 0, -1)), Told()
    node.start()
    owner = node.new_owner()
    node.submit(put("", b"a"), told, 0)
    node.submit(command(c.Take("", 1, lease_ms=0), owner), told, 1)
    await turns()
    node.forget(told, owner)
    await turns()
    queue = node.engine.state.by_name[""]
    record = queue.get(1)
    assert queue.counts == [1, 0, 0, 0]
    assert record is not None
    assert record.tries is not None
    assert (record.tries.deliveries, record.tries.releases) == (1, 1)
    await node.stop()


@on_loop
async def test_memory_beyond_the_limit_refuses_puts_while_takes_and_acks_go_on() -> None:
    from penstock.node.limits import Limits

    node, told = make_node(LoneVoter(0, 0, -1), limits=Limits(20_000)), Told()
    node.start()
    refused = 0
    for ref in range(200):
        node.submit(put("", b"x" * 100), told, ref)
        await turns(2)
        refused += isinstance(told.answers[ref], Refusal) and told.answers[ref].code == e.MEMORY_FULL
    assert refused > 100
    node.submit(command(c.Take("", 1000, final=True)), told, 1000)
    await turns()
    assert told.answers[1000].records
    node.submit(put("", b"fits again"), told, 1001)
    await turns()
    assert isinstance(told.answers[1001], PutAnswer)
    await node.stop()


@pytest.mark.parametrize("args", [c.Tick(), c.DeleteQueue("none")])
def test_a_node_answers_every_kind_of_command(args: Any) -> None:
    async def run() -> None:
        node, told = make_node(LoneVoter(0, 0, -1)), Told()
        node.start()
        node.submit(command(args), told, 1)
        await turns()
        assert isinstance(told.answers[1], Done | Refusal)
        await node.stop()

    asyncio.run(run())
