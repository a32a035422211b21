"""All rows of the table, one module per subject."""

from __future__ import annotations

from bench.model import Plan, Row
from bench.rows import backlog, etzel, history, large, latency, monique, put, spark, take, taskflux


def all_rows(plan: Plan) -> list[Row]:
    """The rows in the order in which they are measured."""
    doors = [*taskflux.ROWS, *etzel.rows(plan), *monique.ROWS]
    puts = [*put.ROWS, *large.ROWS]
    return [*puts, *take.ROWS, *latency.ROWS, *history.ROWS, *doors, *backlog.rows(plan), *spark.rows(plan)]
