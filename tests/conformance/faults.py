"""For each rule a fault that it must find: the native door, a node that is sound, and one thing done wrong between.

What belongs here: how a cell is spoilt. The tests of this folder run each rule with its fault, and see it fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.conformance.driving import Taken, Worker
from tests.conformance.rules import Cell

Fault = Callable[["SpoiltCell"], None]


class Muted:
    """Something of which some methods do nothing, or something else."""

    def __init__(self, sound: Any, instead: dict[str, Callable[..., Any]]) -> None:
        self._sound = sound
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._sound, name)


def nothing(*_: Any, **__: Any) -> int:
    """Do nothing, and seem content."""
    return 0


class SpoiltCell(Cell):
    """A cell with a fault in it."""

    operator_instead: dict[str, Callable[..., Any]]

    @property
    def operator(self) -> Any:
        return Muted(super().operator, self.__dict__.get("operator_instead", {}))


def put_without(option: str) -> Fault:
    """An option of a put is lost."""

    def spoil(cell: SpoiltCell) -> None:
        put, operator_puts = cell.put, cell.door.operator_puts

        def spoilt(payload: bytes = b"work", **options: Any) -> None:
            options.pop(option, None)
            put(payload, **options)

        def spoilt_by_operator(queue: str, payload: bytes, **options: Any) -> int:
            options.pop(option.removesuffix("_s"), None)
            return operator_puts(queue, payload, **options)

        cell.put = spoilt  # type: ignore[method-assign]
        cell.door.operator_puts = spoilt_by_operator  # type: ignore[method-assign]

    return spoil


def garbled(cell: SpoiltCell) -> None:
    """Payloads come out changed."""
    on_each_take(lambda _, taken: setattr(taken, "payload", taken.payload + b"?"))(cell)


def last_in_first_out(cell: SpoiltCell) -> None:
    """What came last goes first."""
    put, keys = cell.put, iter(range(0, -1000, -1))
    cell.put = lambda payload=b"work", **_: put(payload, key=next(keys))  # type: ignore[method-assign]


def make_without_limits(cell: SpoiltCell) -> None:
    """A queue has no limits, whatever was asked for."""
    make = cell.make
    cell.make = lambda **_: make()  # type: ignore[method-assign]


def made_before(cell: SpoiltCell) -> None:
    """A queue is there that should not be."""
    cell.make()


def on_each_take(then: Callable[[Worker, Taken], object]) -> Fault:
    """Something happens to whatever is taken."""

    def spoil(cell: SpoiltCell) -> None:
        make_worker = cell.worker

        def worker(**options: Any) -> Worker:
            made = make_worker(**options)
            take = made.take

            def spoilt() -> Taken:
                taken = take()
                then(made, taken)
                return taken

            made.take = spoilt  # type: ignore[method-assign]
            return made

        cell.worker = worker  # type: ignore[method-assign]

    return spoil


def workers_with(**options: Any) -> Fault:
    """Leases are of another kind than was asked for."""

    def spoil(cell: SpoiltCell) -> None:
        make_worker = cell.worker
        cell.worker = lambda **_: make_worker(**options)  # type: ignore[method-assign]

    return spoil


def workers_without(*names: str) -> Fault:
    """Something that a worker says is not heard."""

    def spoil(cell: SpoiltCell) -> None:
        make_worker = cell.worker

        def worker(**options: Any) -> Worker:
            made = make_worker(**options)
            for name in names:
                setattr(made, name, nothing)
            return made

        cell.worker = worker  # type: ignore[method-assign]

    return spoil


def operator_without(*names: str) -> Fault:
    """Something that the operator orders is not done."""

    def spoil(cell: SpoiltCell) -> None:
        cell.operator_instead = dict.fromkeys(names, nothing)

    return spoil


def losing_all(cell: SpoiltCell) -> None:
    """A restart forgets the queue's records."""
    drop_all = cell.operator.purge
    cell.hosted = Muted(cell.hosted, {"restart": lambda **_: drop_all(), "kill": drop_all})  # type: ignore[assignment]


def never_empty(cell: SpoiltCell) -> None:
    """A queue that is made anew holds what was deleted with the old one."""
    make, put = cell.make, cell.put

    def spoilt(**limits: Any) -> None:
        make(**limits)
        put(b"gone")

    cell.make = spoilt  # type: ignore[method-assign]


def to_the_tail(cell: SpoiltCell) -> None:
    """What comes back goes behind the others, or at least is expected there."""
    cell.door.__dict__["returns_to_tail"] = True


def second_counts(cell: SpoiltCell) -> None:
    """A second acknowledgement ends the next record."""
    cell.door.again = lambda *_: str(cell.operator.purge())  # type: ignore[method-assign]


def late_counts(cell: SpoiltCell) -> None:
    """A late acknowledgement is said to have ended the record."""
    cell.door.late = lambda *_: ("ok", True)  # type: ignore[method-assign]


def both(*faults: Fault) -> Fault:
    """Several faults at once."""

    def spoil(cell: SpoiltCell) -> None:
        for fault in faults:
            fault(cell)

    return spoil


give_back_at_once = on_each_take(lambda worker, taken: worker.give_back(taken))
end_at_once = on_each_take(lambda worker, taken: worker.ack(taken))

FAULTS: Final[dict[str, Fault]] = {
    "order_by_key": put_without("key"),
    "first_in_first_out": last_in_first_out,
    "one_taker": give_back_at_once,
    "waiting": garbled,
    "delay_said": put_without("delay_s"),
    "delay_kept": put_without("delay_s"),
    "delay_awaited": put_without("delay_s"),
    "lease_runs_out": workers_with(bound=True),
    "return_awaited": both(workers_with(bound=True), workers_without("wait")),
    "lease_counts": end_at_once,
    "count_is_told": on_each_take(lambda _, taken: setattr(taken, "deliveries", 1)),
    "place_after_return": to_the_tail,
    "disconnect": both(workers_with(bound=False), workers_without("wait")),
    "lease_outlives_connection": workers_with(bound=True),
    "given_back": workers_without("give_back"),
    "ack_is_final": workers_without("ack"),
    "second_ack": second_counts,
    "late_ack": late_counts,
    "ack_after_restart": lambda cell: setattr(cell.door, "ack_elsewhere", nothing),
    "expiry": put_without("expires_s"),
    "expiry_while_held": put_without("expires_s"),
    "queue_size": make_without_limits,
    "payload_size": make_without_limits,
    "key_range": make_without_limits,
    "missing_queue": made_before,
    "dead_letter": operator_without("set"),
    "buried": operator_without("set"),
    "pause": operator_without("pause"),
    "purge": operator_without("purge"),
    "delete_queue": never_empty,
    "delete_record": operator_without("delete"),
    "restart": losing_all,
    "restart_lease": give_back_at_once,
    "restart_delay": put_without("delay_s"),
    "restart_expiry": put_without("expires_s"),
    "restart_dead_letter": operator_without("set"),
    "killed": losing_all,
    "every_byte": garbled,
    "empty_payload": garbled,
    "longest_payload": garbled,
}
"""The fault that each rule must find."""
