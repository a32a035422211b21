"""What can go wrong with the files of a node.

    StorageError                 code "storage"
    ├── UnreadableData           code "unreadable_data"         the files cannot be started from as they are
    │   ├── NotADataDirectory    code "not_a_data_directory"    a file stands where a directory should
    │   ├── WrongMarker          code "wrong_marker"            the file does not begin as a file of ours
    │   ├── NewerVersion         code "newer_version"           written by a later release
    │   ├── OlderVersion         code "older_version"           version 1: to be imported, not opened
    │   ├── WrongNode            code "wrong_node"              the directory belongs to another node
    │   ├── WrongCluster         code "wrong_cluster"           the file belongs to another cluster
    │   └── Damaged              code "damaged"                 what was once synced is not what was written
    │       └── EntriesLost      code "entries_lost"            the end of the log is gone, as files beside it prove
    ├── EntriesGone              code "entries_gone"            what is asked for has been let go of
    ├── CannotSkip               code "cannot_skip"             an entry is to be skipped that no start applies
    ├── DirectoryInUse           code "directory_in_use"        another process has the directory open
    ├── NotWritable              code "not_writable"            a directory that the node needs cannot be written to
    └── StorageFailed            code "storage_failed"          the system refused a write, a sync, a rename
        └── DiskExhausted        code "disk_exhausted"          because no space is left, the reserve included

Each error names the file, and where it makes sense the offset in it, and says why in words that can be shown to an
operator. A wrong call (an index out of order, an empty entry) is a ``ValueError``: a fault of the program, not of the
disk.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import ClassVar, Final

REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that an operator ends by giving the node the right to write."""


def access_of(path: Path) -> str:
    """Whose a file is and who we are, for the message about one that the system does not let us use."""
    try:
        status = path.stat()
    except OSError:
        return ""
    owner, mode = f"user {status.st_uid}, group {status.st_gid}", stat.S_IMODE(status.st_mode)
    return f"; it belongs to {owner} and has mode {mode:04o}, this process runs as user {os.geteuid()}"


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

    def __init__(self, file: Path, version: int, newest: int = 2) -> None:
        reason = f"has version {version}, the newest that this program reads is {newest}; use a newer release"
        super().__init__(file, reason, 4)
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


class WrongCluster(UnreadableData):
    """The file was written by a node of another cluster than the rest of the directory."""

    code = "wrong_cluster"

    def __init__(self, file: Path, found: bytes, expected: bytes) -> None:
        super().__init__(file, f"belongs to cluster {found.hex()}, this directory to cluster {expected.hex()}", 8)
        self.found = found
        self.expected = expected


class Damaged(UnreadableData):
    """Bytes that were once safely on disk are gone or changed: refused, never guessed at."""

    code = "damaged"


class EntriesLost(Damaged):
    """The log ends before entries that files beside it tell of; `messages` were acknowledged in them, if known."""

    code = "entries_lost"

    def __init__(self, file: Path, reason: str, first_index: int, last_index: int, messages: int) -> None:
        way_out = (
            "Put the right raft.log back if you have it. To continue without these entries: "
            "`penstock storage repair --accept-loss`"
        )
        super().__init__(file, f"{reason}. {way_out}")
        self.first_index = first_index
        self.last_index = last_index
        self.messages = messages


class EntriesGone(StorageError):
    """Entries that are asked for are no longer kept; the oldest that are begin at `first_index`."""

    code = "entries_gone"

    def __init__(self, file: Path, wanted: int, first_index: int) -> None:
        super().__init__(file, f"entry {wanted} is gone, the history begins at {first_index}")
        self.wanted = wanted
        self.first_index = first_index


class CannotSkip(StorageError):
    """An entry that is to be skipped is not among those that a start applies."""

    code = "cannot_skip"

    def __init__(self, file: Path, index: int, first_index: int, last_index: int) -> None:
        super().__init__(
            file, f"entry {index} cannot be skipped: a start applies the entries {first_index} to {last_index}"
        )


class DirectoryInUse(StorageError):
    """Another process holds the lock of the data directory."""

    code = "directory_in_use"


class NotWritable(StorageError):
    """A directory of the data directory cannot be written to."""

    code = "not_writable"

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, f"cannot be written to: {os.strerror(number)}{access_of(path)}")
        self.errno = number


class StorageFailed(StorageError):
    """The system refused an operation; what the disk holds now is unknown, so the node has to stop."""

    code = "storage_failed"

    def __init__(self, site: str, file: Path, number: int) -> None:
        access = access_of(file) if number in REFUSED else ""
        super().__init__(file, f"{site} failed: {os.strerror(number)}{access}")
        self.site = site
        self.errno = number


class DiskExhausted(StorageFailed):
    """No space is left, and there is no reserve to give up any more."""

    code = "disk_exhausted"
