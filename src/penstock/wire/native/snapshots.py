"""A snapshot on its way to a reader: its bytes, in pieces of any length, become the blocks that it is made of.

    header   marker, Int32 -2, Int32 version 2, Int64 last index, Int64 last term, UInt32 crc32c of the header
    blocks   UInt32 length, UInt32 crc32c of length and bytes, bytes
    end      a block of length 0, then UInt64 number of blocks, UInt32 crc32c

These are the bytes of the node's snapshot file. The last checksum runs over the header's and every block's checksum in
order and the number of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from crc32c import crc32c

from penstock.wire.native.errors import BadSnapshot

_HEADER: Final = Struct("<4siiqqI")
_BLOCK: Final = Struct("<II")
_END: Final = Struct("<QI")
_CHECKSUM_BYTES: Final = 4
_BLOCK_BYTES_MAX: Final = 256 * 1024 * 1024


class SnapshotDecoder:
    """Cuts blocks out of a snapshot's bytes and checks them. Raises ``BadSnapshot``."""

    def __init__(self, index: int) -> None:
        self.is_whole = False
        """Whether the end has come, and agreed with all before it."""
        self._index = index
        self._buffer = bytearray()
        self._begun = False
        self._chain = 0
        self._count = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in the next bytes; yields the blocks that are complete now."""
        self._buffer += data
        if not self._begun:
            self._take_header()
        at = 0
        while self._begun and not self.is_whole and len(self._buffer) - at >= _BLOCK.size:
            length, checksum = _BLOCK.unpack_from(self._buffer, at)
            if length > _BLOCK_BYTES_MAX:
                raise BadSnapshot(f"a block of {length} bytes")
            start = at + _BLOCK.size
            end = start + (length or _END.size)
            if len(self._buffer) < end:
                break
            block = bytes(self._buffer[start : start + length])
            if checksum != crc32c(block, crc32c(bytes(self._buffer[at : at + _CHECKSUM_BYTES]))):
                raise BadSnapshot(f"wrong checksum of block {self._count}")
            self._chain = crc32c(bytes(self._buffer[at + _CHECKSUM_BYTES : start]), self._chain)
            at = end
            if length:
                self._count += 1
                yield block
            else:
                self._take_end(bytes(self._buffer[start:end]))
        del self._buffer[:at]

    def _take_header(self) -> None:
        if len(self._buffer) < _HEADER.size:
            return
        header = bytes(self._buffer[: _HEADER.size])
        _, _, _, index, _, checksum = _HEADER.unpack(header)
        if checksum != crc32c(header[:-_CHECKSUM_BYTES]):
            raise BadSnapshot("wrong checksum of the header")
        if index != self._index:
            raise BadSnapshot(f"it is of index {index}, not of {self._index}")
        self._chain = crc32c(header[-_CHECKSUM_BYTES:])
        self._begun = True
        del self._buffer[: _HEADER.size]

    def _take_end(self, end: bytes) -> None:
        count, checksum = _END.unpack(end)
        if count != self._count or checksum != crc32c(end[:-_CHECKSUM_BYTES], self._chain):
            raise BadSnapshot(f"the end does not agree with the {self._count} blocks before it")
        self.is_whole = True
