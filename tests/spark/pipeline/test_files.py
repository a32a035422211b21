"""Files of tables: rows go to their parts, figures are exact, compaction changes files and not rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipeline import minutes, silver
from penstock.spark.pipeline.compaction import FILES_MAX, STEPS_BYTES, choose, compact
from penstock.spark.pipeline.files import PART, PartWriter, Target, write_frame
from penstock.spark.pipeline.manifest import File, Table, bucket_part, new_manifest
from penstock.spark.pipeline.minutes import _open_and_ended as open_and_ended
from penstock.spark.pipeline.silver import MESSAGES, day_of, message_bucket
from penstock.spark.pipeline.slices import Slice, next_slice, read_minutes, read_slice
from penstock.spark.pipeline.tables import read_files
from penstock.spark.schemas import KEY_BANDS, PIPELINE_TABLES, arrow_schema
from tests.spark.generated.comparing import differences
from tests.spark.pipeline.keeping import DAY, DAY_US, table_of, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_LENGTH_US = 86_400_000_000
NO_SPARK: Any = None
GOLD = [name for name in PIPELINE_TABLES if name.startswith("gold.")]


def small(number: int, size_bytes: int = 1000, part: str = DAY) -> File:
    """A file of one entry."""
    return File(f"{number:05d}", part, 1, size_bytes, number, number)


def test_events_go_to_their_days(tmp_path: Path) -> None:
    """Also where a day ends in the middle of a batch; to the microsecond."""
    files = write_events(tmp_path, 0, 5, step_us=DAY_LENGTH_US // 2)
    assert [(file.part, file.rows) for file in files] == [("2026-01-01", 2), ("2026-01-02", 2), ("2026-01-03", 1)]
    last = write_events(tmp_path, 1, 2, step_us=DAY_LENGTH_US - 1)
    assert [file.part for file in last] == ["2026-01-01", "2026-01-02"]


def test_others_cannot_read_the_files_of_tables(tmp_path: Path) -> None:
    (file,) = write_events(tmp_path / "tables", 5, 20)
    path = tmp_path / "tables" / file.path
    above = [each for each in path.parents if each.is_relative_to(tmp_path / "tables")]
    assert path.stat().st_mode & 0o007 == 0
    assert [each.stat().st_mode & 0o007 for each in above] == [0] * len(above)


def test_the_figures_of_a_file_are_those_of_its_rows(tmp_path: Path) -> None:
    (file,) = write_events(tmp_path, 5, 20)
    assert (file.rows, file.first_index, file.last_index, file.broadcasts) == (20, 5, 24, 2)
    assert (file.first_us, file.last_us) == (DAY_US + 5000, DAY_US + 24000)
    assert file.bytes == (tmp_path / file.path).stat().st_size
    assert pq.read_schema(tmp_path / file.path).metadata[b"penstock.watermark"] == b"24"


def test_parts_that_take_turns_keep_their_rows_in_order(tmp_path: Path) -> None:
    schema = arrow_schema(KEY_BANDS)
    writer = PartWriter(Target(tmp_path, "gold.key_bands", 1))
    for start in range(0, 30, 10):
        rows = [{"queue_uid": number, "minute": number * 60_000_000} for number in range(start, start + 10)]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        writer.write_split(batch.append_column(PART, pa.array([f"part-{number % 3}" for number in range(10)])))
    files = writer.close()
    assert [file.part for file in files] == ["part-0", "part-1", "part-2"]
    found = [pq.read_table(tmp_path / file.path)["queue_uid"].to_pylist() for file in files]
    assert found == [[n for n in range(30) if n % 10 % 3 == part] for part in range(3)]


def test_rows_of_a_file_from_before_a_column_was_added_get_nulls(tmp_path: Path) -> None:
    """Joining files of an earlier version with newer ones must not end a run."""
    schema = arrow_schema(KEY_BANDS)
    writer = PartWriter(Target(tmp_path, "gold.key_bands", 1))
    rows = [{"queue_uid": number, "minute": number * 60_000_000} for number in range(3)]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema.remove(len(schema) - 1)), "day")
    (file,) = writer.close()
    found = pq.read_table(tmp_path / file.path)
    assert found["queue_uid"].to_pylist() == [0, 1, 2]
    assert found[schema.names[-1]].null_count == 3


def test_a_slice_is_made_of_whole_files_and_begins_where_silver_is() -> None:
    files = tuple(File(str(n), DAY, 100, 1, n * 10, n * 10 + 9, n * 1000, n * 1000 + 900) for n in range(5))
    bronze = Table(55, 4900, files)
    part = next_slice(bronze, Table(-1), 250)
    assert (part.after_index, part.last_index, part.files) == (-1, 19, files[:2])
    assert (part.from_us, part.last_us) == (0, 1900)
    # The third file is only half taken in: what is new in it is not earlier than what is known.
    part = next_slice(bronze, Table(25, 2500), 10_000)
    assert (part.last_index, part.files, part.from_us, part.last_us) == (55, files[2:], 2500, 4900)
    assert next_slice(bronze, Table(-1), 1).files == files[:1]
    # A file of which nothing is left is not taken again: the next turn would end where it began.
    assert next_slice(bronze, Table(19, 1900), 1).files == files[2:3]
    nothing = next_slice(bronze, Table(50, 4900), 100)
    assert (nothing.last_index, nothing.files, nothing.last_us) == (55, (), 4900)


def test_a_slice_reads_its_own_events_out_of_files_that_have_others_too(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction joins what silver has with what it lacks, and bronze may be ahead."""
    files = tuple(write_events(tmp_path, 0, 30))
    part = Slice(9, 19, DAY_US + 10_000, DAY_US + 19_000, files)
    events = read_slice(spark, tmp_path, part)
    assert sorted(row["index"] for row in events.select("index").collect()) == list(range(10, 20))


