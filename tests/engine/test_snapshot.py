"""Snapshots: what is restored goes on as if nothing had happened; what changes meanwhile is not in it; junk is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import Engine
from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine.entries import decode_entry
from penstock.engine.producers import FORGET_AFTER_US
from penstock.engine.snapshot import BODY, SnapshotError, begin, restore
from tests.engine.busy import BusyMoment
from tests.engine.comparing import EngineMachine
from tests.engine.driving import BUCKET_US, Drive, expect, handles, item


def replay(drive: Drive, upto: int) -> Engine:
    """An engine that applied the log up to and without this index, and was never looked at."""
    engine = Engine()
    for index, (term, data) in enumerate(drive.log[:upto]):
        engine.apply(index, term, decode_entry(data))
    return engine


def many_records(count: int = 5000) -> Drive:
    """A queue of several chunks, in all states."""
    drive = Drive()
    drive.create("dead")
    drive.create("jobs", deliveries_max=2, dead_letter="dead", dedup_window_ms=1000)
    random = Random(count)
    drive.put_keys("jobs", (random.randint(0, 50) for _ in range(count)))
    drive.put("jobs", 1, b"rich", headers={"a": "b"}, dedup_key="k", delay_ms=500, expires_ms=5000, delay_to_tail=True)
    drive.take("jobs", 700, lease_ms=100)
    drive.take("jobs", 700, drive.owner(1), lease_ms=0)
    drive.bury("jobs", *range(100, 200))
    return drive


# --- under change -----------------------------------------------------------------------------------------------------


def disturb(drive: Drive, random: Random) -> None:
    """Change whatever can be changed."""
    taken = drive.take("jobs", random.randint(1, 500), lease_ms=random.choice((0, 5, 60_000)))
    drive.give_back("jobs", handles(taken)[:50])
    drive.ack("jobs", handles(taken)[50:])
    drive.put("jobs", random.randint(0, 50), b"new", dedup_key=str(random.random()))
    drive.do(c.Delete("jobs", [random.randint(1, 5000) for _ in range(20)]))
    drive.do(c.Kick("jobs", [], random.randint(0, 5)))
    drive.do(c.Edit("jobs", random.randint(1, 5000), 7))
    drive.do(c.Put("jobs", [item(3)]), producer=random.randint(1, 3), request=random.randint(1, 5))
    drive.do(c.Stage("q", random.randint(1, 9), 0, 0, 0, [("jobs", [item(1)])]))
    drive.do(c.Bind("b", str(random.random()), "", "jobs"))
    drive.do(c.Redrive("dead", "jobs", rate_per_s=10))
    drive.do(c.ChangeQueue("jobs", c.QueueChanges(lease_ms=random.randint(1, 9))))
    if random.random() < 0.3:
        drive.do(c.Purge("jobs"))
    if random.random() < 0.2:
        drive.do(c.DeleteQueue("dead"))
        drive.create("dead")
    drive.wait(random.choice((0, 10, 600)))
    drive.engine.sweep()


@pytest.mark.parametrize("seed", range(6))
def test_blocks_show_the_state_at_which_they_began(seed: int) -> None:
    """Commands between one block and the next change nothing in it: the bytes are those of a snapshot taken at once."""
    drive, random = many_records(), Random(seed)
    for _ in range(seed):
        disturb(drive, random)
    at_once = list(begin(replay(drive, len(drive.log))))
    blocks = []
    for block in begin(drive.engine):
        blocks.append(block)
        disturb(drive, random)
    assert blocks == at_once
    assert len(blocks) > 8


def test_the_engine_is_none_the_worse_for_a_snapshot_under_change() -> None:
    drive, random = many_records(), Random(9)
    for _ in begin(drive.engine):
        disturb(drive, random)
    assert drive.snapshot() == list(begin(replay(drive, len(drive.log))))


def test_a_snapshot_may_be_given_up() -> None:
    drive = many_records()
    blocks = begin(drive.engine)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    begin(drive.engine)  # never run at all
    disturb(drive, Random(1))
    assert drive.snapshot() == list(begin(replay(drive, len(drive.log))))


# --- restored ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_restored_is_the_same_snapshot_again() -> None:
    drive = many_records()
    drive.do(
        c.Stage("q", 1, 0, 0, 0, [("jobs", [item(1, b"staged"), item(2, b"rich", headers={"a": "b"}, delay_ms=5)])])
    )
    drive.do(c.Put("jobs", [item(3)]), producer=4, request=1)
    drive.do(c.Bind("b", "spec", "", "jobs"))
    drive.do(c.Redrive("dead", "jobs", rate_per_s=1))
    blocks = drive.snapshot()
    assert list(begin(restore(blocks))) == blocks


def goes_on_equally(drive: Drive, *steps: Callable[[Drive], object]) -> None:
    """Apply steps to a restored engine; the snapshot must be that of one which never stopped."""
    drive.restart()
    for step in steps:
        step(drive)
    assert drive.snapshot() == list(begin(replay(drive, len(drive.log))))


def test_blocks_of_deduplication_keys_do_not_depend_on_where_counting_began() -> None:
    """The head of the keys is forgotten, the rest saved; who restored them must go on writing the same blocks."""
    drive = Drive()
    drive.create("jobs", dedup_window_ms=1000)
    for number in range(900):
        drive.put("jobs", dedup_key=str(number))
    drive.wait(1000)
    drive.do(c.Put("jobs", [item(dedup_key=f"later {number}") for number in range(200)]))
    goes_on_equally(drive, lambda d: d.do(c.Put("jobs", [item(dedup_key=f"last {number}") for number in range(3000)])))


def test_a_producer_is_forgotten_at_the_same_entry_by_who_restarted_and_who_did_not() -> None:
    """Though it was heard twice within what may be one bucket of timers."""
    for offset_us in range(0, BUCKET_US, 512):
        drive = Drive()
        drive.create("jobs")
        drive.now_us += offset_us
        drive.do(c.Put("jobs", [item()]), producer=1, request=1)
        drive.now_us += BUCKET_US // 2
        drive.do(c.Put("jobs", [item()]), producer=1, request=2)
        goes_on_equally(drive, lambda d: let_pass(d, FORGET_AFTER_US), ask_again)


def let_pass(drive: Drive, us: int) -> None:
    drive.now_us += us
    drive.tick()


def ask_again(drive: Drive) -> None:
    drive.do(c.Put("jobs", [item()]), producer=1, request=2)


def test_leases_bound_by_a_connection_of_an_earlier_term_are_released_by_both() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put_keys("jobs", range(4))
    drive.term += 1  # its first entry is still to come
    drive.take("jobs", 2, 1 << 32 | 7, lease_ms=0)
    goes_on_equally(drive, Drive.tick, Drive.tick)
    assert drive.view("jobs").leased == 0


def test_more_timers_than_one_entry_may_fire_are_fired_alike() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.do(c.Put("jobs", [item(delay_ms=n % 50 + 1, expires_ms=n % 70 + 1) for n in range(2500)]))
    drive.take("jobs", 300, lease_ms=20)
    drive.now_us += 1_000_000
    drive.tick()
    goes_on_equally(drive, Drive.tick, Drive.tick, Drive.tick, Drive.tick, Drive.tick)
    assert drive.records("jobs") == []


@pytest.mark.parametrize("seed", range(12))
def test_a_busy_history_cut_anywhere_goes_on_equally(seed: int) -> None:
    """The machine's own comparison with its replica, with a restart before each busy moment."""
    machine = EngineMachine()
    for name in ("jobs", "small", "dead", "other"):
        machine.ask(c.CreateQueue(name, c.QueueSettings(deliveries_max=seed % 4, dead_letter=None)))
    for moment in range(12):
        BusyMoment(machine, seed * 1000 + moment).run()
        machine.something_rare("restart", 0)
    machine.teardown()


