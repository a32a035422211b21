"""Two tables that must be equal, and where they are not, told with examples."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

KEYS: dict[str, tuple[str, ...]] = {
    "bronze.events": ("index", "n", "item"),
    "silver.messages": ("queue_uid", "id"),
    # A task that ended in the entry in which it began may begin again in it, under the same id.
    "silver.tasks": ("started_index", "id", "done_index"),
    "gold.queue_minutes": ("queue_uid", "minute"),
    "gold.dead_letters": ("queue_uid", "minute", "reason"),
    "gold.key_bands": ("queue_uid", "minute", "band"),
    "gold.wait_buckets": ("queue_uid", "minute", "band", "below_us"),
    "gold.worker_minutes": ("door", "owner", "minute"),
    "gold.spec_minutes": ("spec", "minute"),
}
"""What names a row of each table."""
_TOTALS = (
    "arrivals",
    "completions",
    "acked",
    "expired",
    "dead_lettered",
    "deleted",
    "moved",
    "deliveries",
    "redeliveries",
)
_SHOWN = 3


def differences(name: str, expected: pa.Table, found: pa.Table) -> list[str]:
    """What is wrong with a table of this name, in sentences; empty where it is as expected, to the last bit."""
    keys = KEYS[name]
    if found.column_names != expected.column_names:
        return [f"{name} has the columns {found.column_names}"]
    found, expected = _in_order(found.cast(expected.schema), keys), _in_order(expected, keys)
    if found.select(keys).equals(expected.select(keys)):
        return [
            f"{name}.{column}: {_examples(expected, found, keys, column)}"
            for column in expected.column_names
            if not found.column(column).equals(expected.column(column))
        ]
    wanted, there = ({tuple(row.values()) for row in each.select(keys).to_pylist()} for each in (expected, found))
    said = [
        f"{name} has {found.num_rows} rows, not {expected.num_rows}; {len(there)} of them are different ones",
        *(f"{name} lacks {keys} = {row}" for row in sorted(wanted - there, key=str)[:_SHOWN]),
        *(f"{name} should not have {keys} = {row}" for row in sorted(there - wanted, key=str)[:_SHOWN]),
    ]
    return said


def totals_of(queue_minutes: pa.Table) -> dict[int, dict[str, int]]:
    """What the minutes of each queue add up to, by uid."""
    sums = queue_minutes.group_by("queue_uid").aggregate([(column, "sum") for column in _TOTALS])
    return {row["queue_uid"]: {column: row[f"{column}_sum"] for column in _TOTALS} for row in sums.to_pylist()}


def _in_order(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    order = pc.sort_indices(table.select(keys), sort_keys=[(key, "ascending") for key in keys])
    return table.take(order).combine_chunks()


def _examples(expected: pa.Table, found: pa.Table, keys: tuple[str, ...], column: str) -> str:
    rows = [expected.column(key).to_pylist() for key in keys]
    pairs = zip(*rows, expected.column(column).to_pylist(), found.column(column).to_pylist(), strict=True)
    wrong = [pair for pair in pairs if pair[-1] != pair[-2]]
    some = (f"{dict(zip(keys, pair[:-2], strict=True))} is {pair[-1]!r}, not {pair[-2]!r}" for pair in wrong[:_SHOWN])
    return f"{len(wrong)} wrong: " + "; ".join(some)
