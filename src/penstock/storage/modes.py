"""The modes of everything that holds users' messages: the owner may write, the group may read, nobody else may look.

Files that other libraries write are created here first, so that they are never readable for others, not even while they
are being written.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750


def make_directories(path: Path) -> None:
    """Make a directory and those above it, as far as they are missing."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(DIRECTORY_MODE, exist_ok=True)


def create_file(path: Path) -> None:
    """Make an empty file, or empty the one that is there and give it our mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):  # it may be a terminal or a pipe, which are not ours
            os.fchmod(descriptor, mode & FILE_MODE)
    finally:
        os.close(descriptor)
