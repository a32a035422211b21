"""Everything has a limit: how much one entry may do, how much is kept, and how the rest goes on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine import producers, reading, staging
from penstock.engine.errors import Refusal
from penstock.engine.firing import TIMERS_PER_ENTRY_MAX
from penstock.engine.jobs import ENDED_JOBS_KEPT, SLICE_RECORDS
from penstock.engine.records import BURIED, DELAYED, READY
from penstock.engine.snapshot import begin, restore
from penstock.engine.state import LEASES_PER_OWNER_MAX
from penstock.engine.views import Page
from tests.engine.driving import Asked, Drive, expect, handles, item
from tests.engine.recounting import recount
from tests.engine.steps import count_steps


def full_queue(count: int, rules: int = c.RULES, **options: Any) -> Drive:
    drive = Drive(rules)
    drive.create("jobs")
    drive.create("other")
    for first in range(0, count, c.RECORDS_PER_COMMAND_MAX):
        size = min(c.RECORDS_PER_COMMAND_MAX, count - first)
        drive.do(c.Put("jobs", [item(0, b"x", **options) for _ in range(size)]))
    return drive


# --- timers -----------------------------------------------------------------------------------------------------------


def test_an_entry_fires_at_most_a_thousand_timers_and_the_next_goes_on() -> None:
    drive = full_queue(2500, delay_ms=5)
    readies = []
    drive.now_us += 1_000_000
    for _ in range(4):
        drive.tick()
        readies.append(drive.view("jobs").ready)
    assert readies == [TIMERS_PER_ENTRY_MAX, 2 * TIMERS_PER_ENTRY_MAX, 2500, 2500]


def test_what_is_put_off_is_due_at_once() -> None:
    drive = full_queue(TIMERS_PER_ENTRY_MAX + 1, delay_ms=5)
    drive.wait(5)
    due_us = drive.engine.next_due_us()
    assert due_us is not None
    assert due_us <= drive.now_us
    drive.tick()
    assert drive.engine.next_due_us() is None


def test_the_timers_of_one_take_fire_together() -> None:
    drive = full_queue(1000)
    drive.take("jobs", 1000, lease_ms=5)
    drive.wait(5)
    assert drive.view("jobs").ready == 1000


def test_no_timer_is_left_when_all_has_ended() -> None:
    drive = full_queue(50, delay_ms=5, expires_ms=50)
    assert drive.engine.next_due_us() is not None
    drive.wait(5)
    taken = drive.take("jobs", 20, lease_ms=1000)
    drive.do(c.Extend("jobs", handles(taken)[:5], 2000))
    drive.ack("jobs", handles(taken))
    drive.bury("jobs", 30)
    drive.do(c.Delete("jobs", list(range(1, 51))))
    assert drive.engine.next_due_us() is None


@pytest.mark.parametrize("end", [c.Purge("jobs"), c.DeleteQueue("jobs")])
def test_no_timer_is_left_when_a_purge_or_a_deleted_queue_has_been_swept(end: object) -> None:
    drive = full_queue(3000, delay_ms=5, expires_ms=50)
    drive.do(end)
    while drive.engine.sweep():
        pass
    assert drive.engine.next_due_us() is None


def test_a_deleted_queue_leaves_no_timers_of_leases_and_keys() -> None:
    drive = full_queue(3)
    drive.put("jobs", dedup_key="k")
    drive.put("jobs", dedup_key="l")
    taken = drive.take("jobs", 3, lease_ms=c.DURATION_MS_MAX)
    drive.do(c.Extend("jobs", handles(taken)[:1], 5000))
    drive.do(c.DeleteQueue("jobs"))
    while drive.engine.sweep():
        pass
    assert drive.engine.next_due_us() is None


def test_timers_of_what_was_purged_do_nothing_before_it_is_swept() -> None:
    drive = full_queue(3000, delay_ms=5, expires_ms=50)
    drive.do(c.Purge("jobs"))
    drive.wait(100)
    kinds = [event.kind for event in drive.events()]
    assert j.AVAILABLE not in kinds
    assert j.EXPIRED not in kinds
    assert drive.view("jobs").expired == 0


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_connection_holds_a_bounded_number_of_bound_leases() -> None:
    drive = full_queue(LEASES_PER_OWNER_MAX + 100)
    worker, another = drive.owner(1), drive.owner(2)
    for _ in range(LEASES_PER_OWNER_MAX // 1000 - 1):
        drive.take("jobs", 1000, worker, lease_ms=0)
    first = drive.take("jobs", 999, worker, lease_ms=0)
    assert len(drive.take("jobs", 500, worker, lease_ms=0).records) == 1
    refusal = expect(Refusal, drive.do(c.Take("jobs", 1, 0), worker))
    assert (refusal.code, refusal.figures) == (e.TOO_MANY_LEASES, (LEASES_PER_OWNER_MAX,))
    assert len(drive.take("jobs", 5, worker, lease_ms=1000).records) == 5
    assert len(drive.take("jobs", 5, another, lease_ms=0).records) == 5
    drive.ack("jobs", handles(first)[:3])
    assert len(drive.take("jobs", 5, worker, lease_ms=0).records) == 3


def test_all_leases_of_a_lost_connection_come_back() -> None:
    drive = full_queue(LEASES_PER_OWNER_MAX)
    for _ in range(LEASES_PER_OWNER_MAX // 1000):
        drive.take("jobs", 1000, drive.owner(1), lease_ms=0)
    assert drive.do(c.OwnerGone(drive.owner(1))) == a.Done(LEASES_PER_OWNER_MAX)
    ready = [drive.view("jobs").ready]
    while drive.view("jobs").leased:
        if len(ready) == 3:
            drive.restart()
        drive.tick()
        ready.append(drive.view("jobs").ready)
    assert ready == list(range(1000, LEASES_PER_OWNER_MAX + 1, 1000))
    assert drive.engine.state.owners == drive.engine.state.owners_gone == {}
    reasons = {event.reason for event in drive.events() if event.name == "returned"}
    assert reasons == {j.REASON_DISCONNECT}
    assert drive.do(c.OwnerGone(drive.owner(1))) == a.Done(0)


def test_a_new_term_releases_the_leases_of_many_connections_entry_by_entry() -> None:
    drive = full_queue(3000)
    for connection in range(6):
        drive.take("jobs", 500, drive.owner(connection + 1), lease_ms=0)
    drive.new_term()
    counts = []
    for _ in range(4):
        drive.tick()
        counts.append(drive.view("jobs").ready)
    assert counts == [1000, 2000, 3000, 3000]


def test_connections_that_end_in_one_entry_share_what_it_may_release() -> None:
    drive = full_queue(12_000)
    for connection in range(12):
        drive.take("jobs", 1000, drive.owner(connection + 1), lease_ms=0)
    answers = drive.apply(*[Asked(c.OwnerGone(drive.owner(connection + 1))) for connection in range(12)])
    assert answers == [a.Done(1000)] * 12
    assert drive.view("jobs").ready == c.RECORDS_PER_COMMAND_MAX
    drive.tick()
    drive.tick()
    assert drive.view("jobs").ready == 12_000


def test_a_long_group_of_leases_ends_entry_by_entry() -> None:
    plain, restarted = full_queue(2500), full_queue(2500)
    for drive in (plain, restarted):
        held = [handle for _ in range(3) for handle in handles(drive.take("jobs", 1000, lease_ms=1000))]
        drive.do(c.Extend("jobs", held, 5000))
        drive.wait(6000)
    ready = [plain.view("jobs").ready]
    for _ in range(3):
        restarted.restart()
        assert restarted.snapshot() == plain.snapshot()
        plain.tick()
        restarted.tick()
        ready.append(plain.view("jobs").ready)
    assert ready == [1000, 2000, 2500, 2500]
    assert plain.rows == restarted.rows


def test_by_the_first_rules_a_group_of_leases_ends_in_one_entry() -> None:
    drive = full_queue(2500, rules=0)
    held = [handle for _ in range(3) for handle in handles(drive.take("jobs", 1000, 1 << 32 | 1, lease_ms=1000))]
    drive.do(c.Extend("jobs", held, 5000))
    drive.wait(6000)
    assert drive.view("jobs").ready == 2500
    for _ in range(3):
        drive.take("jobs", 1000, 1 << 32 | 1, lease_ms=0)
    assert drive.do(c.OwnerGone(1 << 32 | 1)) == a.Done(2500)
    assert drive.view("jobs").ready == 2500


def test_publications_in_one_entry_share_what_it_may_put() -> None:
    drive = Drive()
    for query in ("q", "r"):
        drive.do(c.Stage(query, 1, 0, 0, 0, [("", [item()] * 6000)]))
    drive.apply(Asked(c.Publish("q", 1, [(0, 0)])), Asked(c.Publish("r", 1, [(0, 0)])))
    assert drive.view("").ready == c.RECORDS_PER_COMMAND_MAX
    drive.tick()
    drive.tick()
    assert drive.view("").ready == 12_000


# --- batches ----------------------------------------------------------------------------------------------------------


def test_an_atomic_batch_has_at_most_ten_thousand_records() -> None:
    drive = Drive()
    half = [item()] * (c.RECORDS_PER_COMMAND_MAX // 2)
    assert isinstance(drive.do(c.PutMany([("", half), ("", half)])), a.PutManyAnswer)
    assert expect(Refusal, drive.do(c.PutMany([("", half), ("", half), ("", [item()])]))).code == e.BAD_COMMAND
    stage = c.Stage("q", 1, 0, 0, 0, [("", half), ("", half), ("", [item()])])
    assert expect(Refusal, drive.do(stage)).code == e.BAD_COMMAND


def test_longer_lists_do_not_even_decode() -> None:
    drive = Drive()
    too_many = c.RECORDS_PER_COMMAND_MAX + 1
    for args in (c.Put("", [item()] * too_many), c.Ack("", [(1, 1)] * too_many), c.Delete("", [1] * too_many)):
        assert expect(Refusal, drive.do(args)).code == e.BAD_COMMAND
    assert expect(Refusal, drive.do(c.Take("", c.RECORDS_PER_TAKE_MAX + 1))).code == e.BAD_COMMAND


# --- jobs -------------------------------------------------------------------------------------------------------------


def test_a_redrive_goes_on_in_slices() -> None:
    drive = full_queue(2500)
    drive.do(c.Redrive("jobs", "other"))
    moved = []
    for _ in range(4):
        drive.tick()
        moved.append(drive.view("other").ready)
    assert moved == [SLICE_RECORDS, 2 * SLICE_RECORDS, 2500, 2500]
    assert [job.done for job in reading.list_jobs(drive.engine.state)] == [True]


def test_a_redrive_whose_queue_is_deleted_ends() -> None:
    drive = full_queue(2500)
    drive.do(c.Redrive("jobs", "other"))
    drive.tick()
    drive.do(c.DeleteQueue("jobs"))
    drive.tick()
    (job,) = reading.list_jobs(drive.engine.state)
    assert (job.moved, job.done) == (SLICE_RECORDS * 2, True)


def test_a_large_batch_is_published_by_one_entry_and_moved_in_slices() -> None:
    drive = Drive()
    items = [item()] * c.RECORDS_PER_COMMAND_MAX
    drive.do(c.Stage("q", 1, 0, 0, 0, [("", items)]))
    drive.do(c.Stage("q", 1, 0, 0, 1, [("", items[:1500])]))
    assert drive.do(c.Publish("q", 1, [(0, 0)])) == a.Published(11_500, True)
    assert drive.view("").ready == c.RECORDS_PER_COMMAND_MAX
    assert drive.do(c.Publish("q", 1, [(0, 0)])) == a.Published(0, False)
    drive.restart()
    drive.tick()
    drive.tick()
    assert drive.view("").ready == 11_500
    assert drive.engine.state.jobs == {}


# --- queries ----------------------------------------------------------------------------------------------------------


def publish(drive: Drive, query: str, *, is_last: bool = False, batch: int = 0) -> Any:
    """Stage and publish a batch of one record; the first refusal, or what came of it."""
    staged = drive.do(c.Stage(query, batch, 0, 0, 0, [("", [item()])], is_last))
    if isinstance(staged, Refusal):
        return staged
    return drive.do(c.Publish(query, batch, [(0, 0)], 1, is_last))


@pytest.fixture
def three_queries(monkeypatch: pytest.MonkeyPatch) -> Drive:
    """As many as are remembered here; ``late`` had staged before the last of them was published."""
    monkeypatch.setattr(staging, "QUERIES_MAX", 3)
    monkeypatch.setattr(staging, "QUERIES_PUBLISHED_MAX", 6)
    drive = Drive()
    drive.do(c.Stage("late", 0, 0, 0, 0, [("", [item()])]))
    for number in range(3):
        assert publish(drive, f"q{number}") == a.Published(1, True)
    return drive


def test_beyond_the_queries_that_are_remembered_a_new_one_is_refused_when_it_stages(three_queries: Drive) -> None:
    refusal = expect(Refusal, publish(three_queries, "new"))
    assert (refusal.code, refusal.figures) == (e.STAGE_FULL, (3,))
    assert publish(three_queries, "q1", batch=1) == a.Published(1, True)
    assert publish(three_queries, "q1", batch=1) == a.Published(0, False)


def test_a_query_of_one_batch_takes_no_place(three_queries: Drive) -> None:
    for number in range(10):
        assert publish(three_queries, f"once{number}", is_last=True) == a.Published(1, True)
    assert sorted(three_queries.engine.state.published) == ["q0", "q1", "q2"]
    assert three_queries.view("").ready == 13


def test_a_query_that_ends_leaves_its_place_to_another(three_queries: Drive) -> None:
    assert publish(three_queries, "q1", batch=1, is_last=True) == a.Published(1, True)
    assert publish(three_queries, "new") == a.Published(1, True)


def test_what_was_staged_before_the_limit_was_reached_is_published(three_queries: Drive) -> None:
    """It was promised; and a log in which that happened is applied again with the same answers."""
    assert three_queries.do(c.Publish("late", 0, [(0, 0)])) == a.Published(1, True)
    assert three_queries.do(c.Publish("late", 0, [(0, 0)])) == a.Published(0, False)


def test_who_staged_a_last_batch_and_wants_to_be_remembered_finds_an_end(three_queries: Drive) -> None:
    """Nothing that it staged is lost by the refusal."""
    for number in range(4):
        three_queries.do(c.Stage(f"sly{number}", 0, 0, 0, 0, [("", [item()])], True))
    answers = [three_queries.do(c.Publish(f"sly{number}", 0, [(0, 0)])) for number in range(4)]
    assert answers[:3] == [a.Published(1, True)] * 3
    assert (answers[3].code, answers[3].figures) == (e.STAGE_FULL, (6,))
    assert expect(Refusal, three_queries.do(c.Publish("empty", 0, []))).code == e.STAGE_FULL
    three_queries.restart()
    assert three_queries.do(c.Publish("sly3", 0, [(0, 0)], 1, True)) == a.Published(1, True)
    assert len(three_queries.engine.state.published) == 6


def test_only_the_latest_ended_redrives_are_kept() -> None:
    drive = Drive()
    drive.create("jobs")
    for _ in range(ENDED_JOBS_KEPT + 5):
        drive.do(c.Redrive("jobs", ""))
        drive.tick()
    jobs = reading.list_jobs(drive.engine.state)
    assert len(jobs) == ENDED_JOBS_KEPT
    assert jobs[-1].id == (len(drive.log) - 2) << 16


# --- producers --------------------------------------------------------------------------------------------------------


def test_the_last_thousand_answers_of_a_producer_are_kept() -> None:
    drive = Drive()
    for request in range(producers.ANSWERS_KEPT + 1):
        drive.do(c.Put("", [item()]), producer=1, request=request)
    assert drive.do(c.Put("", [item()]), producer=1, request=1).first == 2
    assert drive.do(c.Put("", [item()]), producer=1, request=0).first == producers.ANSWERS_KEPT + 2


def test_beyond_the_maximum_the_producer_that_was_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 2)
    drive = Drive()
    for producer in (1, 2, 1, 3):  # 2 has been silent longest when 3 comes
        drive.do(c.Put("", [item()]), producer=producer, request=producer)
    assert drive.do(c.Put("", [item()]), producer=1, request=1).first == 1
    assert drive.do(c.Put("", [item()]), producer=2, request=2).first == 4


@pytest.mark.parametrize(("silence_us", "forgotten"), [(-1, False), (0, True)])
def test_a_producer_is_forgotten_after_a_day_to_the_microsecond(silence_us: int, forgotten: bool) -> None:
    drive = Drive()
    first = drive.do(c.Put("", [item()]), producer=1, request=1)
    drive.now_us += producers.FORGET_AFTER_US + silence_us
    assert (drive.do(c.Put("", [item()]), producer=1, request=1) != first) == forgotten


def test_silent_producers_are_forgotten_a_limited_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "FORGOTTEN_PER_ENTRY_MAX", 2)
    drive = Drive()
    for producer in range(1, 6):
        drive.do(c.Put("", [item()]), producer=producer, request=1)
    drive.now_us += producers.FORGET_AFTER_US
    left = []
    for _ in range(4):
        drive.tick()
        left.append(sorted(drive.engine.state.producers))
    assert left == [[3, 4, 5], [5], [], []]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_page_looks_at_a_bounded_number_of_records() -> None:
    drive = full_queue(reading.SCANNED_PER_PAGE_MAX + 500)
    drive.do(c.Edit("jobs", reading.SCANNED_PER_PAGE_MAX + 100, None, 60_000))
    first = expect(Page, reading.browse(drive.engine.state, "jobs", DELAYED, None, 0, 10))
    assert (first.records, first.cursor) == ([], reading.SCANNED_PER_PAGE_MAX + 1)
    second = expect(Page, reading.browse(drive.engine.state, "jobs", DELAYED, None, first.cursor, 10))
    assert [record.id for record in second.records] == [reading.SCANNED_PER_PAGE_MAX + 100]


def test_a_page_looks_into_a_bounded_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of a thousand slots may hold but one record."""
    monkeypatch.setattr(reading, "CHUNKS_PER_PAGE_MAX", 2)
    drive = full_queue(5000)
    drive.do(c.Delete("jobs", [number for number in range(1, 5001) if number % 1000]))
    pages: list[list[int]] = []
    cursor = 0
    while not pages or cursor:
        page = expect(Page, reading.browse(drive.engine.state, "jobs", None, None, cursor, 10))
        pages.append([record.id for record in page.records])
        cursor = page.cursor
    assert pages == [[1000, 2000], [3000, 4000], [5000]]


