"""Rules of what lasts: over a stop and a start, over a kill, and from one end of a payload to the other."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.driving import Unsaid, refusal
from tests.conformance.rules import Cell, rule
from tests.conformance.rules_ending import EXPIRES_S, put_expiring
from tests.conformance.rules_taking import DELAY_S
from tests.conformance.served import PAYLOAD_BYTES_MAX

EVERY_BYTE = bytes(range(256))


def put_in_order(cell: Cell) -> list[bytes]:
    """Put records of several keys, where there are keys; the payloads in the order in which they must go."""
    try:
        for key in (3, 1, 2):
            cell.put(b"%d, first" % key, key=key)
            cell.put(b"%d, second" % key, key=key)
    except Unsaid:
        for payload in (b"1", b"2", b"3", b"4"):
            cell.put(payload)
        return [b"1", b"2", b"3", b"4"]
    return [b"%d, %s" % (key, which) for key in (1, 2, 3) for which in (b"first", b"second")]


@rule("Acknowledgement", "what was taken before a restart can be acknowledged after it")
def ack_after_restart(cell: Cell) -> None:
    cell.make()
    cell.put()
    taken = cell.worker().take()
    cell.hosted.restart()
    cell.door.ack_elsewhere(cell.queue, taken)
    cell.is_empty()


def survives(cell: Cell, end: Callable[[], None]) -> None:
    """Whatever ends the node, it goes on where it was."""
    cell.make()
    cell.put(b"done")
    worker = cell.worker()
    worker.ack(worker.take())
    worker.leave()
    expected = put_in_order(cell)
    end()
    taken = cell.takes_all(cell.worker(), len(expected))
    assert [each.payload for each in taken] == expected
    cell.is_empty()


@rule("Restart", "after a restart everything is there, in its order; what ended stays ended")
def restart(cell: Cell) -> None:
    survives(cell, cell.hosted.restart)


@rule("Restart", "a lease for a time goes on over a restart; one that was a connection's is over")
def restart_lease(cell: Cell) -> str:
    cell.make()
    cell.put()
    taken = cell.worker().take()
    cell.hosted.restart()
    worker = cell.worker()
    if cell.door.lease_is_bound:
        worker.wait()
        again = worker.take()
    else:
        worker.finds_nothing()
        cell.advance_past(cell.door.lease_s, worker.finds_nothing)
        again = worker.take()
    assert (again.payload, again.id) == (b"work", taken.id)
    record = cell.only_record()
    assert record.deliveries == 2
    return "back at once" if cell.door.lease_is_bound else "back at its time"


@rule("Restart", "a delay goes on over a restart")
def restart_delay(cell: Cell) -> str:
    cell.make()
    try:
        cell.put(delay_s=DELAY_S)
        by = "by the put"
    except Unsaid:
        cell.door.operator_puts(cell.queue, b"work", delay=DELAY_S)
        by = "by the operator"
    cell.hosted.restart()
    worker = cell.worker()
    worker.finds_nothing()
    cell.advance_past(DELAY_S, worker.finds_nothing)
    assert worker.take().payload == b"work"
    return by


@rule("Restart", "what expires while the node is down is not handed out after")
def restart_expiry(cell: Cell) -> None:
    cell.make()
    put_expiring(cell, b"work", EXPIRES_S)
    cell.hosted.restart(down_s=EXPIRES_S + 1)
    cell.worker().finds_nothing()
    assert cell.operator.info().expired == 1


@rule("Restart", "deliveries before a restart count towards the dead letter")
def restart_dead_letter(cell: Cell) -> None:
    cell.make()
    cell.operator.set(deliveries_max=2)
    cell.put(b"poison")
    worker = cell.worker()
    worker.take()
    cell.let_go(worker)
    cell.hosted.restart()
    worker = cell.worker()
    worker.take()
    cell.let_go(worker)
    cell.worker().finds_nothing()
    record = cell.only_record()
    assert (record.state, record.deliveries) == ("buried", 2)


@rule("Restart", "after kill -9 everything that was answered is there, in its order; what ended stays ended")
def killed(cell: Cell) -> None:
    survives(cell, cell.hosted.kill)


@rule("Payload", "every value of a byte comes out as it went in")
def every_byte(cell: Cell) -> None:
    cell.make()
    cell.put(EVERY_BYTE)
    cell.put("text, ünïcode, \0 and \n".encode())
    taken = cell.takes_all(cell.worker(), 2)
    assert [each.payload for each in taken] == [EVERY_BYTE, "text, ünïcode, \0 and \n".encode()]


@rule("Payload", "an empty payload is a payload")
def empty_payload(cell: Cell) -> None:
    cell.make()
    cell.put(b"")
    assert cell.worker().take().payload == b""


@rule("Payload", "the longest payload that the node takes goes through; one byte more is refused")
def longest_payload(cell: Cell) -> str:
    cell.make()
    trial = EVERY_BYTE * 300
    room = PAYLOAD_BYTES_MAX - (len(cell.door.enclose(cell.queue, trial)) - len(trial))
    longest = (EVERY_BYTE * (room // 256 + 1))[:room]
    cell.put(longest)
    worker = cell.worker()
    taken = worker.take()
    assert taken.payload == longest
    worker.ack(taken)
    word = refusal(lambda: cell.put(longest + b"x"))
    cell.is_empty()
    return word
