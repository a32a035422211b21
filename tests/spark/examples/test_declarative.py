"""The declarative project: it is sound, and a second run goes on where the first one stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.spark.schemas import PIPELINE_TABLES, TOPICS, arrow_schema
from penstock.testing import TestServer

RUN = Path(__file__).resolve().parents[3] / "examples" / "declarative" / "run.py"
PATIENCE_S = 280.0
TABLES = {**{name.partition(".")[2]: columns for name, columns in PIPELINE_TABLES.items()}, "topics": TOPICS}


@pytest.fixture
def node(java: None) -> Iterator[TestServer]:
    with TestServer() as server:
        with penstock.connect_sync(server.url) as client:
            client.queue("dead").create()
            client.queue("jobs").create(deliveries_max=1, dead_letter="dead")
        yield server


def run(node: TestServer, folder: Path, *options: str) -> str:
    endpoint = node.url.removeprefix("penstock://")
    command = [sys.executable, str(RUN), "--endpoint", endpoint, "--to", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Run is COMPLETED" in done.stdout + done.stderr
    return done.stdout


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted((folder / "tables" / name).glob("*.parquet"))
    assert files, name
    for file in files:
        found = {field.name: field.type for field in pq.read_schema(file)}
        assert list(found) == list(arrow_schema(TABLES[name]).names), name
    return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.mark.long
def test_the_project_is_sound(node: TestServer, tmp_path: Path) -> None:
    run(node, tmp_path / "w", "--dry-run")
    assert not list((tmp_path / "w").rglob("*.parquet"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_second_run_goes_on_where_the_first_one_stopped(node: TestServer, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    with penstock.connect_sync(node.url) as client:
        jobs = client.queue("jobs")
        jobs.put_many(["one", "two"])
        jobs.take().ack()
        run(node, folder)
        assert outcomes(folder) == {1: "acked", 2: None}
        jobs.take().nack()
        jobs.put("three", key=7)
        for number in range(1, 4):
            parent = f"task-{number - 1}" if number > 1 else ""
            client.broadcast(0, f"config:add:task-{number}:{parent}:tester".encode(), b"{}")
        run(node, folder)
    events = table(folder, "events")
    places = [(row["index"], row["n"], row["item"]) for row in events]
    assert len(set(places)) == len(places)
    assert sum(row["kind"] == "put" for row in events) == 3
    assert outcomes(folder) == {1: "acked", 2: "dead-lettered", 3: None}
    minutes = [row for row in table(folder, "queue_minutes") if row["queue"] == "jobs"]
    assert [sum(row[name] for row in minutes) for name in ("arrivals", "acked", "dead_lettered")] == [3, 1, 1]
    assert max(minutes, key=lambda row: row["minute"])["depth"] == 1
    tasks = sorted((row["id"], row["spec"], row["depth"]) for row in table(folder, "tasks"))
    assert tasks == [("task-1", "add", 0), ("task-2", "add", 1), ("task-3", "add", 2)]
    for name in TABLES:
        table(folder, name)


def outcomes(folder: Path) -> dict[int, str | None]:
    return {row["id"]: row["outcome"] for row in table(folder, "messages") if row["queue"] == "jobs"}
