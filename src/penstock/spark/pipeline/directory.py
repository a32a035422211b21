"""The directory of the tables while a pipeline writes it: its lock, publishing, and sweeping up what nobody names."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from msgspec import structs

from penstock.spark.errors import NoTables, PipelineError, TablesInUse
from penstock.spark.pipeline.manifest import (
    KEPT_SECONDS,
    NAME,
    Dropped,
    Gap,
    Manifest,
    Table,
    load_manifest,
    store_manifest,
)
from penstock.spark.schemas import PIPELINE_TABLES
from penstock.storage.errors import StorageFailed
from penstock.storage.modes import FILE_MODE, make_directories

_LOCK: Final = "lock"
_TABLE_FILES: Final = "*.parquet"


class Directory:
    """Held by one process from its making until ``close``; others may read all the time."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path.absolute()
        self.follow: Callable[[Manifest, Iterable[str]], None] | None = None
        """Called after each publication with the names of the tables that changed, before old files are deleted."""
        self._clock = clock
        self._mutex = threading.Lock()
        self._descriptor = -1
        try:
            make_directories(self.path)
            self._lock()
        except OSError as error:
            raise PipelineError(f"{self.path} cannot be written: {error.strerror or error}") from error
        try:
            self.manifest: Manifest | None = load_manifest(self.path)
        except NoTables:
            self.manifest = None
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        path = self.path / _LOCK
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 64, 0).decode(errors="replace").strip()
            self.close()
            raise TablesInUse(str(self.path), holder or "of unknown process") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let another pipeline have the directory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables as they were last published."""
        return self.published.tables

    @property
    def published(self) -> Manifest:
        """The manifest as it was last published."""
        assert self.manifest is not None, "a run begins by making one"
        return self.manifest

    def begin(self, manifest: Manifest) -> None:
        """Publish the first manifest."""
        self.manifest = manifest
        self.publish({})

    def publish(self, tables: Mapping[str, Table], *, gaps: Iterable[Gap] = (), **changes: Any) -> None:
        """Make tables, and other fields of the manifest, be what is given; all at once, for all readers.

        Gaps are added to those that are known. Two threads may publish different tables.
        """
        with self._mutex:
            old = self.published
            now = self._clock()
            kept = [each for each in old.dropped if now - each.time < KEPT_SECONDS]
            expired = [each.path for each in old.dropped if now - each.time >= KEPT_SECONDS]
            changes |= {"tables": {**old.tables, **tables}, "gaps": (*old.gaps, *gaps)}
            new = structs.replace(old, generation=old.generation + 1, **changes)
            kept += [Dropped(path, now) for path in sorted(named(old) - named(new))]
            new = structs.replace(new, dropped=tuple(kept))
            try:
                store_manifest(self.path, new)
            except StorageFailed as error:
                raise PipelineError(f"{error}; the tables are as they were") from error
            self.manifest = new
            if self.follow is not None:
                self.follow(new, tables)
        for path in expired:
            (self.path / path).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove what runs that failed or were killed left behind; how many files that were.

        Only while no step of this pipeline is under way: what it writes is not named yet.
        """
        known = set() if self.manifest is None else named(self.manifest) | {each.path for each in self.manifest.dropped}
        count = 0
        for path in list(self._files()):
            if path.relative_to(self.path).as_posix() not in known:
                path.unlink(missing_ok=True)
                count += 1
        (self.path / f"{NAME}.new").unlink(missing_ok=True)
        return count

    def _files(self) -> Iterator[Path]:
        for name in PIPELINE_TABLES:
            yield from self.path.joinpath(*name.split(".")).glob(f"*/{_TABLE_FILES}")


def named(manifest: Manifest) -> set[str]:
    """The paths of all files of all tables."""
    return {file.path for table in manifest.tables.values() for file in table.files}
