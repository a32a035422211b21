"""Beside a node with `storage.parquet`: its sealed segments are written as Parquet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.doors.server import Server
from penstock.node.feeding import queue_names
from penstock.settings import Settings
from penstock.spark.errors import ExtraMissing
from penstock.storage.errors import StorageError
from penstock.storage.layout import Layout

if TYPE_CHECKING:
    from penstock.spark.export import SegmentExport

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 60.0
"""After a failure, which is likely a full disk, there is no further try for so long."""


class ParquetBeside:
    """Writes each segment as Parquet once it is sealed, on a thread of its own. Raises ``ExtraMissing`` at once."""

    def __init__(self, settings: Settings) -> None:
        for package in ("pyarrow", "numpy"):
            if find_spec(package) is None:
                raise ExtraMissing(package)
        self._data_dir = Path(settings.data_dir)
        self._given_up: set[int] = set()
        """Segments that cannot be read; they are told once."""

    def announce(self, server: Server) -> Iterator[str]:
        """Where the files are."""
        yield f"parquet   {Layout(self._data_dir).archive.resolve()}: sealed segments as Parquet, too"

    async def run(self, server: Server) -> None:
        """Look for sealed segments again and again."""
        from penstock.spark.export import SegmentExport

        export = SegmentExport(self._data_dir)
        try:
            while True:
                pause_seconds = _LOOK_EVERY_SECONDS
                if not server.node.store.disk_full and not await self._write_all(server, export):
                    pause_seconds = _PAUSE_SECONDS
                await asyncio.sleep(pause_seconds)
        except Exception:
            log.exception("segments are no longer written as Parquet; the node serves on")
        finally:
            export.stop()

    async def _write_all(self, server: Server, export: SegmentExport) -> bool:
        for first_index in await asyncio.to_thread(export.missing):
            if first_index in self._given_up:
                continue
            names = {queue.uid: queue.name for queue in queue_names(server.node.engine.state)}
            try:
                path = await asyncio.to_thread(export.write, first_index, names)
            except StorageError as error:
                self._given_up.add(first_index)
                log.error("a segment cannot be written as Parquet: %s", error)
            except OSError as error:
                log.error("the segment at %d cannot be written as Parquet now: %s", first_index, error)
                return False
            else:
                if path is not None:
                    log.info("%s written", path)
        return True
