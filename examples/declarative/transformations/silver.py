"""Silver: a row for each message and for each MoniQue task."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipeline.messages import fold
from penstock.spark.pipeline.tasks import fold_in_one_plan
from penstock.spark.schemas import MESSAGES, TASKS, ddl

spark = SparkSession.active()
# Each run begins with the first event, before which nothing was open. Made here, since a query function may not ask
# Spark for anything.
NO_MESSAGES = spark.createDataFrame([], ddl(MESSAGES))
NO_TASKS = spark.createDataFrame([], ddl(TASKS))


@dp.materialized_view
def messages() -> DataFrame:
    """The life of every message, folded from all its events."""
    return fold(spark.read.table("all_events"), NO_MESSAGES)


@dp.materialized_view
def tasks() -> DataFrame:
    """MoniQue's tasks. Chains of any length take several passes, of which there are three here."""
    return fold_in_one_plan(spark.read.table("all_topics"), NO_TASKS)
