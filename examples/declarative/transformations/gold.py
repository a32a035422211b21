"""Gold: figures per minute, all made anew in each run.

The last minute of a queue is told as it stands at its end, and not at the last event as in `penstock pipeline`: a view
does not know in advance how far the events go.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipeline.gold import TABLES
from penstock.spark.pipeline.gold import spec_minutes as make_spec_minutes

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 1, 1, tzinfo=UTC)

spark = SparkSession.active()


def view(make: Callable[[DataFrame, DataFrame, datetime, datetime], DataFrame]) -> Callable[[], DataFrame]:
    """A view from all events and all messages."""
    return lambda: make(spark.read.table("all_events"), spark.read.table("all_messages"), LAST, FIRST)


for name, make in TABLES.items():
    dp.materialized_view(name=name.removeprefix("gold."))(view(make))


@dp.materialized_view
def spec_minutes() -> DataFrame:
    """How the tasks of each spec went."""
    return make_spec_minutes(spark.read.table("all_tasks"), FIRST)
