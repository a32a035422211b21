"""One process at a time: the lock of a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final

from penstock.storage.disk import Disk
from penstock.storage.errors import DirectoryInUse
from penstock.storage.layout import Layout

_LOCKS: Final = Path("/proc/locks")


class DirectoryLock:
    """Held from its making until ``release``; the system releases it when the process ends, however it ends."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._descriptor = disk.open(layout.lock, "lock.open")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise DirectoryInUse(layout.lock, "another process has this data directory open") from error

    def release(self) -> None:
        """Let others have the directory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(layout: Layout) -> bool:
    """Whether a process has the directory open, found without trying to take the lock.

    The system lists its locks by inode. Where it has no such list, somebody might have it open: True.
    """
    try:
        inode = str(layout.lock.stat().st_ino)
    except FileNotFoundError:
        return False  # nobody ever opened it, or this is a copy
    try:
        locks = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
    except OSError:
        return True
    return any("FLOCK" in fields and any(field.endswith(f":{inode}") for field in fields) for fields in locks)
