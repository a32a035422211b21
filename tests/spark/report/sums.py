"""What gold adds up to, as DuckDB says: plain SQL over the files, and nothing of the report's own reckoning.

A queue's name stands for all queues that had it, as in the report. Moments are minutes since the epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from penstock.spark.pipeline.tables import table_files

COUNTED = (
    *("arrivals", "completions", "acked", "expired", "dead_lettered", "deleted", "moved"),
    *("deliveries", "redeliveries", "failures"),
)
MINUTE_US = 60_000_000
_TABLES = ("queue_minutes", "dead_letters", "key_bands", "wait_buckets", "worker_minutes", "spec_minutes")
_NAMED = f"""
CREATE TABLE queues AS SELECT * EXCLUDE queue, max(queue) OVER (PARTITION BY queue_uid) AS name,
    epoch_us(minute) // {MINUTE_US} AS number,
    row_number() OVER (PARTITION BY queue_uid ORDER BY minute DESC) = 1 AS is_last,
    depth - lag(depth, 1, 0) OVER (PARTITION BY queue_uid ORDER BY minute) AS change,
    oldest_age_us + least($end_us, coalesce(
        lead(epoch_us(minute)) OVER (PARTITION BY queue_uid ORDER BY minute), $end_us)
    ) - least($end_us, epoch_us(minute) + {MINUTE_US}) AS aged_us
