"""Gold made up for the report's tests: two days of fourteen queues, some with names that mean harm."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.report.gold import Gold
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema

BEGIN = datetime(2025, 3, 14, 21, 7, tzinfo=UTC)
MINUTES = 2200
END = BEGIN + timedelta(minutes=MINUTES - 1, seconds=24)
"""The watermark lies in the last minute."""
HOSTILE = (
    "<script>document.title='taken'</script>",
    "\"'/><svg onload=alert(1)> &amp; \u202egnp.exe",
    "a-queue-with-a-name-" + "that-does-not-end-" * 8,
    "队列 für Grüße\n\x00",
)
NAMES = (
    *("orders", "emails", "thumbnails", "invoices", "search-index", "webhooks", "reports", "exports", "imports"),
    *HOSTILE,
    "cleanup",
)
BANDS = ("< 0", "0 to 9", "10 to 99", "100 to 999", "1,000 to 9,999", "1,000,000 and more")
DOORS = ("native", "taskflux", "etzel", "monique")
REASONS = ("nack", "lease timeout", "expired")

Tables = dict[str, list[dict[str, Any]]]


def make_tables(seed: int = 7) -> Tables:
    """Rows of every gold table."""
    chance = random.Random(seed)
    tables: Tables = defaultdict(list)
    for number, name in enumerate(NAMES):
        _queue(tables, chance, number, name)
    for door_number, door in enumerate(DOORS):
        for worker in range(6 - door_number):
            _worker(tables, chance, door, 7_000_001 + 17 * worker + door_number)
    for number, spec in enumerate(("render", "ocr", "example_calculator", HOSTILE[0], "transcode", "mail_merge")):
        _spec(tables, chance, spec, 40_000.0 * 6**number)
    return tables


def write_gold(folder: Path, tables: Tables, *, files: int = 3) -> Gold:
    """The tables as Parquet, each cut into several files."""
    written: dict[str, list[Path]] = {}
    for name, columns in PIPELINE_TABLES.items():
        if not name.startswith("gold."):
            continue
        table = pa.Table.from_pylist(tables.get(name, []), arrow_schema(columns))
        written[name] = []
        step = max(1, math.ceil(len(table) / files))
        for number, start in enumerate(range(0, len(table), step)):
            path = folder / f"{name}-{number}.parquet"
            pq.write_table(table.slice(start, step), path)
            written[name].append(path)
    return Gold(written, 123_456, END)


def _queue(tables: Tables, chance: random.Random, number: int, name: str) -> None:
    rate = 60 / (1 + number) ** 1.3
    depth, oldest = 0, 0.0
    for minute in range(MINUTES):
        time = BEGIN + timedelta(minutes=minute)
        wave = 1 + 0.8 * math.sin(minute / 1440 * 2 * math.pi - 1 + number)
        arrivals = _poisson(chance, rate * wave)
        slow = 0.35 if name == "emails" and 900 < minute < 1100 else 1.06
        ended = min(depth + arrivals, _poisson(chance, rate * (wave * 0.8 + 0.3) * slow))
        if not arrivals and not ended:
            continue
        again = _poisson(chance, ended * (0.3 if 900 < minute < 1000 else 0.03))
        dead = min(ended, _poisson(chance, again * 0.2))
        depth += arrivals - ended
        oldest = depth / rate * 60e6 if depth else 0.0
        place = {"queue_uid": number + 1, "queue": name, "minute": time}
        tables["gold.queue_minutes"].append(
            {
                **place,
                "arrivals": arrivals,
                "completions": ended,
                "acked": ended - dead,
                "expired": 0,
                "dead_lettered": dead,
                "deleted": 0,
                "moved": 0,
                "deliveries": ended + again,
                "redeliveries": again,
                "redelivery_rate": again / (ended + again) if ended + again else 0.0,
                "failures": again,
                "depth": depth,
                "oldest_age_us": round(oldest) if depth else None,
            }
        )
        _dead_letters(tables, chance, place, dead)
        _bands(tables, chance, place, arrivals, ended)


def _dead_letters(tables: Tables, chance: random.Random, place: dict[str, Any], dead: int) -> None:
    counted: dict[str, int] = defaultdict(int)
    for reason in chance.choices(REASONS, (6, 3, 1), k=dead):
        counted[reason] += 1
    tables["gold.dead_letters"] += [{**place, "reason": reason, "count": count} for reason, count in counted.items()]


def _bands(tables: Tables, chance: random.Random, place: dict[str, Any], arrivals: int, ended: int) -> None:
    weights = (1, 30, 40, 20, 6, 2)
    arrived: dict[str, int] = defaultdict(int)
    for band in chance.choices(BANDS, weights, k=arrivals):
        arrived[band] += 1
    tables["gold.key_bands"] += [{**place, "band": band, "arrivals": count} for band, count in arrived.items()]
    waited: dict[tuple[str, int], int] = defaultdict(int)
    for band in chance.choices(BANDS, weights, k=ended):
        wait_us = chance.lognormvariate(math.log(20_000) + 1.6 * BANDS.index(band), 1.5)
        waited[band, max(1024, 2 ** math.floor(math.log2(wait_us) + 1))] += 1
    tables["gold.wait_buckets"] += [
        {**place, "band": band, "below_us": below_us, "count": count} for (band, below_us), count in waited.items()
    ]


def _worker(tables: Tables, chance: random.Random, door: str, owner: int) -> None:
    for minute in range(0, MINUTES, 3):
        taken = _poisson(chance, 400 / (10 + owner % 1000))
        returned = min(taken, _poisson(chance, 0.1))
        tables["gold.worker_minutes"].append(
            {
                "door": door,
                "owner": owner,
                "minute": BEGIN + timedelta(minutes=minute),
                "arrivals": _poisson(chance, 2),
                "deliveries": taken,
                "acked": taken - returned,
                "returned": returned,
            }
        )


def _spec(tables: Tables, chance: random.Random, spec: str, middle_us: float) -> None:
    for minute in range(5, MINUTES, 11):
        ended = _poisson(chance, 3)
        errors = min(ended, _poisson(chance, 0.1))
        p50_us = round(chance.lognormvariate(math.log(middle_us), 0.3))
        tables["gold.spec_minutes"].append(
            {
                "spec": spec,
                "minute": BEGIN + timedelta(minutes=minute),
                "started": ended + 1,
                "results": ended - errors,
                "errors": errors,
                "success_rate": (ended - errors) / ended if ended else None,
                "duration_p50_us": p50_us if ended else None,
                "duration_p95_us": 4 * p50_us if ended else None,
                "duration_p99_us": 9 * p50_us if ended else None,
            }
        )


def _poisson(chance: random.Random, mean: float) -> int:
    """A drawn count; large means by their normal approximation."""
    if mean > 30:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
