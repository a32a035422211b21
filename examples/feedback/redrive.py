"""Feedback: find messages that starve or fail again and again in the pipeline's tables, and give them another try.

What waits too long comes back with a more urgent key, what failed too often with a less urgent one; dead letters go
back to the queue they came from. Gold says where to look, silver which messages, the node what is still there.

With a node and its pipeline running (`make run`): python examples/feedback/redrive.py --help
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.spark.pipeline.tables import read_table, watermark
from penstock.spark.session import open_session

TIMES = "redriven"
"""The header that counts how often a message was given another try."""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Give messages that starve or fail another try, with a new key.")
    parser.add_argument("--tables", type=Path, default=Path("penstock-data/pipeline"), help="the pipeline's directory")
    parser.add_argument("--endpoint", default="127.0.0.1:2602", help="the node, host:port")
    parser.add_argument("--waited", type=float, default=600, help="seconds; who was never delivered in them starves")
    parser.add_argument("--failures", type=int, default=3, help="who failed or timed out so often fails")
    parser.add_argument("--urgent-key", type=int, default=-1, help="the new key of those who starve")
    parser.add_argument("--later-key", type=int, default=1000, help="the new key of those who fail")
    parser.add_argument("--times", type=int, default=3, help="nobody gets more tries than this")
    parser.add_argument("--count-max", type=int, default=10_000, help="messages in one go")
    parser.add_argument("--dry-run", action="store_true", help="only tell")
    return parser.parse_args()


def find(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Who starves or fails, by the tables: queue_uid, id, source, queue (where to), key and why."""
    now = watermark(args.tables).time
    if now is None:
        raise SystemExit("the tables hold no event yet")
    queues = read_table(spark, args.tables, "gold.queue_minutes").groupBy("queue_uid")
    busy = queues.agg(F.max_by("depth", "minute").alias("depth")).where("depth > 0")
    messages = read_table(spark, args.tables, "silver.messages").withColumn("tries", F.expr("failures + timeouts"))
    died = messages.where("outcome = 'dead-lettered'").select(
        F.col("queue_uid").alias("origin_queue_uid"),
        F.col("id").alias("origin_id"),
        F.col("queue").alias("home"),
        F.col("tries").alias("tries_at_home"),
    )
    waiting = messages.where("state = 'ready'").join(busy, "queue_uid", "left_semi")
    since = F.lit(now - timedelta(seconds=args.waited))
    why = F.when(F.coalesce("tries_at_home", "tries") >= args.failures, "failed").when(
        F.col("home").isNull() & F.col("first_delivered").isNull() & (F.col("first_available") <= since), "starved"
    )
    return (
        waiting.join(died, ["origin_queue_uid", "origin_id"], "left")
        .withColumn("why", why)
        .where("why is not null")
        .select(
            "queue_uid",
            "id",
            F.col("queue").alias("source"),
            F.coalesce("home", "queue").alias("queue"),
            F.when(F.col("why") == "failed", args.later_key).otherwise(args.urgent_key).cast("bigint").alias("key"),
            "why",
        )
    )


def choose(spark: SparkSession, args: argparse.Namespace) -> pa.Table:
    """Those of them that the node still has, with what they carry. Fixed here, so that all steps mean the same ones.

    The tables may be behind the node: who was taken or deleted since, or was given another try a moment ago, is left.
    """
    now = spark.read.format("penstock").option("endpoint", args.endpoint)
    records = now.option("table", "records").load().where("state = 'ready'")
    records = records.select("queue_uid", "id", "payload", "headers", "expires_at")
    queues = now.option("table", "queues").load().select("queue")
    headers = F.coalesce("headers", F.create_map().cast("map<string,string>"))
    times = F.coalesce(F.expr(f"try_cast(try_element_at(headers, '{TIMES}') as int)"), F.lit(0))
    others = F.map_filter(headers, lambda name, _: name != TIMES)
    return (
        find(spark, args)
        .join(records, ["queue_uid", "id"])
        .join(queues, "queue", "left_semi")
        .withColumn("times", times + 1)
        .where(F.col("times") <= args.times)
        .withColumn("headers", F.map_concat(others, F.create_map(F.lit(TIMES), F.col("times").cast("string"))))
        .withColumn("dedup_key", F.concat_ws(":", F.lit("redrive"), "queue_uid", "id"))
        .orderBy("queue_uid", "id")
        .limit(args.count_max)
        .toArrow()
    )


def send(spark: SparkSession, args: argparse.Namespace, chosen: pa.Table) -> None:
    """Put copies through the sink, all or none, then delete the old ones.

    In this order nothing can be lost. If it ends between the two, the next run finds the old ones again, and their
    copies' deduplication keys keep it from sending them twice, for as long as the queue remembers these (ten minutes
    if nothing else is set).
    """
    copies = spark.createDataFrame(chosen).select("queue", "key", "payload", "headers", "expires_at", "dedup_key")
    copies.write.format("penstock").option("endpoint", args.endpoint).mode("append").save()
    ids = defaultdict(list)
    for row in chosen.select(["source", "id"]).to_pylist():
        ids[row["source"]].append(row["id"])
    with penstock.connect_sync(f"penstock://{args.endpoint}") as client:
        for source, some in ids.items():
            for start in range(0, len(some), 1000):
                client.queue(source).delete(some[start : start + 1000])


def main() -> None:
    """Find, tell, send."""
    args = arguments()
    spark = open_session("redrive")
    chosen = choose(spark, args)
    for row in chosen.select(["why", "id", "source", "queue", "key"]).to_pylist():
        print(f"{row['why']}: message {row['id']} of {row['source']} goes to {row['queue']} with key {row['key']}")
    if chosen.num_rows and not args.dry_run:
        send(spark, args, chosen)
    print(f"{'would re-drive' if args.dry_run else 're-drove'} {chosen.num_rows}")


if __name__ == "__main__":
    main()