def test_the_index_goes_on_after_the_snapshot() -> None:
    drive = many_records()
    engine = restore(drive.snapshot())
    assert (engine.state.index, engine.state.term) == (len(drive.log) - 1, 1)
    with pytest.raises(AssertionError, match="in order"):
        engine.apply(len(drive.log) - 1, 1, None)


# --- junk -------------------------------------------------------------------------------------------------------------


def snapshot_with_everything() -> list[bytes]:
    drive = many_records(10)
    drive.do(c.Stage("q", 1, 0, 0, 0, [("jobs", [item(1, b"x", headers={"a": "b"})])]))
    drive.do(c.Put("jobs", [item(3)]), producer=4, request=1)
    drive.do(c.Bind("b", "spec", "", "jobs"))
    drive.do(c.Redrive("jobs", "dead", rate_per_s=1))
    return drive.snapshot()


EVERYTHING = snapshot_with_everything()


@pytest.mark.parametrize(
    "blocks", [[], [b""], [b"\x00"], [b"\xc1" * 9], EVERYTHING[1:], [EVERYTHING[0], EVERYTHING[0]]]
)
def test_what_is_no_snapshot_is_told(blocks: list[bytes]) -> None:
    with pytest.raises(SnapshotError) as caught:
        restore(blocks)
    assert caught.value.code == "snapshot"


def test_another_version_is_told() -> None:
    head = c.encode((0, 99, 1, 1, 1))
    with pytest.raises(SnapshotError, match="version 99") as caught:
        restore([head])
    assert caught.value.block == 0


