"""Reading files by position: the other half of ``disk``."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol

from penstock.storage.errors import Damaged, StorageFailed

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much is read at a time where a whole file is gone through."""


class FileIdentity(NamedTuple):
    """A file as it was at one time, told from a later one with its name and from what it becomes when it grows."""

    path: Path
    inode: int
    size_bytes: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int, path: Path) -> FileIdentity:
        """That of an open file."""
        stat = os.fstat(descriptor)
        return cls(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


class Source(Protocol):
    """Bytes that can be read anywhere: a file, or bytes in memory."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, fewer than `length` only at the end."""


class WindowSource:
    """A source that keeps the last few megabytes it read, for whoever looks at many places close to each other."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._base = 0
        self._window = b""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        return self._source.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, fewer than `length` only at the end."""
        start = offset - self._base
        if start < 0 or start + length > len(self._window):
            if length > WINDOW_BYTES:
                return self._source.read(offset, length)
            self._base, self._window = offset, self._source.read(offset, WINDOW_BYTES)
            start = 0
        return self._window[start : start + length]

    def find(self, needle: bytes, offset: int) -> int | None:
        """Where `needle` is found next from `offset` on."""
        while True:
            self.read(offset, len(needle))
            hit = self._window.find(needle, offset - self._base)
            if hit >= 0:
                return self._base + hit
            if len(self._window) < WINDOW_BYTES:
                return None
            offset = self._base + len(self._window) - len(needle) + 1


class MemorySource:
    """A source over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, fewer than `length` only at the end."""
        return self._data[offset : offset + length]


class DescriptorSource:
    """A source over a descriptor that somebody else owns."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def size_bytes(self) -> int:
        """The file's size now."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on, fewer than `length` only at the end of the file."""
        try:
            data = os.pread(self._descriptor, length, offset)
            if len(data) == length:
                return data
            parts = [data]
            while data and (length := length - len(data)):
                offset += len(data)
                data = os.pread(self._descriptor, length, offset)
                parts.append(data)
            return b"".join(parts)
        except OSError as error:
            raise StorageFailed("read", self._path, error.errno or errno.EIO) from error


class FileSource(DescriptorSource):
    """A source over a file that it opens, and closes at the end of the block it is used in."""

    def __init__(self, path: Path) -> None:
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Damaged(path, "is missing") from error
        except OSError as error:
            raise StorageFailed("read", path, error.errno or errno.EIO) from error
        super().__init__(self.descriptor, path)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)
