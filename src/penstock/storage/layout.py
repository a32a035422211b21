"""Where each file of a data directory lies, and how every file of ours begins.

    <data dir>/consensus/
      raft.log            the live segment of the log                       segmenthead, records, log
      raft.metadata       term, vote, cluster id, node id                   metadata
      raft.snapshot       the state at one index                            snapshot
      raft.snapshot.1     the snapshot before that one                      snapshot
      archive/<first>.log     sealed segments, named by their first index   archive
      archive/<first>.events  the journal of each                           journal
      archive/<first>.offsets where the entries of each lie                 offsets
      archive/<first>.sums    checksums of each by chunks                   sums
      archive/<first>.parquet the journal of each for others, if wanted     (penstock.spark.export)
      events/live.events  the journal of the segment that is being applied  journal
      events/tail         the journal's rows that were in memory when the snapshot was made
      temp/               files that are being written; emptied at start
      skipped             entries that are not applied, by an operator's decision   skipped
      reserve             space to give up when the disk is full            space
      lock                held by the process that has the directory open
      snapshot.new, log.new   a replacement of both under way               replace

Numbers are little-endian. A file begins with the marker and an Int32 version, which is 2 everywhere but in segments of
the log (``segmenthead``); raft.snapshot has Int32 -2 in between.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final

from penstock.storage.errors import NewerVersion, OlderVersion, WrongMarker

MARKER: Final = b"\x2f\x0f\x6f\x2f"
VERSION: Final = 2
FILE_HEADER: Final = struct.Struct("<4si")
FILE_HEADER_BYTES: Final = FILE_HEADER.size

_SEALED_LOG: Final = re.compile(r"([0-9]{20})\.log")


class Layout:
    """The paths of one data directory; of a copy, whose folders may have other names, as far as they are told."""

    def __init__(self, data_dir: Path, *, consensus: Path | None = None, archive: Path | None = None) -> None:
        self.data_dir = data_dir
        self.consensus = consensus or data_dir / "consensus"
        self.archive = archive or self.consensus / "archive"
        self.events = self.consensus / "events"
        self.temp = self.consensus / "temp"
        self.log = self.consensus / "raft.log"
        self.metadata = self.consensus / "raft.metadata"
        self.snapshot = self.consensus / "raft.snapshot"
        self.older_snapshot = self.consensus / "raft.snapshot.1"
        self.skipped = self.consensus / "skipped"
        self.live_events = self.events / "live.events"
        self.tail = self.events / "tail"
        self.reserve = self.consensus / "reserve"
        self.lock = self.consensus / "lock"
        self.next_log = self.temp / "raft.log"
        """The next segment while a roll is under way: its presence tells a roll from a raft.log that somebody lost."""
        self.snapshot_new = self.consensus / "snapshot.new"
        self.log_new = self.consensus / "log.new"

    @property
    def directories(self) -> tuple[Path, ...]:
        """Every directory, outermost first."""
        return (self.data_dir, self.consensus, self.archive, self.events, self.temp)

    def sealed_log(self, first_index: int) -> Path:
        """The archived segment that begins at this index."""
        return self.archive / f"{first_index:020d}.log"

    def sealed_events(self, first_index: int) -> Path:
        """The journal of the archived segment that begins at this index."""
        return self.archive / f"{first_index:020d}.events"

    def sealed_offsets(self, first_index: int) -> Path:
        """Where the entries of the archived segment that begins at this index lie."""
        return self.archive / f"{first_index:020d}.offsets"

    def sealed_sums(self, first_index: int) -> Path:
        """The checksums by chunks of the archived segment that begins at this index."""
        return self.archive / f"{first_index:020d}.sums"

    def sealed_parquet(self, first_index: int) -> Path:
        """The events of the archived segment that begins at this index for programs that read Parquet, if wanted."""
        return self.archive / f"{first_index:020d}.parquet"

    def beside_sealed(self, first_index: int) -> tuple[Path, ...]:
        """The files that belong to the archived segment's log and may be missing."""
        finders = (self.sealed_events, self.sealed_offsets, self.sealed_sums, self.sealed_parquet)
        return tuple(find(first_index) for find in finders)

    def sealed_first_indexes(self) -> list[int]:
        """The first indexes of the archived segments, ascending."""
        if not self.archive.is_dir():
            return []
        found = (sealed_first_index(path) for path in self.archive.iterdir())
        return sorted(first for first in found if first is not None)


def sealed_first_index(path: Path) -> int | None:
    """The first index of an archived segment by the name of its log; None if the file is no such log."""
    match = _SEALED_LOG.fullmatch(path.name)
    return int(match[1]) if match else None


def check_file_header(data: bytes, file: Path, newest: int = VERSION) -> int:
    """The version of a file by its first bytes. Raises unless it begins with the marker and a version we read."""
    if len(data) < FILE_HEADER_BYTES:
        raise WrongMarker(file, f"has {len(data)} bytes, too few for marker and version", 0)
    marker, version = FILE_HEADER.unpack_from(data)
    if marker != MARKER:
        raise WrongMarker(file, f"begins with {marker.hex(' ')}, not with the marker {MARKER.hex(' ')}", 0)
    return check_version(version, file, newest)


def check_version(version: int, file: Path, newest: int = VERSION) -> int:
    """The version, if it is one that we read: from 2 to `newest`. Raises otherwise."""
    if VERSION <= version <= newest:
        return version
    if version == 1:
        raise OlderVersion(file)
    if version > newest:
        raise NewerVersion(file, version, newest)
    raise WrongMarker(file, f"has the impossible version {version}", 4)
