"""A pipeline that goes on: again and again in turns, or continuously.

What may pass, such as a node that is away or a disk that is full, is told and tried again. What cannot pass by itself
ends the loop: another cluster's history, entries that are gone, a Spark that has died.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from penstock.client.errors import PenstockError
from penstock.spark.errors import AnotherCluster, DataLost, PipelineError, SparkSideError
from penstock.spark.pipeline.bronze import NAME as BRONZE
from penstock.spark.pipeline.compaction import COMPACTED
from penstock.spark.pipeline.run import Pipeline
from penstock.spark.source.offsets import check_cluster
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.source.history import History

EVERY_SECONDS: Final = 30.0
"""How often silver and gold follow bronze in a continuous pipeline."""
_WAIT_SECONDS: Final = 1.0
"""So long a node is asked to wait for something new; and so long it takes at most to notice that one should stop."""
_RETRY_SECONDS: Final = 5.0
_MAY_PASS: Final = (SparkSideError, PenstockError, StorageError)
_WILL_NOT_PASS: Final = (AnotherCluster, DataLost)


def run_every(
    pipeline: Pipeline,
    seconds: float,
    *,
    on_failure: Callable[[Exception], None],
    on_published: Callable[[], None] = lambda: None,
) -> None:
    """Run again and again, a turn beginning so many seconds after the last one began, until told to stop."""
    while not pipeline.stop.is_set():
        began = time.monotonic()
        with _tried_again(pipeline, on_failure):
            pipeline.run_once()
            on_published()
        pipeline.stop.wait(max(0.0, began + seconds - time.monotonic()))


def run_continuously(
    pipeline: Pipeline,
    seconds: float = EVERY_SECONDS,
    *,
    on_failure: Callable[[Exception], None],
    on_published: Callable[[], None] = lambda: None,
) -> None:
    """Bring new events into bronze as they come, and silver and gold every so many seconds, until told to stop."""
    while not pipeline.stop.is_set():
        with _tried_again(pipeline, on_failure), pipeline.open_history() as history:
            pipeline.begin(history)
            _Following(pipeline, history, seconds, on_published).follow()
        if not pipeline.stop.is_set():
            pipeline.stop.wait(_RETRY_SECONDS)


class _Following:
    """Bronze in this thread, silver and gold in another: neither waits for the other."""

    def __init__(self, pipeline: Pipeline, history: History, seconds: float, on_published: Callable[[], None]) -> None:
        self._pipeline = pipeline
        self._history = history
        self._seconds = seconds
        self._on_published = on_published
        self._derive_at = time.monotonic()
        self._deriving: Future[None] | None = None

    def follow(self) -> None:
        """Go on until told to stop, or until something fails; what was begun is finished first."""
        # Jobs of one pool wait for each other, those of two share the cores.
        with contextlib.suppress(Exception):  # a Connect session has no context, and shares its cores as it likes
            self._pipeline.spark.sparkContext.setLocalProperty("spark.scheduler.pool", BRONZE)
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-derive") as pool:
            while not self._pipeline.stop.is_set():
                self._append()
                self._derive(pool)
        if self._deriving is not None:
            self._deriving.result()

    def _append(self) -> None:
        pipeline, cluster = self._pipeline, self._pipeline.directory.published.cluster
        watermark = pipeline.directory.tables[BRONZE].watermark
        reach = self._history.reach(watermark, _WAIT_SECONDS)
        check_cluster(cluster, reach)
        if reach.applied_index > watermark:
            pipeline.append(self._history, reach.applied_index)
            pipeline.compact((BRONZE,))

    def _derive(self, pool: ThreadPoolExecutor) -> None:
        if self._deriving is not None and self._deriving.done():
            self._deriving.result()
            self._deriving = None
        if self._deriving is None and time.monotonic() >= self._derive_at:
            self._derive_at = time.monotonic() + self._seconds
            self._deriving = pool.submit(self._derive_all)

    def _derive_all(self) -> None:
        is_new = False
        while not self._pipeline.stop.is_set() and self._pipeline.derive():
            is_new = True
        if is_new:
            self._pipeline.compact(tuple(name for name in COMPACTED if name != BRONZE))
            self._on_published()


@contextlib.contextmanager
def _tried_again(pipeline: Pipeline, on_failure: Callable[[Exception], None]) -> Iterator[None]:
    try:
        yield
    except _WILL_NOT_PASS:
        raise
    except _MAY_PASS as error:
        if not _is_alive(pipeline.spark):
            raise PipelineError(f"Spark has ended: {error}") from error
        on_failure(error)


def _is_alive(spark: SparkSession) -> bool:
    try:
        return spark.range(1).count() == 1
    except Exception:  # whatever it is, Spark does not answer
        return False
