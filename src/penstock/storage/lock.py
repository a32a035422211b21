"""One process at a time: the lock of a data directory.

Two things are locked: the directory consensus/ itself and the file consensus/lock in it. The directory is what counts:
it cannot be removed while it holds the log, so removing the file does not let a second process in. The file is what
earlier releases lock, so none of those gets in either; and it is enough where the file system cannot lock directories.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final

from penstock.storage.disk import Disk
from penstock.storage.errors import DirectoryInUse, StorageFailed
from penstock.storage.layout import Layout

_LOCKS: Final = Path("/proc/locks")
_INODE_FIELD: Final = 5
_PROCESS_FIELD: Final = 4
_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})


class DirectoryLock:
    """Held from its making until ``release``; the system releases it when the process ends, however it ends."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._descriptors: list[int] = []
        try:
            self._descriptors.append(_open_directory(layout.consensus))
            self._lock(layout, layout.consensus, can_fail=True)
            self._descriptors.append(disk.open(layout.lock, "lock.open"))
            self._lock(layout, layout.lock, can_fail=False)
        except BaseException:
            self.release()
            raise

    def _lock(self, layout: Layout, path: Path, *, can_fail: bool) -> None:
        try:
            fcntl.flock(self._descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _TAKEN and can_fail:
                return
            holder = next((f"process {holder}" for holder in _holders(layout) or ()), "another process")
            raise DirectoryInUse(path, f"{holder} has this data directory open") from error

    def release(self) -> None:
        """Let others have the directory."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(layout: Layout) -> bool:
    """Whether a process has the directory open, found without trying to take the lock.

    The system lists its locks by inode. Where it has no such list, somebody might have it open: True, unless there is
    no file to lock.
    """
    holders = _holders(layout)
    return layout.lock.exists() if holders is None else bool(holders)


def _open_directory(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageFailed("lock.open", path, error.errno or errno.EIO) from error


def _holders(layout: Layout) -> list[str] | None:
    """The processes that hold one of the locks, by the system's list of locks; None where it has none."""
    inodes = {f":{path.stat().st_ino}" for path in (layout.consensus, layout.lock) if path.exists()}
    try:
        lines = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    held = [fields for fields in lines if "FLOCK" in fields and len(fields) > _INODE_FIELD and "->" not in fields]
    found = [each[_PROCESS_FIELD] for each in held if any(each[_INODE_FIELD].endswith(inode) for inode in inodes)]
    return sorted(set(found))
