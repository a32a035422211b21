"""A store that keeps nothing but the journal, in memory: for tests of programs that use Penstock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CLUSTER_ID_BYTES = 16


class _Nowhere:
    """A snapshot that is not kept: the state it would restore ends with the process."""

    def write_block(self, block: bytes) -> None:
        """Nothing to do."""

    def finish(self) -> None:
        """Nothing to do."""

    def abort(self) -> None:
        """Nothing to do."""


class MemoryStore:
    """The node's store without a disk. What the log holds is gone with the process."""

    cluster_id = bytes(CLUSTER_ID_BYTES)
    snapshot_index = -1
    disk_full = False

    def __init__(self) -> None:
        self.log_bytes = 0
        self._journal: list[tuple[int, bytes]] = []

    def append(self, entries: Sequence[tuple[int, int, bytes]]) -> None:
        """Count the bytes."""
        self.log_bytes += sum(len(data) for _, _, data in entries)

    def sync(self) -> None:
        """Nothing to do."""

    def mark(self) -> None:
        """Nothing to do."""

    def save_metadata(self, term: int, vote: int | None) -> None:
        """Nothing to do."""

    def journal_append(self, index: int, rows: bytes) -> None:
        """Keep the rows, so that histories can be told."""
        if rows:
            self._journal.append((index, rows))

    def journal_sync_ahead(self) -> None:
        """Nothing to sync."""

    def journal_rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        """The rows of a range of entries."""
        return iter([rows for index, rows in self._journal if first_index <= index <= last_index])

    def begin_snapshot(self, index: int, term: int) -> _Nowhere:
        """Nothing to keep."""
        return _Nowhere()

    def run_retention(self, now_s: float) -> None:
        """Nothing to do."""

    def try_recover_space(self) -> bool:
        """There is always space."""
        return True

    def close(self) -> None:
        """Nothing to do."""
