"""raft.snapshot: the state at one index, as a row of blocks that only the engine understands.

A new snapshot is read back from the disk and checked before it takes its name. The one before it is kept as
raft.snapshot.1, and retention keeps the log after that: if raft.snapshot is damaged later, the state can be made from
the older one, and nothing is lost (``repair``).

    header   marker, Int32 -2, Int32 version 2, Int64 last index, Int64 last term, UInt32 crc32c of the header
    blocks   UInt32 length, UInt32 crc32c of length and bytes, bytes
    end      a block of length 0, then UInt64 number of blocks, UInt32 crc32c

Version 1 has its last index, never below -1, where the -2 stands. The last checksum runs over the header's and every
block's checksum in order and the number of blocks, so that a block lost, doubled or out of place shows too.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, OlderVersion, StorageError, WrongMarker
from penstock.storage.layout import MARKER, VERSION, Layout, check_version
from penstock.storage.pieces import open_descriptor, read_bytes
from penstock.storage.reading import FileSource, Source

BLOCK_BYTES_MAX: Final = 256 * 1024 * 1024
"""The longest block, so that a damaged length cannot ask for all memory."""

SYNC_EVERY_BYTES: Final = 2 * 1024 * 1024

NOT_VERSION_1: Final = -2
_HEADER: Final = struct.Struct("<4siiqq")
_LENGTH: Final = struct.Struct("<I")
_CHECKSUM: Final = struct.Struct("<I")
_BLOCK: Final = struct.Struct("<II")
_COUNT: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
BLOCK_HEADER_BYTES: Final = _BLOCK.size
END_BYTES: Final = _BLOCK.size + _COUNT.size + _CHECKSUM.size


def encode_header(last_index: int, last_term: int) -> bytes:
    """The first bytes of the file."""
    header = _HEADER.pack(MARKER, NOT_VERSION_1, VERSION, last_index, last_term)
    return header + _CHECKSUM.pack(crc32c(header))


def _block_head(block: bytes) -> bytes:
    length = _LENGTH.pack(len(block))
    return length + _CHECKSUM.pack(crc32c(block, crc32c(length)))


class SnapshotEncoder:
    """Puts a snapshot into bytes: the header, then each block, then the end."""

    def __init__(self, last_index: int, last_term: int) -> None:
        self.header = encode_header(last_index, last_term)
        self._chain = crc32c(self.header[_HEADER.size :])
        self._count = 0

    def block(self, block: bytes) -> bytes:
        """The bytes of one block, of at least one byte."""
        if not 0 < len(block) <= BLOCK_BYTES_MAX:
            raise ValueError(f"a block has 1 to {BLOCK_BYTES_MAX} bytes, not {len(block)}")
        head = _block_head(block)
        self._chain = crc32c(head[_LENGTH.size :], self._chain)
        self._count += 1
        return head + block

    def end(self) -> bytes:
        """The bytes behind the last block."""
        head = _block_head(b"")
        count = _COUNT.pack(self._count)
        return head + count + _CHECKSUM.pack(crc32c(count, crc32c(head[_LENGTH.size :], self._chain)))


def decode_header(data: bytes, file: Path) -> tuple[int, int]:
    """Last index and last term; refuses version 1 and anything else."""
    if len(data) < 8 or data[:4] != MARKER:
        raise WrongMarker(file, "does not begin with the marker", 0)
    (kind,) = struct.unpack_from("<i", data, 4)
    if kind >= -1:
        raise OlderVersion(file)
    if kind != NOT_VERSION_1 or len(data) < HEADER_BYTES:
        raise Damaged(file, "the header is not whole", 4)
    _, _, version, last_index, last_term = _HEADER.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if checksum != crc32c(data[: _HEADER.size]):
        raise Damaged(file, "wrong checksum of the header", _HEADER.size)
    check_version(version, file)
    return last_index, last_term


class SnapshotReader:
    """A snapshot on disk. Iterate for its blocks; each is checked as it is read, and the end after the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with FileSource(path) as source:
            self.last_index, self.last_term = decode_header(source.read(0, HEADER_BYTES), path)
            self.size_bytes = source.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        with FileSource(self.path) as source:
            for _, block in iterate_blocks(source, self.path):
                yield block


class OpenSnapshot:
    """A snapshot on disk whose bytes can be read also after another has taken its place.

    The file closes with the last reference, not earlier: a thread may be reading while another lets go of it.
    """

    def __init__(self, path: Path) -> None:
        with FileSource(path) as source:
            self.index, _ = decode_header(source.read(0, HEADER_BYTES), path)
            self.size_bytes = source.size_bytes
            self._file = open_descriptor(os.dup(source.descriptor), path)

    def read(self, offset: int, length: int) -> bytes:
        """Some of its bytes, fewer than `length` only at the end."""
        return read_bytes(self._file, offset, offset + length)