def test_buried_records_are_browsed_without_a_search() -> None:
    drive = full_queue(3000)
    drive.bury("jobs", 2999, 5, 1500)
    first = expect(Page, reading.browse(drive.engine.state, "jobs", BURIED, None, 0, 2))
    assert ([record.id for record in first.records], first.cursor) == ([5, 1500], 2999)
    second = expect(Page, reading.browse(drive.engine.state, "jobs", BURIED, None, first.cursor, 2))
    assert ([record.id for record in second.records], second.cursor) == ([2999], 0)
    drive.restart()
    assert drive.do(c.Kick("jobs", [], 2)) == a.Done(2)
    left = expect(Page, reading.browse(drive.engine.state, "jobs", BURIED, None, 0, 9))
    assert [record.id for record in left.records] == [2999]


def test_the_oldest_message_that_waits_is_known_whatever_comes_and_goes() -> None:
    random, drive = Random(2), Drive()
    drive.create("jobs")
    held: list[tuple[int, int]] = []
    for _ in range(400):
        drive.now_us += 1000
        what = random.random()
        if what < 0.4:
            drive.do(
                c.Put("jobs", [item(random.randrange(3), delay_ms=random.choice((0, 50)))] * random.randrange(150))
            )
        elif what < 0.7:
            held += handles(drive.take("jobs", 100, lease_ms=c.DURATION_MS_MAX))
        elif held:
            random.shuffle(held)
            some, held = held[:40], held[40:]
            drive.do(random.choice((c.Ack("jobs", some), c.Return("jobs", some), c.Bury("jobs", some))))
        if random.random() < 0.02:
            drive.do(c.Purge("jobs"))
        waiting = [record for record in drive.engine.state.by_name["jobs"].scan(0) if record.state in (READY, DELAYED)]
        assert drive.view("jobs").oldest_us == (waiting[0].published_us if waiting else 0)


