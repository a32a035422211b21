"""MoniQue's tasks, folded from topic messages: a config begins one, the first result or error for it ends it.

A config is ignored while the task of its id is open, an answer while there is none. Thus what a message means depends
on nothing but the open tasks, and it does not matter where the log is cut. (A config that is sent again when its task
has ended is run again by the workers; it is a task of its own here, too.)

The depth of a task is one more than that of its parent, the last task begun before it whose id is its pid; 1 where no
such task is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.pipeline.expressions import conform, elapsed_us
from penstock.spark.schemas import TASKS

_POSITION: Final = ("index", "n", "item")
_ROUNDS_MAX: Final = 40
"""Enough for a chain of 2**40 tasks, which no slice has."""
_ROUNDS_IN_ONE_PLAN: Final = 3
DEPTH_IN_ONE_PLAN_MAX: Final = 2**_ROUNDS_IN_ONE_PLAN
"""Each round joins the plan so far with itself, so this is also how often the tasks are in it."""
_FAILURE: Final = "code int, message string"
"""What an error's data say."""

FindEnded = Callable[[DataFrame], DataFrame]
"""Gives (id, depth) of those tasks among the ids given (a column `id`) that ended before this slice; of several with
one id the last that began."""


def fold(topics: DataFrame, open_tasks: DataFrame, find_ended: FindEnded) -> DataFrame:
    """The open tasks given and all that the topic messages begin, as they are after them: rows of TASKS.

    ``topics`` is what a slice of the log without gaps holds, in any order; it is read once, here and now.
    ``open_tasks`` has at least those tasks that were open before and that it names, by id or by pid.
    """
    # Depths are found in several rounds over the tasks; to take topic messages apart again for each would be dear.
    tasks = _pair(_steps(topics, open_tasks)).localCheckpoint()
    depths = _depths(tasks, find_ended)
    known = tasks.join(depths, list(_POSITION), "left")
    return _rows(known.withColumn("depth", F.coalesce("depth", "found_depth", F.lit(0))))


def fold_in_one_plan(topics: DataFrame, open_tasks: DataFrame) -> DataFrame:
    """As ``fold`` over a whole history, for where nothing may be computed before all is planned.

    How far to look for depths is then not known either: beyond ``DEPTH_IN_ONE_PLAN_MAX`` a task has none.
    """
    tasks = _pair(_steps(topics, open_tasks))
    links = _links(tasks)
    # There was nothing before, so a parent that is not found is unknown.
    is_orphan = F.col("parent").isNull() & F.col("found_depth").isNull()
    links = links.withColumn("found_depth", F.when(is_orphan, F.lit(1)).otherwise(F.col("found_depth")))
    for _ in range(_ROUNDS_IN_ONE_PLAN):
        links = _look_further(links)
    known = tasks.join(links.select("self.*", "found_depth"), list(_POSITION), "left")
    without_parent = F.when(F.col("pid").isNull(), F.lit(0))
    return _rows(known.withColumn("depth", F.coalesce("depth", "found_depth", without_parent)))


def _rows(tasks: DataFrame) -> DataFrame:
    """Tasks with their answers as rows of TASKS."""
    failure = F.from_json(F.col("answer.data").cast("string"), _FAILURE)
    rows = tasks.select(
        *("id", "spec", "creator", "pid", "encoding", "created_at", "depth"),
        F.col("time").alias("started"),
        F.col("index").alias("started_index"),
        F.col("answer.time").alias("done"),
        F.col("answer.index").alias("done_index"),
        F.col("answer.type").alias("outcome"),
        F.col("answer.creator").alias("worker"),
        failure.getField("code").alias("error_code"),
        failure.getField("message").alias("error_message"),
        elapsed_us(F.col("time"), F.col("answer.time")).alias("duration_us"),
    )
    return conform(rows, TASKS)


def _steps(topics: DataFrame, open_tasks: DataFrame) -> DataFrame:
    """What concerns tasks, under the id of the task: configs, answers, and the open ones as they were."""
    is_config = F.col("type") == "config"
    # The id of an answer is its own; that of the task that it answers is its pid.
    task_id = F.when(is_config, F.col("id")).otherwise(F.col("pid"))
    wanted = (F.col("channel") == "com") & F.col("type").isin("config", "result", "error") & (task_id != "")
    is_readable_error = (F.col("type") == "error") & (F.col("encoding") == "JSON")
    said = topics.filter(wanted).select(
        *_POSITION,
        task_id.alias("id"),
        *("time", "type", "spec", "creator", "encoding", "created_at"),
        F.when(is_config & (F.col("pid") != ""), F.col("pid")).alias("pid"),
        F.when(is_readable_error, F.col("data")).alias("data"),
        F.lit(None).cast("int").alias("depth"),
    )
    known = open_tasks.select(
        *("id", "spec", "creator", "encoding", "created_at", "pid", "depth"),
        F.col("started").alias("time"),
        F.col("started_index").alias("index"),
        F.lit(-1).alias("n"),
        F.lit(-1).alias("item"),
        F.lit("config").alias("type"),
        F.lit(None).cast("binary").alias("data"),
    )
    return said.unionByName(known)


