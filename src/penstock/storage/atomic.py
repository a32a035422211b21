"""Writing a whole small file so that after a crash it is the old one or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.storage.disk import Disk


def replace_file(disk: Disk, temporary: Path, target: Path, data: bytes, subject: str) -> None:
    """Write `data` to `temporary`, sync it, rename it to `target`, sync the directory; sites begin with `subject`."""
    descriptor = disk.create(temporary, f"{subject}.create")
    try:
        disk.pwrite(descriptor, data, 0, f"{subject}.write", temporary)
        disk.fdatasync(descriptor, f"{subject}.sync", temporary)
    finally:
        os.close(descriptor)
    disk.rename(temporary, target, f"{subject}.rename")
    disk.fsync_directory(target.parent, f"{subject}.sync_directory")
