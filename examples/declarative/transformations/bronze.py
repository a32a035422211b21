"""Bronze: what the broker's log holds, each event appended once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


def history(table: str) -> DataFrame:
    """A table of the history, from where the last run stopped to what there is now."""
    source = spark.readStream.format("penstock").option("endpoint", os.environ["PENSTOCK_ENDPOINT"])
    return source.option("table", table).load()


@dp.table
def events() -> DataFrame:
    """Everything that happened."""
    return history("events")


@dp.table
def topics() -> DataFrame:
    """MoniQue's messages, taken apart."""
    return history("topics")
