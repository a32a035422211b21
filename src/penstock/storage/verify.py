"""Checking every checksum of a data directory or of one file: what ``penstock storage verify`` does.

Nothing is changed and no lock is taken. On the files of a running node the end of raft.log may look torn: it is being
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.storage import journalfile
from penstock.storage.errors import Damaged, NotADataDirectory, StorageError
from penstock.storage.evidence import find_lost_entries
from penstock.storage.inspect import FileKind, describe, kind_of, version_of
from penstock.storage.layout import Layout
from penstock.storage.metadata import load_metadata
from penstock.storage.offsets import load_offsets
from penstock.storage.reading import FileSource
from penstock.storage.recovery import foreign_snapshot
from penstock.storage.scan import LogScan, scan_live, scan_sealed
from penstock.storage.skipped import load_skipped
from penstock.storage.snapshot import SnapshotReader
from penstock.storage.sums import first_wrong_chunk, load_sums

Severity = Literal["damage", "loss", "torn", "gap"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written.

    "damage" keeps a node from starting or a reader from reading; "loss" are entries that a power cut took in the modes
    `interval` and `none`, which the next start reports and goes on; "torn" is cut off by the next start; "gap" are rows
    that the journal lacks.
    """

    file: Path
    offset: int | None
    reason: str
    severity: Severity = "damage"

    def __str__(self) -> str:
        where = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.severity}: {self.file}{where}: {self.reason}"


@dataclass(slots=True)
class Report:
    """What was checked and what is wrong."""

    files: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    entries: int = 0
    rows: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether a node can start from these files with nothing lost: a torn tail is no loss, damage and gaps are."""
        return all(problem.severity == "torn" for problem in self.problems)


def verify(path: Path) -> Report:
    """Check one file, or a whole data directory (or its consensus/) and that its files fit together."""
    if path.name == "consensus" and path.is_dir():
        path = path.parent
    if path.is_dir():
        return _Verifier(Layout(path)).run()
    report = Report()
    _verify_file(report, path)
    return report


class _Verifier:
    """The check of a whole directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._report = Report()
        self._cluster_id: bytes | None = None
        """The cluster by raft.metadata; None where that cannot be read."""
        self._snapshot_term = 0

    def run(self) -> Report:
        layout = self._layout
        if not layout.consensus.is_dir():
            raise NotADataDirectory(layout.data_dir, "has no directory consensus/")
        with self._file(layout.metadata):
            metadata = load_metadata(layout)
            if metadata is None:
                raise Damaged(layout.metadata, "is missing")
            self._cluster_id = metadata.cluster_id
        if layout.skipped.exists():
            with self._file(layout.skipped):
                load_skipped(layout)
        snapshot_index = self._snapshot()
        self._logs(snapshot_index)
        self._journals(snapshot_index)
        return self._report

    @contextmanager
    def _file(self, path: Path) -> Iterator[None]:
        with _recorded(self._report, path):
            yield

    def _snapshot(self) -> int:
        layout, last_index = self._layout, -1
        if layout.snapshot.exists():
            with self._file(layout.snapshot):
                reader = SnapshotReader(layout.snapshot)
                last_index, self._snapshot_term = reader.last_index, reader.last_term
                for _ in reader:
                    pass
        if layout.older_snapshot.exists():
            with self._file(layout.older_snapshot):
                for _ in SnapshotReader(layout.older_snapshot):
                    pass
        return last_index

    def _logs(self, snapshot_index: int) -> None:
        """Check all segments and that each goes on where the one before ended."""
        layout, report = self._layout, self._report
        expected: int | None = None
        term = 0
        for first in layout.sealed_first_indexes():
            path = layout.sealed_log(first)
            self._follows(path, expected, first, snapshot_index)
            # If this segment cannot be read, the next one is believed.
            expected = None
            with self._file(path), FileSource(path) as source:
                scan = scan_sealed(source, path, first, term)
                self._check_cluster(scan, path)
                self._check_snapshot(scan, snapshot_index)
                expected, term = scan.last_index + 1, scan.last_term
                report.entries += len(scan.offsets)
                self._offsets(first, scan)
                self._sums(first, source)
        with self._file(layout.log), FileSource(layout.log) as source:
            scan = scan_live(source, layout.log, None, snapshot_index + 1, term)
            self._check_cluster(scan, layout.log)
            self._check_snapshot(scan, snapshot_index)
            self._follows(layout.log, expected, scan.first_index, snapshot_index)
            _note_scan(report, layout.log, scan)
            self._end(scan, snapshot_index)

    def _check_cluster(self, scan: LogScan, path: Path) -> None:
        if self._cluster_id is not None:
            scan.head.check_cluster(self._cluster_id, path)

    def _check_snapshot(self, scan: LogScan, snapshot_index: int) -> None:
        """See that the snapshot is of this log, where one of its segments has the snapshot's entry."""
        terms = [term for first, term in scan.term_starts if first <= snapshot_index <= scan.last_index]
        if terms and terms[-1] != self._snapshot_term:
            self._report.problems.append(
                Problem(self._layout.snapshot, None, foreign_snapshot(snapshot_index, self._snapshot_term, terms[-1]))
            )

    def _end(self, scan: LogScan, snapshot_index: int) -> None:
        """Compare the end of the log with what other files tell of it, as a start does."""
        layout = self._layout
        lost = find_lost_entries(layout, scan.last_index, snapshot_index, was_promised=scan.was_promised)
        if lost is not None and lost.was_synced:
            raise lost.error()
        if lost is not None:
            self._report.problems.append(Problem(layout.log, scan.end, str(lost), "loss"))

    def _offsets(self, first: int, scan: LogScan) -> None:
        path = self._layout.sealed_offsets(first)
        if path.exists():
            with self._file(path):
                if load_offsets(self._layout, first) != scan.offsets:
                    reason = "does not fit its log, which is walked instead"
                    self._report.problems.append(Problem(path, None, reason, "torn"))

    def _sums(self, first: int, log: FileSource) -> None:
        path = self._layout.sealed_sums(first)
        if path.exists():
            with self._file(path):
                sums = load_sums(self._layout, first)
                if sums is None or first_wrong_chunk(log, sums) is not None:
                    reason = "does not fit its log, whose records are checked one by one instead"
                    self._report.problems.append(Problem(path, None, reason, "torn"))

    def _follows(self, path: Path, expected: int | None, first: int, snapshot_index: int) -> None:
        if expected is None or expected == first:
            return
        if expected < first <= snapshot_index + 1:
            reason = (
                f"begins at entry {first}, the log before it ends with {expected - 1}; the snapshot is later than both"
            )
            self._report.problems.append(Problem(path, None, reason, "gap"))
        else:
            reason = f"begins at entry {first}, the log before it ends with {expected - 1}"
            self._report.problems.append(Problem(path, None, reason))

    def _journals(self, snapshot_index: int) -> None:
        layout = self._layout
        paths = [layout.sealed_events(first) for first in layout.sealed_first_indexes()]
        expected: int | None = None
        for path in [path for path in paths if path.exists()] + [layout.live_events]:
            with self._file(path):
                expected = _check_journal(self._report, path, expected)
        if layout.tail.exists():
            with self._file(layout.tail), FileSource(layout.tail) as source:
                tail = journalfile.decode_tail(source.read(0, source.size_bytes), layout.tail, 1)
                if expected is not None and tail.first_index <= expected <= tail.last_index:
                    expected = tail.last_index + 1
        if expected is not None and expected <= snapshot_index:
            reason = f"the journal lacks entries {expected} to {snapshot_index}, which lie before the snapshot"
            self._report.problems.append(Problem(layout.live_events, None, reason, "gap"))


