"""Data source, sink and pipeline where Spark is not embedded: on a cluster of two workers, and by Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.spark.pipeline.tables import table_files
from penstock.testing import TestServer
from penstock.wire.native import messages as m
from soak.process import wait_until
from soak.spark_sink import Broker
from tests.spark.cluster.processes import cluster, connect_server, environment
from tests.spark.cluster.twins import ROWS_PER_TASK, TASKS

ROOT = Path(__file__).resolve().parents[3]
COUNT = 3000
PATIENCE_S = 250.0


@pytest.fixture(scope="module")
def node() -> Iterator[TestServer]:
    """A node with a history of several blocks."""
    with TestServer() as server:
        with penstock.connect_sync(server.url) as client:
            queue = client.queue("in")
            queue.create()
            for first in range(0, COUNT, 100):
                queue.put_many([penstock.Item(f"payload {key}", key=key) for key in range(first, first + 100)])
        yield server


def places(*long: str) -> pytest.MarkDecorator:
    """Runs a test in both places; in those that are named only where there is time."""
    known = {"cluster": ("master", cluster), "connect": ("remote", connect_server)}
    marks = {name: [pytest.mark.long] if name in long else [] for name in known}
    chosen = [pytest.param(what, id=name, marks=marks[name]) for name, what in known.items()]
    return pytest.mark.parametrize("place", chosen, indirect=True)


@pytest.fixture(scope="module")
def place(
    java: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """What the option is called that names a place, and what it says."""
    kind, start = request.param
    with start(tmp_path_factory.mktemp(kind)) as url:
        yield kind, url


@places("cluster", "connect")
def test_source_and_sink(place: tuple[str, str], node: TestServer, tmp_path: Path) -> None:
    kind, url = place
    done = run("tests.spark.cluster.trip", kind, url, endpoint(node), str(tmp_path / "checkpoint"))
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["keys"] == list(range(COUNT))
    assert len(seen["places"]) == (2 if kind == "master" else 1), "one for each worker"
    with penstock.connect_sync(node.url) as client:
        for name in ("batch", "stream"):
            written = [(record.key, record.payload) for record in client.queue(f"{kind}-{name}").browse(page=1000)]
            assert sorted(written) == [(key, b"payload %d" % key) for key in range(COUNT)], name


@places("cluster")
def test_pipeline(place: tuple[str, str], node: TestServer, tmp_path: Path) -> None:
    kind, url = place
    tables = tmp_path / "tables"
    run("penstock", "pipeline", "run", "--once", f"--{kind}", url, "--endpoint", endpoint(node), "--to", str(tables))
    messages = [row for file in table_files(tables, "silver.messages") for row in pq.read_table(file).to_pylist()]
    found = sorted(row["key"] for row in messages if row["queue"] == "in" and row["state"] == "ready")
    assert found == list(range(COUNT))


@pytest.mark.long
@pytest.mark.parametrize("place", [("master", cluster)], ids=["cluster"], indirect=True)
def test_a_task_and_its_twin_write_each_row_once(place: tuple[str, str], tmp_path: Path) -> None:
    """Spark starts a second attempt at a slow task; both stage, and one of them is published."""
    with Broker(tmp_path) as broker:
        broker.ask(c.CreateQueue("twins", c.QueueSettings()))
        run("tests.spark.cluster.twins", place[1], broker.endpoint, "twins", str(tmp_path))
        assert (tmp_path / "attempt-0").exists()
        assert (tmp_path / "attempt-1").exists()
        expected = TASKS * ROWS_PER_TASK
        assert sum(event.key for event in broker.events(j.STAGED)) > expected
        assert [event.key for event in broker.events(j.PUBLISHED)] == [expected]
        assert wait_until(lambda: broker.ask(m.ShowQueue("twins")).put >= expected)
        assert sorted(map(int, broker.payloads("twins"))) == list(range(expected))


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module to its good end, as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def endpoint(node: TestServer) -> str:
    return node.url.removeprefix("penstock://")