def _pair(steps: DataFrame) -> DataFrame:
    """Each step that begins a task, with the one that ends it in the column ``answer``, null while it is open."""
    in_order = Window.partitionBy("id").orderBy(*_POSITION)
    is_config = F.col("type") == "config"
    was_open = F.coalesce(F.lag(is_config).over(in_order), F.lit(False))
    counting = steps.withColumn("counts", is_config != was_open).filter("counts")
    # What is left begins and ends tasks by turns.
    answer = F.when(~is_config, F.struct("time", "index", "type", "creator", "data"))
    return counting.withColumn("answer", F.lead(answer).over(in_order)).filter(is_config)


def _depths(tasks: DataFrame, find_ended: FindEnded) -> DataFrame:
    """The depth (``found_depth``) of each new task that has a parent, by the position of its config."""
    links = _links(tasks).localCheckpoint()
    orphans = links.filter("parent is null and found_depth is null")
    if not orphans.isEmpty():
        links = _adopt(links, find_ended(orphans.select(F.col("pid").alias("id")).distinct())).localCheckpoint()
    # A child looks to its parent's parent, then to that one's parent's parent's parent: twice as far in each round.
    for _ in range(_ROUNDS_MAX):
        if links.filter("found_depth is null").isEmpty():
            break
        links = _look_further(links).localCheckpoint()
    return links.select("self.*", "found_depth")


def _links(tasks: DataFrame) -> DataFrame:
    """Each new task that has a pid (``self`` is its position), with the task begun before it that has this id.

    Where the parent's depth is known, ``found_depth`` tells the child's; else ``parent`` is the position to look at,
    ``steps`` up from the child.
    """
    position = F.struct(*_POSITION).alias("self")
    own_depth = F.coalesce(F.col("depth"), F.when(F.col("pid").isNull(), F.lit(0)))
    # On the same place the child stands first: no task is its own parent.
    parents = tasks.select(F.col("id").alias("name"), position, F.lit(1).alias("role"), own_depth.alias("own_depth"))
    is_child = F.col("depth").isNull() & F.col("pid").isNotNull()
    children = tasks.filter(is_child).select(
        *(F.col("pid").alias("name"), position, F.lit(0).alias("role"), F.lit(None).cast("int").alias("own_depth"))
    )
    so_far = Window.partitionBy("name").orderBy("self", "role").rowsBetween(Window.unboundedPreceding, -1)
    parent = F.last(F.when(F.col("role") == 1, F.struct("self", "own_depth")), ignorenulls=True).over(so_far)
    found = parents.unionByName(children).withColumn("found", parent).filter("role = 0")
    return found.select(
        "self",
        F.col("name").alias("pid"),
        F.when(F.col("found.own_depth").isNull(), F.col("found.self")).alias("parent"),
        F.lit(1).alias("steps"),
        (F.col("found.own_depth") + 1).alias("found_depth"),
    )


def _adopt(links: DataFrame, ended: DataFrame) -> DataFrame:
    """Links whose parent was not found, with the depth that ended tasks give them, or that of an unknown parent."""
    known = ended.groupBy(F.col("id").alias("pid")).agg(F.max("depth").alias("ended_depth"))
    depth = F.when(F.col("parent").isNull(), F.coalesce(F.col("ended_depth") + 1, F.lit(1)))
    joined = links.join(known, "pid", "left").withColumn("found_depth", F.coalesce("found_depth", depth))
    return joined.select(*links.columns)


def _look_further(links: DataFrame) -> DataFrame:
    """Links that know no depth yet take it from where they look, or look where that one looks."""

    def above(name: str) -> Column:
        return F.col(f"above.{name}")

    joined = links.alias("below").join(links.alias("above"), F.col("below.parent") == above("self"), "left")
    below_depth = F.col("below.found_depth")
    is_open = below_depth.isNull()
    return joined.select(
        F.col("below.self").alias("self"),
        F.col("below.pid").alias("pid"),
        F.when(is_open, above("parent")).alias("parent"),
        (F.col("below.steps") + F.when(is_open, above("steps")).otherwise(F.lit(0))).alias("steps"),
        F.coalesce(below_depth, above("found_depth") + F.col("below.steps")).alias("found_depth"),
    )
