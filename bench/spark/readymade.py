"""The most that a source in Python can reach: it does nothing but hand Spark the same batch again and again.

The batch is one of the history, with the columns that are measured, so what Spark has to do is the same. What is left
of the time is Spark's own: a source in Python hands it columns, and it makes rows of them, one at a time and twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.source.datasource import DefaultSource
from penstock.spark.source.reading import EntriesReader, read_partition

_PARTITIONS = 2


class ReadySource(DefaultSource):
    """As many rows as the option `rows` of the format `penstock` says, without reading them."""

    @classmethod
    def name(cls) -> str:
        """Part of DataSource."""
        return "penstock-readymade"

    def __init__(self, options: dict[str, str]) -> None:
        self._rows = int(options.pop("rows"))
        super().__init__(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Part of DataSource."""
        return _Reader(self._read_options(schema), self._rows)


class _Share(InputPartition):
    def __init__(self, sample: InputPartition, rows: int) -> None:
        self.sample = sample
        self.rows = rows


class _Reader(EntriesReader):
    def __init__(self, options: object, rows: int) -> None:
        super().__init__(options)
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        sample = super().partitions()[0]
        return [_Share(sample, -(-self._rows // _PARTITIONS)) for _ in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        batch = next(read_partition(self._options, partition.sample))
        left = partition.rows
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
