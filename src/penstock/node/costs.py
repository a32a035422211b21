"""How much work a command is for the engine, before it is applied: about one unit for a record.

An entry is applied in one go, so its cost is bounded (``ENTRY_COST_MAX``): commands that come together and cost more
are parted into several entries of the same batch. One command may cost more alone; the engine limits what it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.engine import commands as c
from penstock.engine.bindings import Bindings
from penstock.engine.entries import Command

ENTRY_COST_MAX: Final = 4_096
"""About 10 ms of work."""
SMALL_BODY_BYTES: Final = 256
SMALL_BODY_SHIFT: Final = 3
"""The cost of a command with a small body is a unit for each 8 bytes: most commands are small, and this is quick."""
_RECORDS_TAKEN_PER_UNIT: Final = 4


def _of_puts(args: Any, _bindings: Bindings) -> int:
    return sum(1 + len(items) for _, items in args.puts)


Cost = Callable[[Any, Bindings], int]

COSTS_BY_COUNT: Final[dict[int, Cost]] = {
    c.TAKE: lambda args, _: args.count // _RECORDS_TAKEN_PER_UNIT,
    c.ACK_TAKE: lambda args, _: len(args.handles) + args.count // _RECORDS_TAKEN_PER_UNIT,
    c.KICK: lambda args, _: len(args.ids) + args.count,
    c.BROADCAST: lambda args, bindings: bindings.count_matching(args.spec, args.type),
}
"""Commands whose work does not show in the length of their body."""
_BY_LIST: Final[dict[int, Cost]] = {
    c.PUT: lambda args, _: len(args.items),
    c.PUT_MANY: _of_puts,
    c.STAGE: _of_puts,
    c.ACK: lambda args, _: len(args.handles),
    c.RETURN: lambda args, _: len(args.handles),
    c.EXTEND: lambda args, _: len(args.handles),
    c.BURY: lambda args, _: len(args.handles),
    c.DELETE: lambda args, _: len(args.ids),
    c.MOVE: lambda args, _: len(args.ids),
    c.PUBLISH: lambda args, _: len(args.attempts),
}
_BY_OP: Final = {**COSTS_BY_COUNT, **_BY_LIST}


def cost_of(command: Command, bindings: Bindings) -> int:
    """The cost of a command whose body is not small, or whose body does not show it; at least 1."""
    count = _BY_OP.get(command.op)
    return 1 if count is None else 1 + count(command.args, bindings)