def test_a_look_for_the_oldest_message_is_bounded_and_the_next_continues() -> None:
    drive = full_queue(0)
    for first in range(0, 70_000, 10_000):
        drive.now_us += 1000
        drive.do(c.Put("jobs", [item()] * 10_000))
        drive.do(c.Bury("jobs", [(first + number, 0) for number in range(1, 10_001)]))
    drive.now_us += 1000
    drive.put("jobs")
    before = count_steps(lambda: drive.view("jobs"))
    assert drive.view("jobs").oldest_us == drive.now_us
    assert count_steps(lambda: drive.view("jobs")) < before / 20
    table = drive.engine.state.by_name["jobs"].table
    for chunk in table.chunks.values():
        chunk.idle = False
    table._first_busy = 0
    assert 0 < drive.engine.state.by_name["jobs"].oldest_us() <= drive.now_us, "not exact, but never too young"


def test_queues_are_viewed_a_few_at_a_time() -> None:
    drive = Drive()
    for number in range(10):
        drive.create(f"q{number}")
    listing = reading.list_queues(drive.engine.state)
    views = [next(listing)]
    drive.do(c.DeleteQueue("q3"))
    views += listing
    assert views == list(reading.list_queues(drive.engine.state))
    assert [view.name for view in views] == ["", *(f"q{number}" for number in range(10) if number != 3)]


