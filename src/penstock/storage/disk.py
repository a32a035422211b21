"""Every system call that changes something on disk, each under the name of the place that makes it (its *site*).

One thin class, so that tests can make any write of the program fail, count the writes, or stop the world between two of
them, and so that a refusal by the system always becomes the same error. Reading is in ``reading``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from penstock.storage.errors import DiskExhausted, StorageFailed

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Refusals that say "full" and not "broken"."""

_CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750

T = TypeVar("T")


class Disk:
    """The writing half of the file system.

    Each method takes the site first in a message, last in the call. On "no space" the method asks `relief` once whether
    room was made (see ``space``), and tries again if so; any other refusal, and a second one, raises ``StorageFailed``
    (``DiskExhausted`` where space was the reason).
    """

    def __init__(self) -> None:
        self.relief: Callable[[str], bool] | None = None
        """Asked with the site when space runs out; answers whether it made room."""

    def before(self, site: str, path: Path) -> None:
        """Called before every system call, also before a repeated one. Does nothing; tests fail or stop here."""

    def create(self, path: Path, site: str) -> int:
        """Make the file, or empty the one that is there, and return a descriptor to read and write it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return self._attempt(lambda: os.open(path, flags, _FILE_MODE), site, path)

    def open(self, path: Path, site: str) -> int:
        """Open the file, made if missing and kept as it is, to read and write it."""
        return self._attempt(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE), site, path)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int, site: str, path: Path) -> None:
        """Write all of `data` at `offset`, in one system call where the system takes it in one."""
        try:
            self.before(site, path)
            written = os.pwrite(descriptor, data, offset)
        except OSError as error:
            self._make_room(error, site, path)
            written = 0
        if written < len(data):
            rest = memoryview(data)[written:]
            self._attempt(lambda: _pwrite_all(descriptor, rest, offset + written), site, path)

    def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
        """Return when the file's bytes are on the disk. A failure is final: the kernel may have dropped the pages."""
        try:
            self.before(site, path)
            os.fdatasync(descriptor)
        except OSError as error:
            raise _failed(error, site, path) from error

    def fsync_directory(self, path: Path, site: str) -> None:
        """Return when the names in the directory are on the disk."""
        try:
            self.before(site, path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _failed(error, site, path) from error

    def allocate(self, descriptor: int, length: int, site: str, path: Path) -> bool:
        """Reserve `length` bytes of zeros from the file's start; False where the file system cannot do that.

        Raises ``DiskExhausted`` without asking for relief: whoever allocates can do with less.
        """
        try:
            self.before(site, path)
            os.posix_fallocate(descriptor, 0, length)
        except OSError as error:
            if error.errno in _CANNOT_ALLOCATE:
                return False
            raise _failed(error, site, path) from error
        return True

    def truncate(self, descriptor: int, length: int, site: str, path: Path) -> None:
        """Cut the file to `length` bytes."""
        self._attempt(lambda: os.ftruncate(descriptor, length), site, path)

    def rename(self, source: Path, target: Path, site: str) -> None:
        """Give the file its new name, in place of what had it."""
        self._attempt(lambda: os.rename(source, target), site, target)

    def unlink(self, path: Path, site: str) -> None:
        """Remove the name; one that is not there is fine."""
        try:
            self.before(site, path)
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(error, site, path) from error

    def mkdir(self, path: Path, site: str) -> None:
        """Make the directory and those above it; one that is there is fine."""
        self._attempt(lambda: os.makedirs(path, _DIRECTORY_MODE, exist_ok=True), site, path)

    def free_bytes(self, path: Path) -> int:
        """How many bytes the file system at `path` still has for us."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def _attempt(self, action: Callable[[], T], site: str, path: Path) -> T:
        try:
            self.before(site, path)
            return action()
        except OSError as error:
            self._make_room(error, site, path)
        try:
            self.before(site, path)
            return action()
        except OSError as error:
            raise _failed(error, site, path) from error

    def _make_room(self, error: OSError, site: str, path: Path) -> None:
        """Return if it is worth trying again, else raise."""
        if error.errno in NO_SPACE and self.relief is not None and self.relief(site):
            return
        raise _failed(error, site, path) from error


def _failed(error: OSError, site: str, path: Path) -> StorageFailed:
    number = error.errno or errno.EIO
    return DiskExhausted(site, path, number) if number in NO_SPACE else StorageFailed(site, path, number)


def _pwrite_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
