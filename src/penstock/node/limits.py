"""The node's limits of memory. Beyond them puts are refused; takes and acks go on.

Every put is judged before it is proposed, by what the state costs already, what the commands on their way will add to
it, what the connections hold, and what the put itself brings. So the limit is not exceeded, however many puts arrive
before the first of them is applied; and after an ack the next put finds the room that it made.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.commands import INT64_MAX
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.memory import EXTRAS_BYTES, ITEM_BYTES, QUEUE_BYTES, RECORD_BYTES, STAGED
from penstock.engine.state import STAGED_FOR_US, State
from penstock.engine.topics import MATCHES_MAX
from penstock.node.account import MemoryAccount

LOOK_EVERY_ENTRIES: Final = 32
ROOM_BYTES: Final = 256 * 1024 * 1024
"""While this much is free the state is not added up after each entry: what 32 entries add beyond what was promised to
their puts (leases, timers, order) is less."""
_GROWTH_DIVISOR: Final = 8
"""It is added up when puts may have used this part of what was free."""


class Limits:
    """Watches what the state and the commands on their way cost."""

    __slots__ = (
        "_expected_bytes",
        "_look_at_bytes",
        "_look_at_index",
        "_unproposed_bytes",
        "account",
        "memory_bytes",
        "memory_bytes_max",
        "payload_bytes_max",
        "promised_bytes",
        "queues_max",
        "staged_bytes_max",
        "staged_ms",
    )

    def __init__(
        self,
        memory_bytes_max: int,
        payload_bytes_max: int = INT64_MAX,
        queues_max: int = INT64_MAX,
        account: MemoryAccount | None = None,
        staged_bytes_max: int = INT64_MAX,
        staged_ms: int = STAGED_FOR_US // 1000,
    ) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.payload_bytes_max = payload_bytes_max
        self.queues_max = queues_max
        self.account = account if account is not None else MemoryAccount()
        self.staged_bytes_max = staged_bytes_max
        self.staged_ms = staged_ms
        self.promised_bytes = 0
        """What accepted commands that are not applied yet will add to the state."""
        self._unproposed_bytes = 0
        self.memory_bytes = 0
        """What the state cost when it was last looked at."""
        self._expected_bytes = 0
        """The same with all that was promised since then, to commands that are applied now too."""
        self._look_at_index = -2
        self._look_at_bytes = 0
        """When to look again: at this entry, or when the state and all promises together need more than this."""

    def used_bytes(self, st: State) -> int:
        """All the memory that is counted against the limit."""
        return st.memory_bytes() + self.account.total + self.promised_bytes

    def by_kind(self, st: State) -> dict[str, int]:
        """The same by the name of each kind, those of the state before those of connections."""
        return {**st.memory_by_kind(), **self.account.bytes_by_kind, "commands": self.promised_bytes}

    def refusal(self, st: State, command: Command) -> Refusal | None:
        """Why this put may not be proposed now; None if it may, and then its cost is promised to it."""
        if command.op == c.PUT:  # as put_bytes says; most commands are puts
            cost_bytes = len(command.body) + RECORD_BYTES * len(command.args.items)
        else:
            cost_bytes = put_bytes(st, command)
        expected_bytes = self._expected_bytes + cost_bytes
        if st.index >= self._look_at_index or expected_bytes > self._look_at_bytes:
            expected_bytes = self._look(st) + cost_bytes
        if command.op == c.STAGE and st.memory.of(STAGED) + cost_bytes > self.staged_bytes_max:
            return Refusal(
                e.STAGING_FULL,
                f"this does not fit: {st.memory.of(STAGED)} of {self.staged_bytes_max} bytes for staged messages are "
                "in use; publish or abort a batch, or raise limits.staged_bytes",
                (self.staged_bytes_max,),
            )
        if expected_bytes + self.account.total > self.memory_bytes_max:
            # Look again: acks free memory, and so does sweeping what was purged, without an entry.
            expected_bytes = self._look(st) + cost_bytes
            used_bytes = expected_bytes - cost_bytes + self.account.total
            if used_bytes + cost_bytes > self.memory_bytes_max:
                return Refusal(
                    e.MEMORY_FULL,
                    f"this does not fit: {used_bytes} of {self.memory_bytes_max} bytes of memory are in use; "
                    "take some messages first",
                    (self.memory_bytes_max,),
                )
        self._expected_bytes = expected_bytes
        self.promised_bytes += cost_bytes
        self._unproposed_bytes += cost_bytes
        return None

    def _look(self, st: State) -> int:
        """Add the state up; returns what it costs with all that is promised."""
        self.memory_bytes = self._counted_bytes(st)
        self._expected_bytes = expected_bytes = self.memory_bytes + self.promised_bytes
        free_bytes = self.memory_bytes_max - expected_bytes - self.account.total
        self._look_at_index = st.index + (LOOK_EVERY_ENTRIES if free_bytes >= ROOM_BYTES else 1)
        self._look_at_bytes = expected_bytes + max(0, free_bytes) // _GROWTH_DIVISOR
        return expected_bytes

    def _counted_bytes(self, st: State) -> int:
        """The state's memory as far as it counts against puts.

        What an earlier version let writers stage beyond today's limit does not: it must not lock out all others.
        """
        return st.memory_bytes() - max(0, st.memory.of(STAGED) - self.staged_bytes_max)

    def proposed(self) -> int:
        """All that was accepted is proposed now; returns what was promised to it since the last call."""
        proposed_bytes, self._unproposed_bytes = self._unproposed_bytes, 0
        return proposed_bytes

    def settled(self, promised_bytes: int) -> None:
        """Commands to which this was promised are applied, and count as state; or they never will be."""
        self.promised_bytes -= promised_bytes
        self._unproposed_bytes = min(self._unproposed_bytes, self.promised_bytes)


def put_bytes(st: State, command: Command) -> int:
    """What a command will add to the state, about: its body, and what each of its records costs beyond that."""
    op, args, size = command.op, command.args, len(command.body)
    if op == c.PUT:
        return size + RECORD_BYTES * len(args.items)
    if op == c.PUT_MANY:
        return size + RECORD_BYTES * sum(len(items) for _, items in args.puts)
    if op == c.STAGE:
        return size + ITEM_BYTES * sum(len(items) for _, items in args.puts)
    if op == c.BROADCAST:
        # The body is kept once. Many bindings may match.
        return size + (RECORD_BYTES + EXTRAS_BYTES) * min(len(st.bindings), MATCHES_MAX)
    return size + QUEUE_BYTES