def _check_journal(report: Report, path: Path, expected: int | None) -> int:
    """Check every block of one journal file and note its gaps; returns the index after its last block."""
    with FileSource(path) as source:
        first_index, row_bytes = journalfile.decode_header(source.read(0, journalfile.HEADER_BYTES), path)
        if expected is not None and expected < first_index:
            report.problems.append(
                Problem(path, None, f"the journal lacks entries {expected} to {first_index - 1}", "gap")
            )
        following = first_index
        for block in journalfile.iterate_blocks(source, path):
            rows = journalfile.read_block_rows(source, block)
            if rows is None:
                raise Damaged(path, "wrong checksum of a block", block.offset)
            inside = journalfile.rows_between(rows, row_bytes, block.first_index, block.last_index)
            if len(inside) != len(rows):
                raise Damaged(path, "a block has rows of other entries than it says", block.offset)
            if block.first_index > following:
                reason = f"the journal lacks entries {following} to {block.first_index - 1}"
                report.problems.append(Problem(path, block.offset, reason, "gap"))
            report.rows += block.row_count
            following = block.last_index + 1
    return following


def _note_scan(report: Report, path: Path, scan: LogScan) -> None:
    report.entries += len(scan.offsets)
    if scan.torn is not None:
        report.problems.append(Problem(path, scan.torn.offset, scan.torn.reason, "torn"))
    for mark in scan.lost_marks:
        report.problems.append(Problem(path, mark.offset, "a damaged mark; no entry is missing", "torn"))


def _verify_file(report: Report, path: Path) -> None:
    kind = kind_of(path)
    with _recorded(report, path):
        with FileSource(path) as source:
            version = version_of(source, path, kind)
        check = _CHECKS[kind] if version >= 2 else _check_described
        check(report, path)


def _check_log(report: Report, path: Path) -> None:
    with FileSource(path) as source:
        if path.name == "raft.log":
            _note_scan(report, path, scan_live(source, path, None, 0))
        else:
            first = int(path.stem) if path.stem.isdigit() else None
            scan = scan_sealed(source, path, first)
            report.entries += len(scan.offsets)


def _check_events(report: Report, path: Path) -> None:
    _check_journal(report, path, None)


def _check_described(_report: Report, path: Path) -> None:
    """What can be read to its end is good."""
    for line in describe(path):
        if line.kind == "bad":
            raise Damaged(path, str(line.fields["reason"]), line.offset)


_CHECKS: dict[FileKind, Callable[[Report, Path], None]] = {
    "log": _check_log,
    "metadata": _check_described,
    "skipped": _check_described,
    "snapshot": _check_described,
    "events": _check_events,
    "tail": _check_described,
    "offsets": _check_described,
    "sums": _check_described,
}


@contextmanager
def _recorded(report: Report, path: Path) -> Iterator[None]:
    """Count the file, and turn what is raised about it into a problem."""
    report.files.append(path)
    if path.exists():
        report.bytes += path.stat().st_size
    try:
        yield
    except StorageError as error:
        report.problems.append(Problem(error.file, error.offset, error.reason))
