"""`penstock up` with Spark: tables and report come by themselves, and nothing is left behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.spark.errors import NoTables
from penstock.spark.pipeline.tables import table_files
from tests.cli.support import environment

PATIENCE_S = 240.0
pytestmark = pytest.mark.usefixtures("java")


@contextmanager
def upped(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A node that is ready, and its address; its log is in `log`."""
    small = ["--taskflux-port", "0", "--storage-segment-bytes", "1MiB", "--storage-reserve-bytes", "0"]
    command = [sys.executable, "-m", "penstock", "up", *small, "--every", "1s", "--log-level", "debug"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
    with process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1].decode()
            while not process.stdout.readline().endswith(b"is ready.\n"):
                assert process.poll() is None
            yield process, address
        finally:
            process.kill()


def descendants(process: int) -> set[int]:
    """The processes that come from this one, whatever group or session they are in."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def command_of(process: int) -> str:
    """What a process runs; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(folder: Path, what: str, is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}\n{(folder / 'log').read_text()[-5000:]}"
        time.sleep(0.1)


def jvms(process: int) -> list[int]:
    """The Java processes among those that come from this one."""
    return [each for each in descendants(process) if "org.apache.spark.deploy.SparkSubmit" in command_of(each)]


def wait_for_end(folder: Path, processes: set[int]) -> None:
    wait_until(folder, "processes are left", lambda: not any(map(command_of, processes)))


def keys(tables: Path) -> list[int]:
    """The keys of all messages in the tables, if there are tables yet."""
    try:
        return sorted(key for file in table_files(tables, "silver.messages") for key in read_keys(file))
    except NoTables:
        return []


def read_keys(file: Path) -> list[int]:
    found: list[int] = pq.read_table(file, columns=["key"])["key"].to_pylist()
    return found


def test_tables_and_report_come_by_themselves_and_a_signal_ends_all(tmp_path: Path) -> None:
    tables = tmp_path / "penstock-data" / "pipeline"
    with upped(tmp_path) as (process, address):
        with penstock.connect_sync(f"penstock://{address}") as client:
            jobs = client.queue("jobs")
            jobs.put("one", key=1, create=True)
            wait_until(tmp_path, "no report", (tables / "report.html").exists)
            jobs.put("two", key=2)
            wait_until(tmp_path, "the second message is not there", lambda: keys(tables) == [1, 2])
        (jvm,) = jvms(process.pid)
        assert os.getpriority(os.PRIO_PROCESS, jvm) > os.getpriority(os.PRIO_PROCESS, process.pid)
        all_of_them = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert not any(map(command_of, all_of_them)), "the pipeline ends before the node does"
    log = (tmp_path / "log").read_text()
    assert re.search(r" pipeline: [\d,]+ events up to entry [\d,]+ in .+ \([\d,]+ a second\)\n", log)
    assert "\x1b" not in log, "away from a terminal there is nothing but lines"
    assert "Traceback" not in log
    assert "the data pipeline ended" not in log


def test_nothing_of_spark_outlives_a_node_that_is_killed(tmp_path: Path) -> None:
    with upped(tmp_path) as (process, _):
        wait_until(tmp_path, "Spark does not start", lambda: jvms(process.pid))
        all_of_them = descendants(process.pid)
        process.kill()
        process.wait(PATIENCE_S)
        wait_for_end(tmp_path, all_of_them)
