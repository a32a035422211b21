"""What can go wrong with the files of a node.

    StorageError                 code "storage"
    ├── UnreadableData           code "unreadable_data"         the files cannot be started from as they are
    │   ├── NotADataDirectory    code "not_a_data_directory"    a file stands where a directory should
    │   ├── WrongMarker          code "wrong_marker"            the file does not begin as a file of ours
    │   ├── NewerVersion         code "newer_version"           written by a later release
    │   ├── OlderVersion         code "older_version"           version 1: to be imported, not opened
    │   ├── WrongNode            code "wrong_node"              the directory belongs to another node
    │   └── Damaged              code "damaged"                 what was once synced is not what was written
    ├── EntriesGone              code "entries_gone"            what is asked for has been let go of
    ├── DirectoryInUse           code "directory_in_use"        another process has the directory open
    └── StorageFailed            code "storage_failed"          the system refused a write, a sync, a rename
        └── DiskExhausted        code "disk_exhausted"          because no space is left, the reserve included

Each error names the file, and where it makes sense the offset in it, and says why in words that can be shown to an
operator. A wrong call (an index out of order, an empty entry) is a ``ValueError``: a fault of the program, not of the
disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar


class StorageError(Exception):
    """Base of all errors of this package; `file`, `offset` (or None) and `reason` say what and where."""

    code: ClassVar[str] = "storage"

    def __init__(self, file: Path, reason: str, offset: int | None = None) -> None:
        where = str(file) if offset is None else f"{file}, offset {offset}"
        super().__init__(f"{where}: {reason}")
        self.file = file
        self.offset = offset
        self.reason = reason


class UnreadableData(StorageError):
    """The data cannot be started from as they stand; the file in question was left as it is."""

    code = "unreadable_data"


class NotADataDirectory(UnreadableData):
    """The path is not a data directory and cannot become one."""

    code = "not_a_data_directory"


class WrongMarker(UnreadableData):
    """The file is too short for a header or does not begin with our marker."""

    code = "wrong_marker"


class NewerVersion(UnreadableData):
    """The file has a version that a later release wrote."""

    code = "newer_version"

    def __init__(self, file: Path, version: int) -> None:
        super().__init__(file, f"has version {version}, this program reads version 2; use a newer release", 4)
        self.version = version


class OlderVersion(UnreadableData):
    """The file has version 1, which is imported rather than opened."""

    code = "older_version"

    def __init__(self, file: Path, version: int = 1) -> None:
        super().__init__(file, f"has version {version}; bring it in with `penstock storage import`", 4)
        self.version = version


class WrongNode(UnreadableData):
    """The directory was made by a node with another id."""

    code = "wrong_node"

    def __init__(self, file: Path, found: int, expected: int) -> None:
        super().__init__(file, f"belongs to node {found}, this is node {expected}")
        self.found = found
        self.expected = expected


class Damaged(UnreadableData):
    """Bytes that were once safely on disk are gone or changed: refused, never guessed at."""

    code = "damaged"


class EntriesGone(StorageError):
    """Entries that are asked for are no longer kept; the oldest that are begin at `first_index`."""

    code = "entries_gone"

    def __init__(self, file: Path, wanted: int, first_index: int) -> None:
        super().__init__(file, f"entry {wanted} is gone, the history begins at {first_index}")
        self.wanted = wanted
        self.first_index = first_index


class DirectoryInUse(StorageError):
    """Another process holds the lock of the data directory."""

    code = "directory_in_use"


class StorageFailed(StorageError):
    """The system refused an operation; what the disk holds now is unknown, so the node has to stop."""

    code = "storage_failed"

    def __init__(self, site: str, file: Path, errno: int) -> None:
        super().__init__(file, f"{site} failed: {os.strerror(errno)}")
        self.site = site
        self.errno = errno


class DiskExhausted(StorageFailed):
    """No space is left, and there is no reserve to give up any more."""

    code = "disk_exhausted"