# --- purge ------------------------------------------------------------------------------------------------------------


def test_what_survives_a_purge_is_found_before_it_is_swept() -> None:
    drive = full_queue(5000)
    taken = drive.take("jobs", 10, lease_ms=1000)
    drive.bury("jobs", 3000)
    drive.do(c.Purge("jobs"))
    assert drive.engine.state.trash
    drive.put("jobs", 0, b"new")
    drive.do(c.Purge("jobs"))
    assert drive.ack("jobs", handles(taken)[:2]).count == 2
    assert drive.give_back("jobs", handles(taken)[2:4]).count == 2
    drive.engine.sweep()
    assert drive.do(c.Kick("jobs", [], 1)) == a.Done(1)
    assert drive.ready_ids("jobs") == [3, 4, 3000]
    drive.wait(1000)
    assert drive.ready_ids("jobs") == [*range(3, 11), 3000]
    while drive.engine.sweep():
        pass
    assert drive.ready_ids("jobs") == [*range(3, 11), 3000]
    assert drive.view("jobs").payload_bytes == 9


@pytest.mark.parametrize("swept", [0, 1, 3, 100])
def test_a_snapshot_is_the_same_however_far_a_purge_is_swept(swept: int) -> None:
    drives = []
    for sweeps in (0, swept):
        drive = full_queue(5000)
        taken = drive.take("jobs", 10, lease_ms=100_000)
        drive.bury("jobs", 3000, 1500, 4999)
        drive.do(c.Purge("jobs"))
        drive.put("jobs", 0, b"new")
        drive.do(c.Purge("jobs"))
        drive.put("jobs", 0, b"newer")
        drive.ack("jobs", handles(taken)[:2])
        for _ in range(sweeps):
            drive.engine.sweep()
        drives.append(drive)
    blocks = begin(drives[0].engine)  # encoded while the rest is swept and changed
    whole = drives[1].snapshot()
    drives[0].bury("jobs", 5002)
    drives[0].do(c.Kick("jobs", [], 3))
    while drives[0].engine.sweep():
        pass
    assert list(blocks) == whole
    restored = restore(whole)
    assert [record.id for record in restored.state.by_name["jobs"].scan(0)] == [*range(3, 11), 1500, 3000, 4999, 5002]


