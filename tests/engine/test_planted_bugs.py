"""The comparison with the model is shown to bite: each of these bugs, planted into the engine, must be caught.

A bug is a function that changes the engine through ``monkeypatch``. The state machine of ``test_model`` then has to
fail within ``EXAMPLES_MAX`` examples. (It is not asked to find the shortest one.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.engine import commands as c
from penstock.engine import firing, machine, operating, putting, returning, taking
from penstock.engine.answers import Answer, Done, PutManyAnswer
from penstock.engine.dedup import DedupKeys
from penstock.engine.order import KeyOrder
from penstock.engine.producers import Producer
from penstock.engine.queue import Queue
from penstock.engine.records import BURIED, DELAYED, LEASED, READY, Record, Tries
from penstock.engine.state import State
from penstock.engine.timers import EXPIRY, TimerName
from tests.engine.comparing import EngineMachine

EXAMPLES_MAX = 500

Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, Plant] = {}


def bug(plant: Plant) -> Plant:
    """Add a bug to those that must be caught."""
    BUGS[plant.__name__] = plant
    return plant


def instead_of(patch: pytest.MonkeyPatch, op: int, handler: Callable[[State, Any, machine.Handler], Answer]) -> None:
    """Carry out an operation wrongly; the handler gets the right one too."""
    right = machine.HANDLERS[op]
    patch.setitem(machine.HANDLERS, op, lambda st, args: handler(st, args, right))


@bug
def a_nack_loses_the_place(patch: pytest.MonkeyPatch) -> None:
    right = returning.come_back

    def wrong(st: State, queue: Queue, record: Record, tries: Tries, reason: int, delay_ms: int, *place: Any) -> None:
        right(st, queue, record, tries, reason, delay_ms, queue.draw_place())

    patch.setattr(returning, "come_back", wrong)


@bug
def the_first_delivery_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taking, "FIRST_TRY", Tries(0))


@bug
def the_token_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def wrong(queue: Queue, record_id: int, token: int) -> Record | None:
        record = queue.get(record_id)
        return record if record is not None and record.lease is not None else None

    patch.setattr(returning, "held", wrong)


@bug
def the_size_limit_is_off_by_one(patch: pytest.MonkeyPatch) -> None:
    right = Queue.occupied
    patch.setattr(Queue, "occupied", lambda queue: right(queue) - 1)


@bug
def leased_records_do_not_count_against_the_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "occupied", lambda queue: queue.counts[READY] + queue.counts[DELAYED])


@bug
def leased_records_expire(patch: pytest.MonkeyPatch) -> None:
    right = firing._fire

    def wrong(st: State, name: TimerName, due_us: int) -> int:
        queue = st.by_uid.get(name[1]) if name[0] == EXPIRY else None
        record = queue.get(name[2]) if queue is not None else None
        if queue is not None and record is not None and record.state == LEASED:
            returning.expire(st, queue, record)
            return 1
        return right(st, name, due_us)

    patch.setattr(firing, "_fire", wrong)


@bug
def policies_are_asked_before_deduplication(patch: pytest.MonkeyPatch) -> None:
    right = putting.judge

    def wrong(st: State, queue: Queue, item: c.Item, *waiting: int) -> tuple[int, int]:
        verdict = right(st, queue, c.Item(item.key, item.payload), *waiting)
        return verdict if verdict[0] > 0 else right(st, queue, item, *waiting)

    patch.setattr(putting, "judge", wrong)


@bug
def a_dead_letter_keeps_its_counters(patch: pytest.MonkeyPatch) -> None:
    right = returning.transfer

    def wrong(st: State, source: Queue, record: Record, target: Queue, *more: Any) -> None:
        right(st, source, record, target, *more)
        copy = target.get(target.next_id - 1)
        assert copy is not None
        target.change(copy, msgspec.structs.replace(copy, tries=record.tries))

    patch.setattr(returning, "transfer", wrong)


@bug
def a_purge_takes_buried_records(patch: pytest.MonkeyPatch) -> None:
    def wrong(st: State, args: c.Purge, right: machine.Handler) -> Answer:
        answer = right(st, args)
        queue = st.by_name.get(args.queue)
        for record in list(queue.scan(0)) if queue is not None else []:
            if record.state == BURIED and queue is not None:
                st.end(queue, record)
        return answer

    instead_of(patch, c.PURGE, wrong)


@bug
def a_pause_is_ignored(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.PAUSE, lambda st, args, right: right(st, c.Pause(args.queue, False)))


@bug
def a_timed_out_lease_never_goes_to_the_tail(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.TAKE, lambda st, args, right: right(st, msgspec.structs.replace(args, to_tail=False)))


@bug
def a_nack_ignores_its_delay(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.RETURN, lambda st, args, right: right(st, msgspec.structs.replace(args, delay_ms=0)))


@bug
def unsent_records_count_as_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(returning, "UNSENT", 99)


@bug
def a_kicked_record_never_expires(patch: pytest.MonkeyPatch) -> None:
    right = operating._make_ready

    def wrong(st: State, queue: Queue, record: Record) -> None:
        right(st, queue, record)
        st.forget_timers(queue.uid, record)

    patch.setattr(operating, "_make_ready", wrong)


@bug
def an_edited_record_goes_to_the_tail(patch: pytest.MonkeyPatch) -> None:
    def wrong(st: State, args: c.Edit, right: machine.Handler) -> Answer:
        answer = right(st, args)
        queue = st.by_name.get(args.queue)
        record = queue.get(args.id) if queue is not None else None
        if isinstance(answer, Done) and queue is not None and record is not None:
            queue.change(record, msgspec.structs.replace(record, place=queue.draw_place()))
        return answer

    instead_of(patch, c.EDIT, wrong)


@bug
def descending_queues_ascend(patch: pytest.MonkeyPatch) -> None:
    right = KeyOrder.__init__
    patch.setattr(KeyOrder, "__init__", lambda order, descending=False: right(order, False))


@bug
def a_lost_connection_keeps_its_leases(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.OWNER_GONE, lambda st, args, right: Done(0))


@bug
def a_snapshot_forgets_deduplication_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DedupKeys, "freeze", lambda keys: [])


@bug
def a_producers_repeat_is_done_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producer, "recall", lambda producer, request: None)


@bug
def put_many_puts_what_it_can(patch: pytest.MonkeyPatch) -> None:
    def wrong(st: State, args: c.PutMany, right: machine.Handler) -> Answer:
        answer = right(st, args)
        if isinstance(answer, PutManyAnswer):
            return answer
        for name, items in args.puts:
            putting.put(st, c.Put(name, items))
        return answer

    instead_of(patch, c.PUT_MANY, wrong)


@bug
def a_query_is_remembered_after_its_last_batch(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.PUBLISH, lambda st, args, right: right(st, msgspec.structs.replace(args, is_last=False)))


@bug
def a_query_is_forgotten_with_every_batch(patch: pytest.MonkeyPatch) -> None:
    instead_of(patch, c.PUBLISH, lambda st, args, right: right(st, msgspec.structs.replace(args, is_last=True)))


@pytest.mark.parametrize("name", BUGS)
def test_the_state_machine_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    chosen = settings(
        max_examples=EXAMPLES_MAX,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(EngineMachine, settings=chosen)
