"""A sorted set in blocks: no step of it costs more than a block, however many values there are.

One sorted list would move all that lies behind the place of a change, and one heap cannot give up a value in its
middle. Blocks of up to a thousand values are found by bisection, and only one of them is changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

BLOCK_VALUES: Final = 1024

Value = TypeVar("Value", int, tuple[int, tuple[int, ...]])


class SortedBlocks(Generic[Value]):
    """Distinct values in order."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, ordered: Iterable[Value] = ()) -> None:
        values = list(ordered)
        self._blocks: list[list[Value]] = [
            values[start : start + BLOCK_VALUES] for start in range(0, len(values), BLOCK_VALUES)
        ]
        self._firsts: list[Value] = [block[0] for block in self._blocks]
        """A value for each block that is not above its values and above those of the block before."""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks)

    def first(self) -> Value:
        """The least value; there must be one."""
        return self._blocks[0][0]

    def add(self, value: Value) -> None:
        """Add a value; one that is there already stays once."""
        blocks = self._blocks
        if not blocks:
            blocks.append([value])
            self._firsts.append(value)
            return
        last = blocks[-1]
        if value > last[-1]:
            if len(last) < BLOCK_VALUES:
                last.append(value)
            else:
                blocks.append([value])
                self._firsts.append(value)
            return
        number = bisect_right(self._firsts, value) - 1
        if number < 0:
            number = 0
            self._firsts[0] = value
        block = blocks[number]
        position = bisect_left(block, value)
        if position < len(block) and block[position] == value:
            return
        block.insert(position, value)
        if len(block) > 2 * BLOCK_VALUES:
            blocks[number : number + 1] = [block[:BLOCK_VALUES], block[BLOCK_VALUES:]]
            self._firsts.insert(number + 1, block[BLOCK_VALUES])

    def discard(self, value: Value) -> None:
        """Take a value out, if it is there."""
        number = bisect_right(self._firsts, value) - 1
        if number < 0:
            return
        block = self._blocks[number]
        position = bisect_left(block, value)
        if position < len(block) and block[position] == value:
            del block[position]
            if not block:
                del self._blocks[number], self._firsts[number]

    def pop_first(self) -> Value:
        """Take the least value out; there must be one."""
        block = self._blocks[0]
        value = block.pop(0)
        if not block:
            del self._blocks[0], self._firsts[0]
        return value

    def free(self) -> bool:
        """Let go of one block of a set that nobody uses any more; true when none is left."""
        if self._blocks:
            self._blocks.pop()
            self._firsts.pop()
        return not self._blocks

    def from_value(self, least: Value) -> Iterator[Value]:
        """The values from ``least`` on, in order; the set must not change meanwhile."""
        number = max(0, bisect_right(self._firsts, least) - 1)
        if number < len(self._blocks):
            block = self._blocks[number]
            yield from block[bisect_left(block, least) :]
            for later in self._blocks[number + 1 :]:
                yield from later
