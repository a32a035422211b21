"""The format `penstock` as Spark sees it.

Spark imports this wherever it looks for formats, so what reading and writing need is imported when they begin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from penstock.spark.errors import BadOption
from penstock.spark.schemas import NEVER_NULL, SOURCE_TABLES, ddl
from penstock.spark.source.options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_STATES = ("records", "queues")
"""Tables that are a state, and no stream."""


class DefaultSource(DataSource):
    """Reads the history and the state of a cluster or of files, and writes records into queues."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)` and `USING …`."""
        return "penstock"

    def schema(self) -> str:
        """The columns of the table that the options name."""
        options = read_options(self.options)
        return ddl(options.schema, NEVER_NULL if options.table == "events" else ())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a table as a batch."""
        options = self._read_options(schema)
        if options.table in _STATES:
            from penstock.spark.source.state import StateReader

            return StateReader(options)
        from penstock.spark.source.reading import EntriesReader

        return EntriesReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows a table as a stream."""
        options = self._read_options(schema)
        if options.table in _STATES:
            raise BadOption("table", f"{options.table} is a state and no stream: read it with spark.read")
        from penstock.spark.source.streaming import EntriesStreamReader

        return EntriesStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a batch of records."""
        from penstock.spark.source.writing import make_writer

        return make_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes a stream of records."""
        from penstock.spark.source.writing import make_stream_writer

        return make_stream_writer(schema, self.options, overwrite)

    def _read_options(self, schema: StructType) -> SourceOptions:
        """The options, with the columns of the schema: a user may give one instead of the option `columns`."""
        options = read_options(self.options)
        known = SOURCE_TABLES[options.table]
        for field in schema.fields:
            if field.dataType.simpleString() != known.get(field.name):
                right = f"it is {known[field.name]}" if field.name in known else f"there are {', '.join(known)}"
                raise BadOption("schema", f"{options.table} has no such column {field.name}: {right}")
            if not field.nullable and (options.table != "events" or field.name not in NEVER_NULL):
                raise BadOption("schema", f"the column {field.name} of {options.table} may be null")
        chosen = read_options({**self.options, "columns": ",".join(schema.fieldNames())})
        return replace(chosen, never_null=frozenset(field.name for field in schema.fields if not field.nullable))