FROM queue_minutes
"""
"""With each minute, how old its oldest message had become when the next minute with news began."""


class Sums:
    """The gold tables of a pipeline, added up."""

    def __init__(self, directory: Path) -> None:
        self._duck = duckdb.connect()
        for name in _TABLES:
            files = [str(path) for path in table_files(directory, f"gold.{name}")]
            self._duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files!r})")
        bronze = [str(path) for path in table_files(directory, "bronze.events")]
        self.end_us: int = self.one("SELECT epoch_us(max(time)) FROM read_parquet($files)", files=bronze)
        """Up to when everything is known."""
        self._duck.execute(_NAMED, {"end_us": self.end_us})
        self.begin: int = self.one(
            f"""SELECT min(epoch_us(minute)) // {MINUTE_US} FROM (SELECT minute FROM queue_minutes UNION ALL
            SELECT minute FROM worker_minutes UNION ALL SELECT minute FROM spec_minutes)"""
        )
        """The first minute in which anything happened."""

    def close(self) -> None:
        self._duck.close()

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._duck.execute(query, values).fetchall()

    def one(self, query: str, **values: Any) -> Any:
        ((value,),) = self.rows(query, **values)
        return value

    def totals(self) -> dict[str, int]:
        """Of all queues: what happened, what is open, and for how long."""
        counted = self.rows(f"SELECT {_added(COUNTED)} FROM queues")[0]
        depth, oldest_us = self.rows("SELECT sum(depth), max(aged_us) FROM queues WHERE is_last")[0]
        return {**dict(zip(COUNTED, counted, strict=True)), "depth": depth, "oldest_age_us": oldest_us}

    def queues(self) -> dict[str, dict[str, Any]]:
        """The same by name, the busiest first."""
        found = self.rows(
            f"""SELECT name, {_added(COUNTED)}, sum(depth) FILTER (is_last), max(aged_us) FILTER (is_last)
            FROM queues GROUP BY name ORDER BY sum(arrivals) + sum(deliveries) DESC, name"""
        )
        names = (*COUNTED, "depth", "oldest_age_us")
        return {name: dict(zip(names, values, strict=True)) for name, *values in found}

    def peaks(self, names: list[str]) -> tuple[int, int | None]:
        """The greatest depth that these queues had together, and the greatest age that a message in them reached."""
        return self.rows(
            """SELECT (SELECT max(level) FROM (SELECT sum(sum(change)) OVER (ORDER BY number) AS level
                FROM queues WHERE name IN $names GROUP BY number)), max(aged_us)
            FROM queues WHERE name IN $names""",
            names=names,
        )[0]

    def by_bin(self, minutes: int) -> dict[int, tuple[int, int, int, int]]:
        """Arrivals, completions, deliveries and redeliveries by bins of so many minutes, where there are any."""
        found = self.rows(
            """SELECT number // $minutes * $minutes,
                sum(arrivals), sum(completions), sum(deliveries), sum(redeliveries)
            FROM queues GROUP BY 1""",
            minutes=minutes,
        )
        return {begin: tuple(counts) for begin, *counts in found if any(counts)}

    def dead_letters(self) -> dict[tuple[str, str], int]:
        """By queue and reason, the most frequent first."""
        found = self.rows(
            """SELECT name, coalesce(reason, ''), sum(count)
            FROM dead_letters JOIN (SELECT DISTINCT queue_uid, name FROM queues) USING (queue_uid)
            GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"""
        )
        return {(queue, reason): count for queue, reason, count in found}

    def dead_letters_by_bin(self, minutes: int) -> dict[str, dict[int, int]]:
        """By reason and bin, the most frequent reason first."""
        found = self.rows(
            f"""SELECT coalesce(reason, ''), epoch_us(minute) // {MINUTE_US} // $minutes * $minutes, sum(count)
            FROM dead_letters GROUP BY 1, 2 ORDER BY sum(sum(count)) OVER (PARTITION BY 1) DESC, 1""",
            minutes=minutes,
        )
        bins: dict[str, dict[int, int]] = {}
        for reason, begin, count in found:
            bins.setdefault(reason, {})[begin] = count
        return dict(sorted(bins.items(), key=lambda each: (-sum(each[1].values()), each[0])))

    def arrivals_by_band(self) -> dict[str, int]:
        return dict(self.rows("SELECT band, sum(arrivals) FROM key_bands GROUP BY band"))

    def waits(self) -> dict[str, dict[int, int]]:
        """First deliveries by band of keys and upper edge."""
        waits: dict[str, dict[int, int]] = {}
        query = "SELECT band, below_us, sum(count) FROM wait_buckets GROUP BY 1, 2 ORDER BY 1, 2"
        for band, below_us, count in self.rows(query):
            waits.setdefault(band, {})[below_us] = count
        return waits

    def doors(self, *more: str) -> list[tuple[Any, ...]]:
        """What was put, taken, acked and returned by door, or by connection too (`more`), the busiest first."""
        keys = ", ".join(("door", *more))
        return self.rows(
            f"""SELECT {keys}, {_added(("arrivals", "deliveries", "acked", "returned"))} FROM worker_minutes
            GROUP BY {keys} ORDER BY sum(arrivals) + sum(deliveries) DESC, {keys}"""
        )

    def specs(self) -> dict[str, dict[str, Any]]:
        """What began and ended by spec; how long it took in a typical minute, weighed by what ended, and the worst."""
        names = ("spec", "started", "results", "errors", "p95_worst_us")
        found = self.rows(
            "SELECT spec, sum(started), sum(results), sum(errors), max(duration_p95_us) FROM spec_minutes GROUP BY spec"
        )
        specs = {row[0]: dict(zip(names, row, strict=True)) for row in found}
        for percent in (50, 95):
            column = f"duration_p{percent}_us"
            typical = f"""
                SELECT spec, min({column}) FROM (SELECT spec, {column},
                    sum(results + errors) OVER (PARTITION BY spec ORDER BY {column}) AS up_to,
                    sum(results + errors) OVER (PARTITION BY spec) AS ended
                FROM spec_minutes WHERE {column} IS NOT NULL)
                WHERE 2 * up_to >= ended GROUP BY spec"""
            for spec, value_us in self.rows(typical):
                specs[spec][f"p{percent}_us"] = value_us
        return specs


def _added(columns: tuple[str, ...]) -> str:
    return ", ".join(f"sum({column})" for column in columns)
