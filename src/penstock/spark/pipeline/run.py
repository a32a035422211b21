"""The pipeline: from the history to bronze, silver and gold, step by step, exactly once.

    with Pipeline(spark, "127.0.0.1:2602", "tables") as pipeline:
        pipeline.run_once()

A run goes from where the tables are to where the history is when it begins, in turns of a bounded number of events.
A turn reads its entries into bronze, folds them into silver and gold, and publishes all of it at once. What fails or is
killed has changed nothing that a reader can see.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Final

from msgspec import structs

from penstock.spark.errors import DataLost, PipelineError
from penstock.spark.pipeline.bronze import NAME as BRONZE
from penstock.spark.pipeline.bronze import append_events
from penstock.spark.pipeline.compaction import COMPACTED, choose, compact
from penstock.spark.pipeline.delta import check_delta, publish_delta
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.failures import told_plainly
from penstock.spark.pipeline.manifest import Gap, Table, new_manifest
from penstock.spark.pipeline.minutes import fold_minutes
from penstock.spark.pipeline.silver import BUCKETS, MESSAGES, TASKS, fold_messages, fold_tasks
from penstock.spark.pipeline.slices import next_slice
from penstock.spark.schemas import PIPELINE_TABLES
from penstock.spark.source.history import History
from penstock.spark.source.names import GONE
from penstock.spark.source.offsets import check_cluster
from penstock.spark.source.options import read_options
from penstock.spark.source.reading import open_source
from penstock.wire.native.messages import Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ROWS_PER_RUN: Final = 2_000_000
_PATIENCE_SECONDS: Final = 5.0
SETTINGS: Final = {
    # Bronze goes on in short jobs while silver and gold take long ones.
    "spark.scheduler.mode": "FAIR",
    # The driver lists files faster than a job does, unless they are very many.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "4096",
    # A turn needs more generated classes than the 100 that Spark keeps: it would compile all of them again each time.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
"""Settings of a session that suit a pipeline; it runs without them too."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    step: str
    """What is being done: bronze, silver, gold, compaction; done at the end."""
    first_index: int
    """The last entry that all tables contained when the run began."""
    index: int
    """The last entry that all tables contain."""
    last_index: int
    """The entry at which the run will end."""
    rows: int
    """How many events this run has put into bronze."""
    seconds: float
    """How long it has been running."""


