"""The commit path: no answer before commit, and the truth about what was in flight when leadership went."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.consensus.lone import LoneVoter
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Done, PutAnswer, Taken
from penstock.engine.entries import Entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.state import State
from penstock.node.syncing import Syncer
from tests.node.support import (
    DirectedConsensus,
    HeldDisk,
    Told,
    command,
    make_node,
    on_loop,
    put,
    stores,
    turns,
    until,
)


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
    node.read(lambda: seen.append(node.engine.state.by_name[""].counts[0]), told)
    await turns()
    node.read(lambda: seen.append(node.engine.state.by_name[""].counts[0]), told)
    assert seen == []
    consensus.commit(0)
    node.step()
    assert seen == [2, 2]


@on_loop
async def test_commands_that_arrive_while_a_sync_runs_form_the_next_batch() -> None:
    disk = HeldDisk()
    store = stores.open(disk)
    node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
    told = Told()
    disk.holds = True
    node.start()
    node.submit(put("", b"a"), told, 0)
    await turns()
    for ref in range(1, 51):
        node.submit(put("", b"b"), told, ref)
        await turns()
    assert told.answers == {}
    disk.go.release()
    await until(lambda: 0 in told.answers)
    assert 1 not in told.answers, "the second batch waits for its own sync"
    disk.go.release()
    await until(lambda: len(told.answers) == 51)
    assert len(disk.sync_threads) == 2
    disk.holds = False
    await node.stop()


@on_loop
async def test_a_failed_sync_stops_the_node_and_confirms_nothing() -> None:
    disk = HeldDisk()
    store = stores.open(disk)
    disk.holds, disk.fails_at = True, "log.sync"
    node = make_node(LoneVoter(0, 0, -1), store, syncer=Syncer(store, thread="always"))
    told = Told()
    node.start()
    node.submit(put("", b"a"), told, 1)
    await turns()
    node.submit(put("", b"b"), told, 2)
    disk.go.release()
    failure = await node.failed
    disk.holds = False
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


@on_loop
async def test_puts_that_are_not_applied_yet_count_against_the_limit() -> None:
    """All arrive in one turn of the loop, so that none is applied when the last one is judged."""
    from penstock.node.limits import Limits

    limits = Limits(1_000_000)
    node, told = make_node(LoneVoter(0, 0, -1), limits=limits), Told()
    node.start()
    for ref in range(64):
        node.submit(put("", b"x" * 100_000), told, ref)
    await turns()
    accepted = [ref for ref in range(64) if isinstance(told.answers[ref], PutAnswer)]
    assert accepted == list(range(9))
    assert node.engine.state.memory_bytes() < limits.memory_bytes_max
    assert limits.promised_bytes == 0
    node.submit(command(c.Take("", 1, final=True)), told, 100)
    await turns()
    node.submit(put("", b"x" * 100_000), told, 101)
    node.submit(put("", b"x" * 100_000), told, 102)
    await turns()
    assert isinstance(told.answers[101], PutAnswer)
    assert told.answers[102].code == e.MEMORY_FULL
    assert limits.promised_bytes == 0
    await node.stop()


@on_loop
async def test_the_state_is_added_up_for_each_entry_only_near_the_limit() -> None:
    from penstock.node.limits import LOOK_EVERY_ENTRIES, ROOM_BYTES, Limits

    class Counted(Limits):
        looks = 0

        def _look(self, st: State) -> int:
            self.looks += 1
            return super()._look(st)

    looks = []
    for limit in (2 * ROOM_BYTES, ROOM_BYTES // 2):
        limits = Counted(limit)
        node, told = make_node(LoneVoter(0, 0, -1), limits=limits), Told()
        node.start()
        for ref in range(2 * LOOK_EVERY_ENTRIES):
            node.submit(put("", b"x"), told, ref)
            await turns(2)
        looks.append(limits.looks)
        await node.stop()
    assert looks[0] <= 4
    assert looks[1] >= 2 * LOOK_EVERY_ENTRIES - 1


@on_loop
async def test_what_writers_left_staged_refuses_staging_and_no_put() -> None:
    """Also where more is staged than the limit allows, as an earlier version let them."""
    from penstock.node.limits import Limits

    limits = Limits(1_000_000)
    node, told = make_node(LoneVoter(0, 0, -1), limits=limits), Told()
    node.start()
    for ref in range(9):
        node.submit(command(c.Stage("killed", 1, ref, 0, 0, [("", [c.Item(0, b"x" * 100_000)])])), told, ref)
    await turns()
    assert all(isinstance(told.answers[ref], Done) for ref in range(9))
    limits.staged_bytes_max = 250_000
    node.submit(command(c.Stage("next", 1, 0, 0, 0, [("", [c.Item(0, b"x")])])), told, 100)
    node.submit(put("", b"x" * 100_000), told, 101)
    await turns()
    assert (told.answers[100].code, told.answers[100].figures) == (e.STAGING_FULL, (250_000,))
    assert isinstance(told.answers[101], PutAnswer)
    node.submit(command(c.Abort("killed", 1)), told, 102)
    await turns(20)
    node.submit(command(c.Stage("next", 1, 0, 0, 0, [("", [c.Item(0, b"x")])])), told, 103)
    await turns()
    assert isinstance(told.answers[103], Done)
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
