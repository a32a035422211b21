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
"""Room for the largest payload and what stands around it."""

Frame = tuple[int, int, bytes]
"""code, request, body"""


def encode_frame(code: int, request: int, body: bytes) -> bytes:
    """Put one frame into bytes."""
    return HEADER.pack(_BODY_OFFSET + len(body), code, request) + body


class FrameReader:
    """Cuts a stream into frames. Pieces of an incomplete frame are kept apart and joined once, when it is whole."""

    __slots__ = ("_frame_bytes_max", "_have", "_need", "_pieces")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take received bytes; yield each frame that is now whole. Raises a ``FrameError`` for a bad length."""
        if self._pieces:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._pieces)
            self._pieces = []
        unpack = HEADER.unpack_from
        header_bytes = HEADER.size
        start, end = 0, len(data)
        while end - start >= header_bytes:
            length, code, request = unpack(data, start)
            if length > self._frame_bytes_max:
                raise FrameTooLong(length, self._frame_bytes_max)
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

    def _keep(self, rest: bytes, need: int) -> None:
        self._pieces = [rest]
        self._have = len(rest)
        self._need = need
