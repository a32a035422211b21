"""From door to door: what one door put, another takes; both see one queue."""

from __future__ import annotations

from tests.conformance.driving import Door

PAYLOAD = bytes(range(256))


def crossing_name(source: Door | type[Door]) -> str:
    """What stands for a rule's name in the queue of such a cell."""
    return f"from_{source.name}"


def cross(source: Door, target: Door) -> None:
    """Put by one door, take by another: the same bytes, one holder, and gone for both once acknowledged."""
    # A message of MoniQue is a body around its data. Where only one of the two doors knows of that, the other's client
    # has to: it puts a body, or finds one.
    owner = target if target.encloses else source
    queue = owner.queue(crossing_name(source))
    owner.operator.queue(queue).create(if_absent=True)
    wraps = target.encloses and not source.encloses
    source.put(queue, target.enclose(queue, PAYLOAD) if wraps else PAYLOAD)
    worker = target.worker(queue)
    taken = worker.take()
    unwraps = source.encloses and not target.encloses
    assert (source.opened(taken.payload) if unwraps else taken.payload) == PAYLOAD
    source.note_held(queue)
    source.worker(queue).finds_nothing()
    worker.ack(taken)
    assert list(target.operator.queue(queue).browse()) == []
