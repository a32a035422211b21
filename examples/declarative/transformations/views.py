"""The tables as other tables read them.

In Spark 4.3 a query function that calls withColumn on a table of the catalog is bound to it at once. From the second
run on the tables are in the catalog, and such a function would neither wait for them nor see what they have got. Views
are in no catalog, so who reads these is bound when it runs.
"""

from collections.abc import Callable

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


def reading(table: str) -> Callable[[], DataFrame]:
    """What a table holds."""
    return lambda: spark.read.table(table)


for each in ("events", "topics", "messages", "tasks"):
    dp.temporary_view(name=f"all_{each}")(reading(each))