def iterate_blocks(source: Source, file: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each block behind the header; raises ``Damaged`` unless all is whole to the last byte."""
    size = source.size_bytes
    offset, count = HEADER_BYTES, 0
    chain = crc32c(source.read(_HEADER.size, _CHECKSUM.size))
    while True:
        head = source.read(offset, _BLOCK.size)
        if len(head) < _BLOCK.size:
            raise Damaged(file, "ends inside a block's header", offset)
        length, checksum = _BLOCK.unpack(head)
        if length > BLOCK_BYTES_MAX or offset + _BLOCK.size + length > size:
            raise Damaged(file, f"a block of {length} bytes does not fit into the file", offset)
        block = source.read(offset + _BLOCK.size, length)
        if checksum != crc32c(block, crc32c(head[: _LENGTH.size])):
            raise Damaged(file, "wrong checksum of a block", offset)
        chain = crc32c(head[_LENGTH.size :], chain)
        if not length:
            break
        yield offset, block
        offset += _BLOCK.size + length
        count += 1
    end = source.read(offset + _BLOCK.size, END_BYTES)
    expected = _COUNT.pack(count)
    if end != expected + _CHECKSUM.pack(crc32c(expected, chain)):
        raise Damaged(file, f"the end does not agree with the {count} blocks before it", offset + _BLOCK.size)


def check_snapshot(path: Path, last_index: int, last_term: int) -> None:
    """Read a whole snapshot from the disk, not from memory. Raises ``Damaged`` unless it is what was written."""
    with FileSource(path) as source:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if decode_header(source.read(0, HEADER_BYTES), path) != (last_index, last_term):
            raise Damaged(path, "the header is not the one that was written", 0)
        for _ in iterate_blocks(source, path):
            pass


class SnapshotFile:
    """A snapshot file that is being written: header, blocks, end, synced."""

    def __init__(self, disk: Disk, path: Path, last_index: int, last_term: int, subject: str) -> None:
        self.path = path
        self._disk = disk
        self._subject = subject
        self._descriptor = disk.create(path, f"{subject}.create")
        self._encoder = SnapshotEncoder(last_index, last_term)
        self._offset = self._synced_offset = 0
        try:
            self._write(self._encoder.header)
        except StorageError:
            self.close()
            raise

    def write_block(self, block: bytes) -> None:
        """Add one block; it has at least one byte."""
        self._write(self._encoder.block(block))
        # A little at a time: what is left to the end would be flushed at once, and the log's syncs would wait for it.
        if self._offset - self._synced_offset >= SYNC_EVERY_BYTES:
            self._synced_offset = self._offset
            self._disk.fdatasync(self._descriptor, f"{self._subject}.sync", self.path)

    def finish(self) -> None:
        """Write the end and sync; the file is whole then, under its temporary name."""
        self._write(self._encoder.end())
        self._disk.fdatasync(self._descriptor, f"{self._subject}.sync", self.path)
        self.close()

    def close(self) -> None:
        """Close the descriptor, finished or not."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes) -> None:
        self._disk.pwrite(self._descriptor, data, self._offset, f"{self._subject}.write", self.path)
        self._offset += len(data)


class SnapshotWriter:
    """A snapshot under way. One thread, of the caller's choice, calls ``write_block`` and ``finish`` or ``abort``.

    Any failure leaves the old snapshot in place and removes what was written of the new one. Where space ran out
    (``DiskExhausted``) the node can go on: the reserve is kept for the log, and the next snapshot may fit.
    """

    def __init__(
        self,
        disk: Disk,
        layout: Layout,
        last_index: int,
        last_term: int,
        before_publish: Callable[[], None],
        ended: Callable[[bool, bool], None],
    ) -> None:
        self.last_index = last_index
        self.last_term = last_term
        self._disk = disk
        self._layout = layout
        self._path = layout.temp / f"{layout.snapshot.name}.{last_index}"
        self._before_publish = before_publish
        self._ended = ended
        self._open = True
        self.keeps_older = False
        """Whether the snapshot before this one is kept; known when this one is published."""
        self._file: SnapshotFile | None = None

    def write_block(self, block: bytes) -> None:
        """Add one block, opaque to storage, of at least one byte."""
        self._check_open()
        try:
            self._begun().write_block(block)
        except StorageError:
            self.abort()
            raise

    def finish(self) -> None:
        """Publish: what the snapshot leans on is synced first, then it takes the old one's place, durably."""
        self._check_open()
        try:
            file = self._begun()
            file.finish()
            self._disk.fsync_directory(self._layout.temp, "snapshot.sync_directory")
            check_snapshot(file.path, self.last_index, self.last_term)
            self._before_publish()
            self._keep_older()
            self._disk.rename(file.path, self._layout.snapshot, "snapshot.rename")
            self._disk.fsync_directory(self._layout.consensus, "snapshot.sync_directory")
        except StorageError:
            self.abort()
            raise
        self._open = False
        self._ended(True, self.keeps_older)

    def _keep_older(self) -> None:
        """Give the published snapshot its second name, under which it stays when the new one takes its place."""
        layout, temporary = self._layout, self._layout.temp / self._layout.older_snapshot.name
        self.keeps_older = False
        if layout.snapshot.exists():
            self._disk.unlink(temporary, "snapshot.drop_older")
            self.keeps_older = self._disk.link(layout.snapshot, temporary, "snapshot.link")
        if self.keeps_older:
            self._disk.rename(temporary, layout.older_snapshot, "snapshot.rename")
        else:
            # What is there is older still, and the log after it is not kept.
            self._disk.unlink(layout.older_snapshot, "snapshot.drop_older")

    def abort(self) -> None:
        """Give the snapshot up; does nothing once it has ended."""
        if not self._open:
            return
        self._open = False
        if self._file is not None:
            self._file.close()
        # A file that cannot be removed now is removed at the next start.
        with contextlib.suppress(StorageError):
            self._disk.unlink(self._path, "snapshot.unlink")
        self._ended(False, False)

    def _begun(self) -> SnapshotFile:
        """The file, made at its first use and so by the thread that writes it."""
        if self._file is None:
            self._file = SnapshotFile(self._disk, self._path, self.last_index, self.last_term, "snapshot")
        return self._file

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the snapshot has ended")
