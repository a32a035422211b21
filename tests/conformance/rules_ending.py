"""Rules of how records end without being worked on: expiry, limits, dead letters, and what an operator does."""

from __future__ import annotations

from tests.conformance.driving import Unsaid, refusal, unsaid_unless
from tests.conformance.rules import Cell, rule

EXPIRES_S = 1000.0
SHORT_S = 30.0
"""Shorter than the lease of any door."""
DEAD_LETTERS = "dead_letters"
"""What stands for a rule's name in the queue of the dead letters."""


def put_expiring(cell: Cell, payload: bytes, expires_s: float) -> str:
    """Put a record that expires; where the protocol has no word for it, the queue says so for all its records."""
    try:
        cell.put(payload, expires_s=expires_s)
    except Unsaid:
        cell.operator.set(expires=expires_s)
        cell.put(payload)
        return "by the queue's setting"
    return "by the put"


@rule("Expiry", "handed out until it expires, never after")
def expiry(cell: Cell) -> str:
    cell.make()
    put_expiring(cell, b"in time", EXPIRES_S)
    cell.advance(EXPIRES_S - 100)
    worker = cell.worker()
    taken = worker.take()
    assert taken.payload == b"in time"
    worker.ack(taken)
    worker.leave()
    how = put_expiring(cell, b"too late", EXPIRES_S)
    cell.advance(EXPIRES_S + 1)
    cell.worker().finds_nothing()
    cell.is_empty()
    assert cell.operator.info().expired == 1
    return how


@rule("Expiry", "a record that is held does not expire; when it comes back, it does")
def expiry_while_held(cell: Cell) -> None:
    cell.make()
    put_expiring(cell, b"finished", SHORT_S)
    worker = cell.worker()
    taken = worker.take()
    cell.advance(SHORT_S + 1)
    worker.ack(taken)
    cell.is_empty()
    assert cell.operator.info().expired == 0
    put_expiring(cell, b"given up", SHORT_S)
    assert worker.take().payload == b"given up"
    cell.let_go(worker)
    cell.worker().finds_nothing()
    assert cell.operator.info().expired == 1


@rule("Limits", "a full queue refuses; what is taken counts until it ends")
def queue_size(cell: Cell) -> str:
    cell.make(size_max=2)
    cell.put()
    cell.put()
    word = refusal(cell.put)
    worker = cell.worker()
    taken = worker.take()
    assert refusal(cell.put) == word
    worker.ack(taken)
    cell.put(b"again")
    assert cell.operator.info().put == 3
    return word


@rule("Limits", "too long a payload for the queue is refused")
def payload_size(cell: Cell) -> str:
    room = 100 + len(cell.door.enclose(cell.queue, b"x" * 100)) - 100
    cell.make(payload_bytes_max=room)
    cell.put(b"x" * 100)
    word = refusal(lambda: cell.put(b"x" * 101))
    assert cell.operator.info().put == 1
    return word


@rule("Limits", "a key outside the queue's range is refused")
def key_range(cell: Cell) -> str:
    cell.make(key_range=(-5, 5))
    cell.put(key=-5)
    cell.put(key=5)
    word = refusal(lambda: cell.put(key=6))
    assert refusal(lambda: cell.put(key=-6)) == word
    assert cell.operator.info().put == 2
    return word


@rule("Limits", "a take from a queue that does not exist is told so")
def missing_queue(cell: Cell) -> str:
    unsaid_unless(cell.door.names_queues, "from which queue to take")
    return refusal(lambda: cell.worker().finds_nothing())


@rule("Dead letter", "after the last delivery allowed it moves to the dead-letter queue, with where it came from")
def dead_letter(cell: Cell) -> None:
    dead = cell.door.queue(DEAD_LETTERS)
    cell.make()
    cell.door.make_queue(dead)
    cell.operator.set(deliveries_max=2, dead_letter=dead)
    cell.put(b"poison")
    origin = cell.only_record()
    for _ in range(2):
        worker = cell.worker()
        assert worker.take().payload == b"poison"
        cell.let_go(worker)
    cell.worker().finds_nothing()
    cell.is_empty()
    letters = list(cell.door.operator.queue(dead).browse())
    assert len(letters) == 1
    letter = letters[0]
    assert letter.origin is not None
    assert (letter.origin.queue, letter.origin.id, letter.origin.deliveries) == (cell.queue, origin.id, 2)
    assert letter.reason in ("lease timeout", "ack timeout", "disconnect")
    taken = cell.door.worker(dead).take()
    assert taken.payload == b"poison"


@rule("Dead letter", "without a dead-letter queue it is set aside in place, and handed out again when kicked")
def buried(cell: Cell) -> None:
    cell.make()
    cell.operator.set(deliveries_max=1)
    cell.put(b"poison")
    worker = cell.worker()
    worker.take()
    cell.let_go(worker)
    other = cell.worker()
    other.finds_nothing()
    record = cell.only_record()
    assert record.state == "buried"
    assert cell.operator.kick([record.id]) == 1
    assert other.take().payload == b"poison"


@rule("Operating", "a paused queue hands out nothing; resumed, it serves those who wait")
def pause(cell: Cell) -> None:
    cell.make()
    cell.operator.pause()
    cell.put()
    worker = cell.worker()
    worker.finds_nothing()
    worker.wait()
    cell.operator.resume()
    assert worker.take().payload == b"work"


@rule("Operating", "a purge ends what waits and leaves what is held; takers go on waiting")
def purge(cell: Cell) -> None:
    cell.make()
    cell.put(b"held")
    holder = cell.worker()
    held = holder.take()
    cell.put(b"purged")
    cell.door.operator_puts(cell.queue, b"purged, too", delay=EXPIRES_S)
    assert cell.operator.purge() == 2
    waiting = cell.worker()
    waiting.wait()
    holder.ack(held)
    holder.leave()
    cell.put(b"after it")
    assert waiting.take().payload == b"after it"


@rule("Operating", "a queue that is deleted takes all with it; who waits is told, or is served by the next of its name")
def delete_queue(cell: Cell) -> str:
    cell.make()
    cell.put(b"gone")
    cell.worker().take()
    cell.put(b"gone, too")
    cell.operator.pause()
    waiting = cell.worker()
    waiting.wait()
    cell.door.delete_queue(cell.queue)
    told = "served by the next" if cell.door.waits_for_queues else refusal(waiting.take)
    cell.make()
    cell.put(b"new")
    worker = waiting if cell.door.waits_for_queues else cell.worker()
    assert worker.take().payload == b"new"
    record = cell.only_record()
    assert cell.door.opened(record.payload) == b"new"
    return told


@rule("Operating", "a deleted record is not handed out")
def delete_record(cell: Cell) -> None:
    cell.make()
    cell.put(b"deleted")
    cell.put(b"kept")
    first, _ = cell.operator.browse()
    cell.operator.delete(first.id)
    worker = cell.worker()
    worker.ack(taken := worker.take())
    assert taken.payload == b"kept"
    worker.finds_nothing()