class Pipeline:
    """Writes the tables of one directory, which nobody else may write meanwhile. Use it in a ``with`` block.

    The source is the endpoint of a cluster (``host:port[,host:port…]``) or the path of a data directory; text is taken
    for a path if it has a ``/`` and is no URL.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str | Path,
        directory: str | Path,
        *,
        format: str | None = None,
        allow_gap: bool = False,
        rows_per_run: int = ROWS_PER_RUN,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        if format == DELTA:
            check_delta()
        self.spark = spark
        self.stop = Event()
        """Set it, from anywhere, to end a run after its current turn."""
        place = "path" if is_path(source) else "endpoint"
        self.options = read_options({place: str(source), "failOnDataLoss": str(not allow_gap).lower()})
        self.directory = Directory(Path(directory))
        self._format = format
        self._allow_gap = allow_gap
        self._rows_per_run = rows_per_run
        self._on_progress = on_progress
        self._began = time.monotonic()
        self._rows = 0
        self._first_index = self._last_index = -1

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another pipeline have the directory."""
        self.directory.close()

    def open_history(self) -> History:
        """The history for planning. It is given up sooner than in a task, so that one can be told, or stop."""
        patience = min(self.options.timeout_seconds, _PATIENCE_SECONDS)
        return open_source(dataclasses.replace(self.options, timeout_seconds=patience))

    # Runs.

    def run_once(self) -> int:
        """Bring all tables to where the history is now; how many events were new. Ends early if told to stop."""
        with self.open_history() as history, told_plainly():
            last_index = self.begin(history).applied_index
            while not self.stop.is_set() and self._is_behind(last_index):
                changes, gaps = self._next_bronze(history, last_index)
                changes |= self._next_derived(changes)
                self._publish(changes, gaps)
            self.compact()
            self._tell("done")
        return self._rows

    def run_bronze(self) -> int:
        """Bring bronze alone to where the history is now; how many events were new."""
        with self.open_history() as history:
            last_index = self.begin(history).applied_index
            while not self.stop.is_set() and self.append(history, last_index) < last_index:
                pass
        return self._rows

    def begin(self, history: History) -> Reach:
        """Sweep up, and see that the history is the one that the tables are made of; make them if there are none."""
        self.directory.sweep()
        reach = history.reach()
        self._last_index, self._rows, self._began = reach.applied_index, 0, time.monotonic()
        manifest = self.directory.manifest
        if manifest is None:
            first = new_manifest(reach.cluster, reach.first_index, format=self._format or PARQUET, buckets=BUCKETS)
            self.directory.begin(first)
        else:
            check_cluster(manifest.cluster, reach)
        self._begin_delta()
        self._begin_gap(reach)
        self._first_index = self._complete()
        return reach

    def append(self, history: History, last_index: int) -> int:
        """Bring bronze alone to an entry, or as near as one turn goes, and publish it; its watermark."""
        self._last_index = last_index
        with told_plainly():
            changes, gaps = self._next_bronze(history, last_index)
            if changes:
                self._publish(changes, gaps)
        return self.directory.tables[BRONZE].watermark

    def derive(self) -> bool:
        """Bring silver and gold one turn nearer to bronze and publish them; whether there was anything to do."""
        with told_plainly():
            changes = self._next_derived({})
            if changes:
                self._publish(changes)
        return bool(changes)

    def compact(self, names: tuple[str, ...] = COMPACTED) -> None:
        """Join small files of these tables where they have become too many."""
        with told_plainly():
            for name in names:
                table = self.directory.tables[name]
                runs = choose(table)
                if runs:
                    self._tell("compaction")
                    self._publish({name: compact(self.spark, self.directory.path, name, table, runs)})

    # Their parts.

    def _is_behind(self, last_index: int) -> bool:
        return self._complete() < last_index

    def _begin_delta(self) -> None:
        manifest = self.directory.published
        if manifest.format == DELTA and self._format == PARQUET:
            raise PipelineError(
                f"the tables in {self.directory.path} are Delta tables; go on with them as such (--format delta), "
                "or use a new directory"
            )
        if DELTA in (manifest.format, self._format):
            check_delta()
            path = self.directory.path
            self.directory.follow = lambda manifest, names: publish_delta(path, manifest, names)
            if manifest.format != DELTA:
                self.directory.publish({}, format=DELTA)
            # What a crash has left undone, or all of it if these were no Delta tables before.
            publish_delta(path, self.directory.published)

    def _begin_gap(self, reach: Reach) -> bool:
        """Pass over what is gone where bronze should go on, if that is allowed; whether there was a gap."""
        bronze = self.directory.tables[BRONZE]
        if bronze.watermark + 1 >= reach.first_index:
            return False
        if not self._allow_gap:
            raise DataLost(bronze.watermark + 1, reach.first_index)
        gap = Gap(bronze.watermark + 1, reach.first_index - 1)
        self._publish({BRONZE: structs.replace(bronze, watermark=gap.last_index)}, [gap])
        return True

    def _next_bronze(self, history: History, last_index: int) -> tuple[dict[str, Table], list[Gap]]:
        """The next events as changes of the manifest."""
        bronze = self.directory.tables[BRONZE]
        if bronze.watermark >= last_index:
            return {}, []
        self._tell("bronze")
        try:
            (cut,) = history.cuts(bronze.watermark + 1, last_index, rows_max=self._rows_per_run, count_max=1)
        except GONE:
            # The node has let go of them since the run began.
            if not self._begin_gap(history.reach()):
                raise
            return self._next_bronze(history, last_index)
        if not cut.rows:
            return {BRONZE: structs.replace(bronze, watermark=cut.last_index)}, []
        table, gaps = append_events(self.spark, self.directory, history, self.options, cut.last_index)
        self._rows += sum(file.rows for file in table.files) - sum(file.rows for file in bronze.files)
        return {BRONZE: table}, gaps

    def _next_derived(self, changes: Mapping[str, Table]) -> dict[str, Table]:
        """What follows for silver and gold, as changes of the manifest."""
        manifest = self.directory.published
        manifest = structs.replace(manifest, tables={**manifest.tables, **changes})
        bronze, silver = manifest.tables[BRONZE], manifest.tables[MESSAGES]
        if silver.watermark >= bronze.watermark:
            return {}
        part = next_slice(bronze, silver, self._rows_per_run)
        if not part.files:
            others = [name for name in PIPELINE_TABLES if name != BRONZE]
            return {name: structs.replace(manifest.tables[name], watermark=part.last_index) for name in others}
        path = self.directory.path
        self._tell("silver")
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(fold_tasks, self.spark, path, manifest, part)
            derived = {MESSAGES: fold_messages(self.spark, path, manifest, part), TASKS: heard.result()}
        manifest = structs.replace(manifest, tables={**manifest.tables, **derived})
        self._tell("gold")
        return derived | fold_minutes(self.spark, path, manifest, part)

    def _publish(self, changes: Mapping[str, Table], gaps: Iterable[Gap] = ()) -> None:
        self.directory.publish(changes, gaps=gaps)

    def _tell(self, step: str) -> None:
        seconds = time.monotonic() - self._began
        self._on_progress(Progress(step, self._first_index, self._complete(), self._last_index, self._rows, seconds))

    def _complete(self) -> int:
        """The last entry that all tables contain."""
        return min(table.watermark for table in self.directory.tables.values())


def is_path(source: str | Path) -> bool:
    """Whether a source names files and not nodes."""
    return isinstance(source, Path) or (os.sep in source and "://" not in source)
