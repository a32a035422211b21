"""Rules of taking: order, waiting, delay, lease and acknowledgement."""

from __future__ import annotations

from penstock.engine.commands import INT64_MAX, INT64_MIN
from tests.conformance.driving import unsaid_unless
from tests.conformance.rules import BEFORE_S, Cell, rule

DELAY_S = 1000.0


@rule("Order", "the smallest key goes first, over the whole range of 64 bits")
def order_by_key(cell: Cell) -> None:
    cell.make()
    keys = [5, -7, INT64_MAX, 0, INT64_MIN, 20]
    for key in keys:
        cell.put(str(key).encode(), key=key)
    taken = cell.takes_all(cell.worker(), len(keys))
    assert [int(each.payload) for each in taken] == sorted(keys)
    assert all(each.key in (None, int(each.payload)) for each in taken)


@rule("Order", "within a key, what came first goes first")
def first_in_first_out(cell: Cell) -> None:
    cell.make()
    payloads = [b"first", b"second", b"third", b"fourth"]
    for payload in payloads:
        cell.put(payload)
    assert [each.payload for each in cell.takes_all(cell.worker(), 4)] == payloads


@rule("Order", "a record is with one taker at a time")
def one_taker(cell: Cell) -> None:
    cell.make()
    cell.put()
    holder = cell.worker()
    holder.take()
    cell.worker().finds_nothing()


@rule("Order", "a taker that waits gets what comes")
def waiting(cell: Cell) -> None:
    cell.make()
    worker = cell.worker()
    worker.wait()
    cell.put(b"came later")
    taken = worker.take()
    assert taken.payload == b"came later"
    worker.ack(taken)
    cell.is_empty()


@rule("Delay", "a delay is said when the record is put: not before, then available")
def delay_said(cell: Cell) -> None:
    cell.make()
    cell.put(delay_s=DELAY_S)
    worker = cell.worker()
    worker.finds_nothing()
    cell.advance_past(DELAY_S, worker.finds_nothing)
    assert worker.take().payload == b"work"


@rule("Delay", "a record that another delayed is not handed out before its time")
def delay_kept(cell: Cell) -> None:
    cell.make()
    cell.door.operator_puts(cell.queue, b"work", delay=DELAY_S)
    worker = cell.worker()
    worker.finds_nothing()
    cell.advance_past(DELAY_S, worker.finds_nothing)
    assert worker.take().payload == b"work"


@rule("Delay", "a taker that waits gets a record when its delay ends")
def delay_awaited(cell: Cell) -> None:
    cell.make()
    cell.door.operator_puts(cell.queue, b"work", delay=5)
    worker = cell.worker()
    worker.finds_nothing()
    worker.wait()
    cell.advance(6)  # not past the end of the wait, which the same clock tells
    assert worker.take().payload == b"work"


@rule("Lease", "taken and not acknowledged, it comes back after its time and not before")
def lease_runs_out(cell: Cell) -> None:
    cell.make()
    cell.put()
    holder = cell.worker()
    holder.take()
    other = cell.worker()
    cell.advance_past(cell.door.lease_s, other.finds_nothing)
    assert other.take().payload == b"work"


@rule("Lease", "a taker that waits gets what comes back")
def return_awaited(cell: Cell) -> None:
    cell.make()
    cell.put()
    cell.worker().take()
    cell.advance(cell.door.lease_s - BEFORE_S)
    waiting = cell.worker()
    waiting.wait()
    cell.advance(BEFORE_S + 1)  # not past the end of the wait
    assert waiting.take().payload == b"work"


@rule("Lease", "it comes back as the same record, its deliveries counted")
def lease_counts(cell: Cell) -> None:
    cell.make()
    cell.put()
    worker = cell.worker()
    first = worker.take()
    before = cell.only_record()
    cell.let_go(worker)
    second = cell.worker().take()
    after = cell.only_record()
    assert (before.id, before.deliveries) == (after.id, 1)
    assert after.deliveries == 2
    assert first.id == second.id


@rule("Lease", "the taker is told the id and how often the record was delivered")
def count_is_told(cell: Cell) -> None:
    cell.make()
    cell.put()
    for deliveries in (1, 2, 3):
        worker = cell.worker()
        taken = worker.take()
        unsaid_unless(taken.id is not None and taken.deliveries is not None, "how often it was delivered")
        assert taken.deliveries == deliveries
        cell.let_go(worker)


@rule("Lease", "what comes back goes to its place, or to the tail where the protocol says so")
def place_after_return(cell: Cell) -> str:
    cell.make()
    for payload in (b"first", b"second", b"third"):
        cell.put(payload)
    worker = cell.worker()
    assert worker.take().payload == b"first"
    cell.let_go(worker)
    order = [b"second", b"third", b"first"] if cell.door.returns_to_tail else [b"first", b"second", b"third"]
    assert [each.payload for each in cell.takes_all(cell.worker(), 3)] == order
    return "to the tail" if cell.door.returns_to_tail else "to its place"


@rule("Lease", "a lease ends with its connection: the record is back at once, in its place")
def disconnect(cell: Cell) -> None:
    cell.make()
    cell.put(b"first")
    cell.put(b"second")
    worker = cell.worker(bound=True)
    assert worker.take().payload == b"first"
    other = cell.worker()
    assert other.take().payload == b"second"
    worker.leave()
    third = cell.worker()
    third.wait()
    assert third.take().payload == b"first"


@rule("Lease", "a lease for a time outlives its connection, and no longer")
def lease_outlives_connection(cell: Cell) -> None:
    cell.make()
    cell.put()
    worker = cell.worker(bound=False)
    worker.take()
    worker.leave()
    other = cell.worker()
    other.finds_nothing()
    cell.advance_past(cell.door.lease_s, other.finds_nothing)
    assert other.take().payload == b"work"


@rule("Lease", "given back by a word, it is back at once, in its place")
def given_back(cell: Cell) -> None:
    cell.make()
    cell.put(b"first")
    cell.put(b"second")
    worker = cell.worker()
    taken = worker.take()
    worker.give_back(taken)
    assert [each.payload for each in cell.takes_all(worker, 2)] == [b"first", b"second"]


@rule("Acknowledgement", "an acknowledgement ends the record for good")
def ack_is_final(cell: Cell) -> None:
    cell.make()
    cell.put()
    worker = cell.worker()
    worker.ack(worker.take())
    cell.is_empty()
    cell.advance(2 * cell.door.lease_s)
    worker.finds_nothing()


@rule("Acknowledgement", "a second one harms nothing")
def second_ack(cell: Cell) -> str:
    cell.make()
    cell.put(b"first")
    cell.put(b"second")
    worker = cell.worker()
    taken = worker.take()
    worker.ack(taken)
    word = cell.door.again(worker, taken)
    assert [each.payload for each in cell.takes_all(worker, 1)] == [b"second"]
    cell.is_empty()
    return word


@rule("Acknowledgement", "a late one is told so and changes nothing, or ends the record: never half")
def late_ack(cell: Cell) -> str:
    cell.make()
    cell.put()
    late = cell.worker()
    taken = late.take()
    cell.advance(cell.door.lease_s + 1)
    holder = cell.worker()
    held = holder.take()
    word, ends = cell.door.late(late, taken)
    if ends:
        cell.is_empty()
    else:
        record = cell.only_record()
        assert (record.state, record.deliveries) == ("leased", 2)
        holder.ack(held)
    cell.is_empty()
    return word
