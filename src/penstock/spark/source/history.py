"""Where the history comes from: a cluster's nodes or files, read by the same methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from penstock.client.endpoints import SCHEME
from penstock.client.history import HistoryReader
from penstock.spark.source.heads import check_heads
from penstock.wire.native.messages import Cut, JournalPiece, Reach

RETRY_TIMEOUT_S: Final = 30.0
"""So long a node that cannot be reached is tried again, for instance while it restarts."""


class History(Protocol):
    """The whole history of a cluster. Both ends of a range of entries are included."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """Let go of connections and files."""

    def reach(self, after: int = -1, wait_seconds: float = 0.0) -> Reach:
        """How far the history reaches; waits for an entry after ``after`` if that is asked for."""

    def queue_names(self) -> dict[int, str]:
        """The names of queues by uid, also of queues that were deleted lately."""

    def find_time(self, time_us: int) -> int:
        """The first entry that was stamped at a time or later; one behind the last if there is none."""

    def entries(self, indexes: list[int]) -> dict[int, bytes]:
        """Single entries by index; those that are gone are missing."""

    def cuts(
        self, first_index: int, last_index: int, *, rows_max: int = 0, bytes_max: int = 0, count_max: int = 0
    ) -> list[Cut]:
        """These entries as consecutive ranges, each as long as it can be within the limits; 0 is none."""

    def pieces(
        self, first_index: int, last_index: int, *, bytes_max: int = ..., with_log: bool = True
    ) -> Iterator[JournalPiece]:
        """The history of these entries, piece by piece."""

    def state(self) -> tuple[int, Iterator[bytes]]:
        """The whole state at one index, as blocks of a snapshot of the engine."""


def open_history(
    endpoint: str | None = None, path: str | None = None, *, retry_timeout: float = RETRY_TIMEOUT_S
) -> History:
    """The history of a cluster (``host:port[,host:port…]``) or of files. Use it in a ``with`` block.

    ``path`` is one file or directory, or several segments separated by commas.
    """
    if endpoint is not None:
        url = endpoint if "://" in endpoint else f"{SCHEME}://{endpoint}"
        return HistoryReader(url, retry_timeout=retry_timeout, check_heads=check_heads)
    if path is None:
        raise ValueError("neither an endpoint nor a path")
    from penstock.storage.history import HistoryFiles

    paths = [path] if Path(path).exists() else path.split(",")
    return HistoryFiles([Path(each.strip()) for each in paths], check_heads)
