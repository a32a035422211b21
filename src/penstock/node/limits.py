"""The node's own limits: memory and disk. Beyond them puts are refused; takes and acks go on."""

from __future__ import annotations

from penstock.engine import errors as e
from penstock.engine.commands import INT64_MAX
from penstock.engine.errors import Refusal
from penstock.engine.state import State

_LOOK_EVERY = 64


class Limits:
    """Watches what the records cost."""

    __slots__ = ("_countdown", "memory_bytes", "memory_bytes_max", "payload_bytes_max", "queues_max")

    def __init__(self, memory_bytes_max: int, payload_bytes_max: int = INT64_MAX, queues_max: int = INT64_MAX) -> None:
        self.memory_bytes_max = memory_bytes_max
        self.payload_bytes_max = payload_bytes_max
        self.queues_max = queues_max
        self.memory_bytes = 0
        self._countdown = 0

    def refusal(self, st: State, disk_full: bool) -> Refusal | None:
        """Why nothing may be put now, if so."""
        if disk_full:
            return Refusal(e.DISK_FULL, "the disk is full; takes and acks go on, puts resume when there is space")
        self._countdown -= 1
        if self._countdown < 0:
            # The sum walks the queues, so it is not done for every put.
            self._countdown = _LOOK_EVERY if self.memory_bytes < self.memory_bytes_max else 0
            self.memory_bytes = st.memory_bytes()
        if self.memory_bytes < self.memory_bytes_max:
            return None
        return Refusal(
            e.MEMORY_FULL,
            f"the records need {self.memory_bytes} bytes of the {self.memory_bytes_max} allowed; take some first",
            (self.memory_bytes_max,),
        )
