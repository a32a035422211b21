"""All rows of the table, one module per subject."""

from __future__ import annotations

from bench.model import Plan, Row
from bench.rows import backlog, latency, put, take, taskflux


def all_rows(plan: Plan) -> list[Row]:
    """The rows in the order in which they are measured."""
    return [*put.ROWS, *take.ROWS, *latency.ROWS, *taskflux.ROWS, *backlog.rows(plan)]
