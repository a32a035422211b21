"""The bytes of a connection that were received and not yet parsed.

What belongs here: keeping pieces of any size at a cost that is linear in the bytes received, however they arrive.
"""

from __future__ import annotations

from typing import Final

_LOOSE_PIECES_MAX: Final = 256
"""So many pieces are melted into one, because a bytes object of a few bytes costs about forty more."""


class ReceiveBuffer:
    """Bytes that arrive in pieces and are joined only when a parser has said how many it needs.

    `data[offset:]` is what a parser may look at; `size` counts also the pieces that wait behind it. A parser that
    needs more says so in `needed`, and nothing is joined or parsed again before `size` reaches that.
    """

    __slots__ = ("_loose_pieces", "_pieces", "data", "needed", "offset", "size")

    def __init__(self) -> None:
        self.data = b""
        self.offset = 0
        self.size = 0
        self.needed = 1
        self._pieces: list[bytes] = []
        self._loose_pieces = 0

    def feed(self, piece: bytes) -> None:
        """Append a piece; no copy is made now."""
        if not piece:
            return
        if not self.size:
            self.data = piece
            self.offset = 0
            self.size = len(piece)
            return
        self.size += len(piece)
        pieces = self._pieces
        pieces.append(piece)
        self._loose_pieces += 1
        if self._loose_pieces == _LOOSE_PIECES_MAX:
            melted = b"".join(pieces[-_LOOSE_PIECES_MAX:])
            del pieces[-_LOOSE_PIECES_MAX:]
            pieces.append(melted)
            self._loose_pieces = 0

    def join(self) -> None:
        """Bring all pieces into `data`. To be called only when `data` holds less than is needed."""
        if self._pieces:
            self._pieces.insert(0, self.data[self.offset :])
            self.data = b"".join(self._pieces)
            self.offset = 0
            self._pieces.clear()
            self._loose_pieces = 0

    def advance(self, end: int) -> None:
        """Everything before `end` in `data` has been consumed."""
        self.size -= end - self.offset
        self.offset = end
        if end == len(self.data):
            # Let go of the memory now, and bring a piece that waits alone into view without a copy.
            self.offset = 0
            self.data = b""
            if len(self._pieces) == 1:
                self.data = self._pieces.pop()
                self._loose_pieces = 0

    def take(self, count: int) -> bytes:
        """Consume and return `count` bytes; `size` must be at least that."""
        if len(self.data) - self.offset < count:
            self.join()
        start = self.offset
        taken = self.data[start : start + count]
        self.advance(start + count)
        return taken

    def take_all(self) -> bytes:
        """Consume and return everything."""
        return self.take(self.size)

    def clear(self) -> None:
        """Forget everything."""
        self.data = b""
        self.offset = 0
        self.size = 0
        self.needed = 1
        self._pieces.clear()
        self._loose_pieces = 0