def test_what_a_purge_or_delete_sets_aside_is_freed_in_small_steps() -> None:
    drive = full_queue(5000)
    drive.put_keys("jobs", range(3000))
    drive.do(c.Put("jobs", [item(dedup_key=f"k{number}") for number in range(3000)]))
    for _ in range(3000):
        drive.take("jobs", 1, lease_ms=1000)
    drive.bury("jobs", *range(5000, 7000))
    queue = drive.engine.state.by_name["jobs"]
    assert count_steps(lambda: drive.do(c.Purge("jobs"))) < 1000
    assert count_steps(lambda: drive.do(c.DeleteQueue("jobs"))) < 1000
    most = 0
    while drive.engine.state.trash:
        most = max(most, count_steps(drive.engine.sweep))
    assert most < 150_000
    assert drive.engine.next_due_us() is None
    assert (queue.leases, queue.dedup.ids, bool(queue.buried), queue.order.keys) == ({}, {}, False, 0)


def test_the_leases_of_a_deleted_queue_no_longer_count_for_their_owners() -> None:
    drive = full_queue(3000)
    drive.do(c.Put("other", [item()] * 20))
    for connection in (1, 2):
        drive.take("jobs", 1000, drive.owner(connection), lease_ms=0)
    drive.take("other", 5, drive.owner(1), lease_ms=0)
    drive.do(c.DeleteQueue("jobs"))
    owners = drive.engine.state.owners
    assert {number: owner.leases for number, owner in owners.items()} == {drive.owner(1): 5}
    assert drive.do(c.OwnerGone(drive.owner(1))) == a.Done(5)