def test_gold_reads_whole_minutes_to_the_end_of_the_slice(spark: SparkSession, tmp_path: Path) -> None:
    """An event on the very stroke of the first minute belongs to it, also as the last one of its file."""
    tens = 10_000_000
    files = [file for first in (0, 7, 13) for file in write_events(tmp_path, first, 6 + (first == 0), step_us=tens)]
    assert files[0].last_us == DAY_US + 6 * tens, "it ends on the stroke of the second minute"
    part = Slice(8, 14, DAY_US + 8 * tens, DAY_US + 14 * tens, tuple(files[1:]))
    events = read_minutes(spark, tmp_path, Table(18, files[-1].last_us, tuple(files)), part)
    assert sorted(row["index"] for row in events.select("index").collect()) == list(range(6, 15))


def test_gold_reads_what_is_open_and_what_ended_since_its_first_minute(spark: SparkSession, tmp_path: Path) -> None:
    """To the microsecond, also where a file ends on the stroke of the minute."""
    minute_us = DAY_US + 60_000_000
    ends_us = {1: minute_us - 1, 2: minute_us, 3: minute_us + 1, 4: None}
    writer = PartWriter(Target(tmp_path, MESSAGES, 9))
    for parts in ((1, 2), (3,), (4,)):
        rows = [{"queue_uid": 1, "id": number, "done": ends_us[number]} for number in parts]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PIPELINE_TABLES[MESSAGES]))
        writer.write(batch, bucket_part(7) if parts == (4,) else f"part-{parts[0]}")
    manifest = new_manifest("c", 0, format="parquet", buckets=32)
    manifest.tables[MESSAGES] = Table(9, minute_us, tuple(writer.close()))
    found = open_and_ended(spark, tmp_path, manifest, MESSAGES, Slice(5, 9, minute_us + 7, minute_us + 9, ()))
    assert sorted(row["id"] for row in found.select("id").collect()) == [2, 3, 4]


@pytest.mark.parametrize(("broadcasts", "is_made"), [((0, 0), False), ((0, 3), True), ((3, 0), True), ((1, 1), True)])
def test_topics_are_looked_at_where_any_file_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broadcasts: tuple[int, int], is_made: bool
) -> None:
    """Of tasks and of the minutes of specs: where nobody spoke, they are what they were."""
    files = tuple(File(str(n), DAY, 1, 1, n, n, DAY_US, DAY_US, count) for n, count in enumerate(broadcasts))
    part = Slice(-1, 1, DAY_US, DAY_US, files)
    manifest = new_manifest("c", 0, format="parquet", buckets=32)
    made: list[str] = []

    def make(name: str) -> Table:
        made.append(name)
        return Table(1)

    monkeypatch.setattr(minutes, "_replace_minutes", lambda *args: make(args[3]))
    tables = minutes.fold_minutes(NO_SPARK, tmp_path, manifest, part)
    assert (minutes.SPEC_MINUTES in made) == is_made
    assert {name: table.watermark for name, table in tables.items()} == dict.fromkeys(GOLD, 1)
    monkeypatch.setattr(silver, "read_slice", lambda *_: None)
    monkeypatch.setattr(silver.topics, "parse", lambda _: Mock())
    monkeypatch.setattr(silver, "_fold_heard", lambda *_: make(silver.TASKS))
    assert silver.fold_tasks(NO_SPARK, tmp_path, manifest, part).watermark == 1
    assert (silver.TASKS in made) == is_made


def test_few_small_files_are_left_alone() -> None:
    assert choose(Table(1, 1, tuple(small(n) for n in range(FILES_MAX)))) == []


