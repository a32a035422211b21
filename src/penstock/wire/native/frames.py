"""Frames: how requests and replies are cut out of the stream.

length  UInt32, big-endian: how many bytes follow
code    Byte: the operation of a request, the status of a reply
request UInt64, big-endian: chosen by the client, echoed in the reply
body    one MessagePack value
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.wire.native.errors import FrameTooLong, FrameTooShort

HEADER: Final = Struct(">IBQ")
_PREFIX_BYTES: Final = 4
_BODY_OFFSET: Final = HEADER.size - _PREFIX_BYTES
FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""The longest frame that both sides read as long as neither has said anything else (HELLO, Welcome)."""
FRAME_BYTES_MAX_LEAST: Final = 1024 * 1024
"""Nobody may ask for shorter frames than this."""
_ROOM_BYTES: Final = 1024 * 1024
"""Room for what stands around a payload: headers, and the other fields of a record."""

_LOOSE_PIECES_MAX: Final = 256

Frame = tuple[int, int, bytes]
"""code, request, body"""


def frame_bytes_for(payload_bytes_max: int) -> int:
    """The longest frame that a node reads which accepts payloads up to that length."""
    return max(FRAME_BYTES_MAX, payload_bytes_max + _ROOM_BYTES)


def frame_bytes_of(body_bytes: int) -> int:
    """What the length of a frame says that has a body of this many bytes."""
    return _BODY_OFFSET + body_bytes


def encode_frame(code: int, request: int, body: bytes) -> bytes:
    """Put one frame into bytes."""
    return HEADER.pack(_BODY_OFFSET + len(body), code, request) + body


class FrameReader:
    """Cuts a stream into frames. Pieces of an incomplete frame are kept apart and joined once, when it is whole."""

    __slots__ = ("_frame_bytes_max", "_loose_pieces", "_need", "_pieces", "kept_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pieces: list[bytes] = []
        self._loose_pieces = 0
        self._need = 0
        self.kept_bytes = 0
        """Bytes of a frame that is not complete."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take received bytes; yield each frame that is now whole. Raises a ``FrameError`` for a bad length."""
        if self._pieces:
            self._pieces.append(data)
            self.kept_bytes += len(data)
            if self.kept_bytes < self._need:
                self._melt()
                return
            data = b"".join(self._pieces)
            self._pieces = []
            self.kept_bytes = 0
        unpack = HEADER.unpack_from
        header_bytes = HEADER.size
        start, end = 0, len(data)
        while end - start >= header_bytes:
            length, code, request = unpack(data, start)
            if length > self._frame_bytes_max:
                raise FrameTooLong(length, self._frame_bytes_max, code, request)
            if length < _BODY_OFFSET:
                raise FrameTooShort(length, _BODY_OFFSET)
            stop = start + _PREFIX_BYTES + length
            if stop > end:
                self._keep(data[start:], stop - start)
                return
            yield code, request, data[start + header_bytes : stop]
            start = stop
        if start < end:
            self._keep(data[start:], header_bytes)

    def clear(self) -> None:
        """Forget what has come of an incomplete frame."""
        self._pieces = []
        self.kept_bytes = 0

    def half_request(self) -> int | None:
        """The number of the request whose frame has come in part, if that much of it has come."""
        head = b"".join(self._pieces[: HEADER.size])
        return int(HEADER.unpack_from(head)[2]) if len(head) >= HEADER.size else None

    def _keep(self, rest: bytes, need: int) -> None:
        self._pieces = [rest]
        self._loose_pieces = 1
        self.kept_bytes = len(rest)
        self._need = need

    def _melt(self) -> None:
        """Join the last pieces when they are many: a piece of a few bytes costs about forty bytes more."""
        self._loose_pieces += 1
        if self._loose_pieces >= _LOOSE_PIECES_MAX:
            self._pieces[-_LOOSE_PIECES_MAX:] = [b"".join(self._pieces[-_LOOSE_PIECES_MAX:])]
            self._loose_pieces = 0
