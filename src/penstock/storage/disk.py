"""Every system call that changes something on disk, each under the name of the place that makes it (its *site*).

One thin class, so that tests can make any write of the program fail, count the writes, or stop the world between two of
them, and so that a refusal by the system always becomes the same error. Reading is in ``reading``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from penstock.storage.errors import REFUSED, DiskExhausted, NotWritable, StorageFailed
from penstock.storage.modes import FILE_MODE, make_directories

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Refusals that say "full" and not "broken"."""

SITES: Final = frozenset(
    f"{subject}.{call}"
    for subject, calls in {
        "directory": "check create sync_directory",
        "journal": "create open rename seal sync sync_directory truncate unlink unseal write",
        "lock": "open",
        "log": "allocate create open publish seal sync sync_directory truncate unlink unseal write",
        "metadata": "create rename sync sync_directory write",
        "offsets": "create write",
        "replace": "create rename sync sync_directory unlink write",
        "reserve": "allocate open truncate unlink",
        "retention": "sync_directory unlink",
        "skipped": "create rename sync sync_directory write",
        "snapshot": "create drop_older link rename sync sync_directory unlink write",
        "sums": "create write",
        "tail": "create rename sync sync_directory write",
        "temp": "unlink",
    }.items()
    for call in calls.split()
)
"""Every site of a running store: a file, or a job, and what is done to it. A test holds this against what is called."""

_CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
_NO_SECOND_NAMES: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_NAMELESS_FILES: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})

T = TypeVar("T")


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Disk:
    """The writing half of the file system.

    Each method takes the site first in a message, last in the call. On "no space" the method asks `relief` whether room
    was made (see ``space``), and tries again as long as it was; any other refusal raises ``StorageFailed``
    (``DiskExhausted`` where space was the reason).
    """

    _sync = staticmethod(os.fdatasync)
    _sync_directory = staticmethod(_fsync_directory)

    def __init__(self) -> None:
        self.relief: Callable[[str], bool] | None = None
        """Asked with the site when space runs out; answers whether it made room, which it can do a few times only."""

    def before(self, site: str, path: Path) -> None:
        """Called before every system call, also before a repeated one. Does nothing; tests fail or stop here."""

    def create(self, path: Path, site: str) -> int:
        """Make a new file, in place of one that has the name, and return a descriptor to read and write it.

        The old file is not emptied but left alone: a rename that a crash cut in half may have given it a second name.
        """
        return self._attempt(lambda: _create(path), site, path)

    def open(self, path: Path, site: str) -> int:
        """Open the file, made if missing and kept as it is, to read and write it."""
        return self._attempt(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), site, path)

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
            self._sync(descriptor)
        except OSError as error:
            raise _failed(error, site, path) from error

    def fsync_directory(self, path: Path, site: str) -> None:
        """Return when the names in the directory are on the disk."""
        try:
            self.before(site, path)
            self._sync_directory(path)
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

    def link(self, source: Path, target: Path, site: str) -> bool:
        """Give a file a second name, which must be free; False where the file system has no second names."""
        try:
            self._attempt(lambda: os.link(source, target), site, target)
        except StorageFailed as error:
            if error.errno in _NO_SECOND_NAMES:
                return False
            raise
        return True

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
        self._attempt(lambda: make_directories(path), site, path)

    def check_writable(self, path: Path, site: str) -> None:
        """Raise ``NotWritable`` unless files can be made in a directory. Leaves nothing behind."""
        try:
            self.before(site, path)
            _try_to_create(path)
        except OSError as error:
            if error.errno in REFUSED:
                raise NotWritable(path, error.errno) from error
            if error.errno not in NO_SPACE:
                raise _failed(error, site, path) from error

    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can predict, for the salt of a log segment."""
        return os.urandom(count)

    def free_bytes(self, path: Path) -> int:
        """How many bytes the file system at `path` still has for us."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def _attempt(self, action: Callable[[], T], site: str, path: Path) -> T:
        while True:
            try:
                self.before(site, path)
                return action()
            except OSError as error:
                self._make_room(error, site, path)

    def _make_room(self, error: OSError, site: str, path: Path) -> None:
        """Return if it is worth trying again, else raise."""
        if error.errno in NO_SPACE and self.relief is not None and self.relief(site):
            return
        raise _failed(error, site, path) from error


def _failed(error: OSError, site: str, path: Path) -> StorageFailed:
    number = error.errno or errno.EIO
    return DiskExhausted(site, path, number) if number in NO_SPACE else StorageFailed(site, path, number)


def _create(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)


def _try_to_create(directory: Path) -> None:
    try:
        # A file without a name: a crash leaves nothing of it.
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))
    except OSError as error:
        if error.errno not in _NO_NAMELESS_FILES:
            raise
        probe = directory / ".writable"
        os.close(_create(probe))
        os.unlink(probe)


def _pwrite_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
