"""What a user would write first: a data source in Python that unpacks the journal row by row and yields tuples."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.client.events import read_events
from penstock.engine.journal import KINDS
from penstock.storage.history import HistoryFiles

_PARTITIONS = 2


class _Range(InputPartition):
    def __init__(self, first_index: int, last_index: int) -> None:
        self.first_index = first_index
        self.last_index = last_index


class RowSource(DataSource):
    """The history of a data directory, a tuple at a time."""

    @classmethod
    def name(cls) -> str:
        """Part of DataSource."""
        return "penstock-rowwise"

    def schema(self) -> str:
        """Part of DataSource."""
        columns = "`index` bigint, n int, time timestamp, queue string, id bigint, kind string, key bigint"
        return f"{columns}, payload binary"

    def reader(self, schema: object) -> DataSourceReader:
        """Part of DataSource."""
        return _Reader(Path(self.options["path"]))


class _Reader(DataSourceReader):
    def __init__(self, path: Path) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        with HistoryFiles(self._path) as files:
            reach = files.reach()
        first, end = reach.first_index, reach.applied_index + 1
        edges = [first + (end - first) * number // _PARTITIONS for number in range(_PARTITIONS + 1)]
        return [_Range(start, stop - 1) for start, stop in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, _Range)
        with HistoryFiles(self._path) as files:
            names = files.queue_names()
            for event in read_events(files, partition.first_index, partition.last_index):
                view = event.view
                yield (
                    view.index,
                    view.n,
                    datetime.fromtimestamp(view.time_us / 1e6, UTC),
                    names.get(view.queue_uid),
                    view.id,
                    KINDS[view.kind][0],
                    view.key,
                    event.payload or None,
                )