NOWHERE = 12345


@pytest.mark.parametrize("block", [(2, NOWHERE, []), (3, NOWHERE, [(1, "key", 1)])], ids=["records", "keys"])
def test_what_belongs_to_a_queue_that_is_not_there_is_told(block: tuple[object, ...]) -> None:
    with pytest.raises(SnapshotError) as caught:
        restore([EVERYTHING[0], c.encode(block)])
    assert caught.value.block == 1


@pytest.mark.parametrize("kind", [*range(1, 9), 9, 255])
def test_nonsense_is_told(kind: int) -> None:
    for junk in (c.encode((kind,)), c.encode((kind, "x", {}, -1)), b"\x92" + bytes([kind]), b"\xc1" + bytes([kind])):
        with pytest.raises(SnapshotError) as caught:
            restore([EVERYTHING[0], junk])
        assert caught.value.block == 1


@given(s.integers(0, len(EVERYTHING) - 1), s.data())
def test_a_damaged_block_is_restored_or_told_and_nothing_else(number: int, data: s.DataObject) -> None:
    """Checksums are the storage's business; here nothing but a ``SnapshotError`` may come out."""
    block = bytearray(EVERYTHING[number])
    for _ in range(data.draw(s.integers(1, 3))):
        position = data.draw(s.integers(0, len(block) - 1))
        block[position] = data.draw(s.integers(0, 255))
    cut = data.draw(s.none() | s.integers(0, len(block)))
    with suppress(SnapshotError):
        restore([*EVERYTHING[:number], bytes(block[:cut]), *EVERYTHING[number + 1 :]])


def test_a_restored_engine_answers_a_repeated_request_as_before() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.put_keys("jobs", range(5))
    asked = {"producer": 3, "request": 1}
    first = expect(a.Taken, drive.do(c.Take("jobs", 2), drive.owner(1), **asked))
    drive.restart()
    assert drive.do(c.Take("jobs", 2), drive.owner(1), **asked) == first


# --- shared bodies ----------------------------------------------------------------------------------------------------


def broadcast_to(copies: int, body: bytes) -> Drive:
    """One topic message in this many queues, of which some copies moved on."""
    drive = Drive()
    drive.create("dead")
    for number in range(copies):
        drive.create(f"q{number}", deliveries_max=1, dead_letter="dead")
        drive.do(c.Bind(f"b{number}", "", "", f"q{number}"))
    assert drive.do(c.Broadcast(1, b"tag", body)) == a.Done(copies)
    drive.give_back("q0", handles(drive.take("q0")))
    drive.do(c.Move("q1", [1], "dead"))
    return drive


def test_the_body_of_a_topic_message_is_kept_once() -> None:
    """In memory, in the account, in a snapshot and after a restart; by dead letters and moved records, too."""
    body = b"x" * 100_000
    drive = broadcast_to(50, body)
    for _ in range(2):
        st = drive.engine.state
        records = [record for queue in st.by_uid.values() for record in queue.scan(0)]
        assert len(records) == 50
        assert len({id(record.payload) for record in records}) == 1
        assert len({id(record.extras.headers) for record in records if record.extras}) == 1
        assert {record.payload for record in records} == {body}
        assert st.memory_by_kind()["records"] < len(body)
        assert len(body) < st.memory_by_kind()["shared bodies"] < len(body) + 1000
        assert sum(map(len, drive.snapshot())) < 2 * len(body)
        goes_on_equally(drive)


def test_a_body_is_forgotten_with_the_last_record_that_shares_it() -> None:
    drive = broadcast_to(5, b"x" * 1000)
    drive.restart()
    for number in range(2, 5):
        drive.ack(f"q{number}", handles(drive.take(f"q{number}")))
    drive.take("dead", 1, final=True)
    assert drive.engine.state.memory_by_kind()["shared bodies"] > 1000
    drive.do(c.Purge("dead"))
    assert drive.engine.state.memory_by_kind()["shared bodies"] > 1000
    while drive.engine.sweep():
        pass
    assert drive.engine.state.memory_by_kind()["shared bodies"] == 0


def test_a_record_whose_shared_body_is_missing_is_told() -> None:
    blocks = broadcast_to(3, b"x" * 1000).snapshot()
    without = [block for block in blocks if block[1] != BODY]
    assert len(without) == len(blocks) - 1
    with pytest.raises(SnapshotError):
        restore(without)


def test_a_snapshot_of_version_1_is_read() -> None:
    blocks = many_records().snapshot()
    head = msgspec.msgpack.decode(blocks[0])
    assert head[1] == 2
    head[1] = 1
    assert list(begin(restore([c.encode(head), *blocks[1:]]))) == blocks