def test_a_queue_deleted_right_after_a_purge_is_swept_whole() -> None:
    drive = full_queue(5000)
    drive.take("jobs", 10, lease_ms=0, owner=drive.owner(1))
    drive.do(c.Purge("jobs"))
    drive.put("jobs")
    drive.do(c.DeleteQueue("jobs"))
    while drive.engine.sweep():
        pass
    assert drive.engine.state.owners == {}
    assert drive.engine.state.leaving == {}
    assert drive.engine.state.memory_by_kind() == recount(drive.engine.state)


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_long_chain_of_dead_letter_queues_is_followed_and_told_in_short() -> None:
    drive = Drive()
    for number in range(500):
        drive.create(f"q{number}", dead_letter=f"q{number + 1}")
    refusal = expect(Refusal, drive.do(c.CreateQueue("q500", c.QueueSettings(dead_letter="q0"))))
    assert refusal.code == e.DEAD_LETTER_CYCLE
    assert "'q500' -> 'q0'" in refusal.detail
    assert "'q499' -> 'q500'" in refusal.detail
    assert len(refusal.detail) < 300


# --- what is staged ---------------------------------------------------------------------------------------------------


def test_what_is_staged_is_listed_by_batch_also_after_a_restart() -> None:
    drive = Drive()
    for partition, attempt in ((0, 0), (0, 1), (1, 0)):
        drive.do(c.Stage("q", 1, partition, attempt, 0, [("", [item(), item()])]))
        drive.now_us += 1000
    drive.do(c.Stage("other", 7, 0, 0, 0, [("", [item(0, b"x" * 1000)])]))
    drive.restart()
    views = {(view.query, view.batch): view for view in reading.list_staged(drive.engine.state)}
    assert sorted(views) == [("other", 7), ("q", 1)]
    view = views["q", 1]
    assert (view.partitions, view.attempts, view.records) == (2, 3, 6)
    assert sum(view.size_bytes for view in views.values()) == drive.engine.state.memory_by_kind()["staged"]
    hour_us = 3_600_000_000
    assert view.ends_us - view.began_us == 24 * hour_us
    drive.do(c.Abort("q", 1))
    assert [view.query for view in reading.list_staged(drive.engine.state)] == ["other"]


def test_what_is_staged_is_kept_as_long_as_the_leader_says() -> None:
    drive = Drive()
    drive.do(c.NewTerm(1, rules=c.RULES, staged_ms=60_000))
    drive.restart()
    drive.do(c.Stage("q", 1, 0, 0, 0, [("", [item()])]))
    drive.wait(59_000)
    assert len(drive.engine.state.staged) == 1
    drive.wait(1_000)
    assert len(drive.engine.state.staged) == 0