def test_too_many_small_neighbours_are_joined_by_day() -> None:
    files = [small(n, part=part) for part in ("2026-01-01", "2026-01-02") for n in range(FILES_MAX + 1)]
    runs = choose(Table(1, 1, (*reversed(files), *(small(n, part=bucket_part(n)) for n in range(32)))))
    assert [[file.path for file in run] for run in runs] == [[f"{n:05d}" for n in range(FILES_MAX + 1)]] * 2


def test_a_large_file_is_not_written_again_for_a_few_small_ones() -> None:
    large, larger = small(0, STEPS_BYTES[0]), small(1, STEPS_BYTES[-1])
    tiny = [small(n) for n in range(2, 3 + FILES_MAX)]
    assert choose(Table(1, 1, (large, larger, *tiny))) == [tiny]
    assert choose(Table(1, 1, (large, *tiny[1:]))) == []
    middling = [small(n, STEPS_BYTES[0]) for n in range(FILES_MAX + 1)]
    assert choose(Table(1, 1, (*middling, small(100)))) == [[*middling, small(100)]]


def test_the_number_of_files_stays_small_and_each_row_is_written_a_few_times() -> None:
    """A file of 100 kB a second for three hours."""
    files: list[File] = []
    written_bytes = 0
    for number in range(3 * 3600):
        files.append(small(number, 100_000))
        for run in choose(Table(1, 1, tuple(files))):
            joined = File(f"j{number}", DAY, 1, sum(f.bytes for f in run), run[0].first_index, run[-1].last_index)
            files = sorted([*(f for f in files if f not in run), joined], key=lambda file: file.first_index)
            written_bytes += joined.bytes
        assert len(files) <= 3 * FILES_MAX + 20
    assert written_bytes < 5 * 3 * 3600 * 100_000


def test_compaction_keeps_the_rows_and_their_order(spark: SparkSession, tmp_path: Path) -> None:
    files = [file for n in range(20) for file in write_events(tmp_path, n * 10, 10)]
    table = Table(207, DAY_US, tuple(files))
    runs = choose(table)
    assert len(runs) == 1
    joined = compact(spark, tmp_path, "bronze.events", table, runs)
    (file,) = joined.files
    assert (file.rows, file.first_index, file.last_index, file.broadcasts) == (200, 0, 199, 20)
    assert (joined.watermark, joined.time_us) == (207, DAY_US), "entries without events count too"
    manifest = new_manifest("c", 0, format="parquet", buckets=32)
    manifest.tables["bronze.events"] = table
    before = table_of(tmp_path, manifest, "bronze.events")
    manifest.tables["bronze.events"] = joined
    after = table_of(tmp_path, manifest, "bronze.events")
    assert after.equals(before)
    assert differences("bronze.events", before, after) == []


@pytest.mark.parametrize("folder", ["plain", "with space", "a [b] {c}*?"])
def test_spark_reads_what_was_written_wherever_it_lies(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    directory = tmp_path / folder
    files = write_events(directory, 0, 30)
    frame = read_files(spark, directory, "bronze.events", files)
    assert frame.count() == 30
    assert frame.where("index = 3").first().headers == {"a": "b"}


def test_a_frame_is_written_by_parts(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 5000, 1, 2).selectExpr(
        *("id % 7 queue_uid", "'q' queue", "timestamp_micros(id) minute", "'b' band", "id arrivals"),
        f"concat('part-', id % 3) {PART}",
    )
    files = write_frame(rows, Target(tmp_path, "gold.key_bands", 9))
    assert [file.part for file in files] == ["part-0"] * 2 + ["part-1"] * 2 + ["part-2"] * 2
    assert sum(file.rows for file in files) == 5000
    found = [pq.read_table(tmp_path / file.path)["arrivals"].to_pylist() for file in files]
    assert sorted(number for numbers in found for number in numbers) == list(range(5000))


def test_neighbouring_messages_are_in_one_bucket(spark: SparkSession) -> None:
    """What happens to messages of one time touches few buckets; over time all are used."""
    rows = spark.range(0, 64 << 16, 1 << 10).selectExpr("5 queue_uid", "id")
    buckets = [row[0] for row in rows.select(message_bucket(64)).collect()]
    blocks = [set(buckets[start : start + 64]) for start in range(0, len(buckets), 64)]
    assert all(len(block) == 1 for block in blocks)
    assert len(set(buckets)) > 32


def test_days_are_those_of_utc_whatever_the_session_says(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        moments = [DAY_US - 1, DAY_US, DAY_US + DAY_LENGTH_US - 1]
        frame = spark.createDataFrame([(each,) for each in moments], "us bigint").selectExpr("timestamp_micros(us) t")
        assert [row[0] for row in frame.select(day_of("t")).collect()] == ["2025-12-31", DAY, DAY]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
