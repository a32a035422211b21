"""Whether a node's memory stays flat: within one life, and from one life to the next.

Lives differ in what they happen to hold, so medians are compared, and a little growth is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Final

GROWTH_MAX: Final = 1.2
GROWTH_BYTES_MAX: Final = 8 * 1024 * 1024
SETTLED_S: Final = 4.0
"""When a life has filled its backlog and its buffers."""
LIVES_MIN: Final = 6


@dataclass(slots=True)
class Memory:
    """Samples of the resident memory over all lives."""

    peak_bytes: int = 0
    last_of_lives: list[int] = field(default_factory=list)
    """By life: the last sample before its end."""
    growth_of_lives: list[tuple[int, int]] = field(default_factory=list)
    """By life that was long enough: the sample when it had settled, and the last one."""
    _settled_bytes: int = 0
    _last_bytes: int = 0

    def sample(self, age_s: float, size_bytes: int) -> None:
        """The node has so much memory at this age."""
        if not size_bytes:
            return
        self.peak_bytes = max(self.peak_bytes, size_bytes)
        self._last_bytes = size_bytes
        if age_s >= SETTLED_S and not self._settled_bytes:
            self._settled_bytes = size_bytes

    def end_life(self) -> None:
        """The node was killed."""
        if self._last_bytes:
            self.last_of_lives.append(self._last_bytes)
            if self._settled_bytes:
                self.growth_of_lives.append((self._settled_bytes, self._last_bytes))
        self._settled_bytes = self._last_bytes = 0

    def over_lives(self) -> tuple[int, int] | None:
        """Median memory at the end of the lives in the first third and in the last; None if there are too few."""
        count = len(self.last_of_lives)
        if count < LIVES_MIN:
            return None
        third = count // 3
        return int(median(self.last_of_lives[:third])), int(median(self.last_of_lives[-third:]))

    def within_lives(self) -> tuple[int, int] | None:
        """Median memory of long lives when they had settled, and at their ends; None if there were none."""
        if not self.growth_of_lives:
            return None
        return (
            int(median(first for first, _ in self.growth_of_lives)),
            int(median(last for _, last in self.growth_of_lives)),
        )

    def complaints(self) -> list[str]:
        """What is not flat."""
        found = []
        for what, pair in (("from life to life", self.over_lives()), ("within a life", self.within_lives())):
            if pair is not None and pair[1] > pair[0] * GROWTH_MAX and pair[1] > pair[0] + GROWTH_BYTES_MAX:
                found.append(f"memory grows {what}: {shown(pair[0])} to {shown(pair[1])}")
        return found


def shown(size_bytes: int) -> str:
    """Bytes as mebibytes."""
    return f"{size_bytes / 1048576:.1f} MiB"
