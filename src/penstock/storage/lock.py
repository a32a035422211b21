"""One process at a time: the lock of a data directory."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType

from penstock.storage.disk import Disk
from penstock.storage.errors import DirectoryInUse
from penstock.storage.layout import Layout


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
