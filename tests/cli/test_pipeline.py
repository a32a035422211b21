"""`penstock pipeline`: what it tells of tables and refuses in a sentence; a real run as a process of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.cli.pipeline_running import Told, stopped_by_signals
from penstock.client import ConnectionLost
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.manifest import File, Gap, Table, new_manifest
from penstock.spark.pipeline.run import Progress
from penstock.testing import TestServer
from tests.cli.support import Command, Terminal, without_escapes

RUN_WITHIN_S = 280.0
STEPS = ["bronze", "silver", "gold", "done"]
BAR, LINE_WIPED, CURSOR_OFF, CURSOR_ON = "\u2501", "\x1b[2K", "\x1b[?25l", "\x1b[?25h"
FILE = File("gold/key_bands/2026-01-01/1.parquet", "2026-01-01", 1234, 5000)


@pytest.fixture
def tables(tmp_path: Path, node: TestServer) -> Path:
    """A directory as a run leaves it, with nothing in the files."""
    from penstock.client.history import HistoryReader

    with HistoryReader(node.url) as reader:
        cluster = reader.reach().cluster
    with Directory(tmp_path / "tables") as directory:
        directory.begin(new_manifest(cluster, 0, format="parquet", buckets=32))
        directory.publish({"gold.key_bands": Table(5, 1_767_225_600_000_000, (FILE,))}, gaps=(Gap(1, 3),))
    return tmp_path / "tables"


def test_status_tells_each_table(penstock: Command, tables: Path) -> None:
    text = penstock("pipeline", "status", "--to", str(tables), "--path", str(tables.parent), code=1).stderr
    assert "penstock: " in text
    lines = CliRunner().invoke(cli, ["pipeline", "status", "--to", str(tables)]).stdout.splitlines()
    assert any(line.split() == ["gap", "entries", "1", "to", "3", "were", "gone"] for line in lines)
    (row,) = [line.split() for line in lines if line.endswith("gold.key_bands")]
    assert row[:5] == ["1,234", "1", "4.9", "KiB", "5"]
    assert row[-2] == "-"


def test_status_as_json_with_the_lag_behind_a_node(penstock: Command, node: TestServer, tables: Path) -> None:
    (told,) = penstock.json("pipeline", "status", "--to", str(tables), "--endpoint", f"{node.host}:{node.port}")
    found = {table["name"]: table for table in told["tables"]}
    assert (told["format"], told["gaps"]) == ("parquet", [[1, 3]])
    gold = found["gold.key_bands"]
    assert (gold["watermark"], gold["rows"], gold["files"], gold["bytes"]) == (5, 1234, 1, 5000)
    assert gold["time"] == "2026-01-01T00:00:00+00:00"
    assert found["bronze.events"]["behind_entries"] - max(0, gold["behind_entries"]) in range(1, 7)
    assert found["bronze.events"]["behind_seconds"] > 0


def test_files_are_listed_one_a_line(penstock: Command, tables: Path) -> None:
    assert penstock("pipeline", "files", str(tables), "gold.key_bands").stdout == f"{tables / FILE.path}\n"
    assert penstock("pipeline", "files", str(tables), "bronze.events").stdout == ""
    assert "there are bronze.events" in penstock("pipeline", "files", str(tables), "gold.x", code=1).stderr


@pytest.mark.parametrize("args", [["status", "--to"], ["files"], ["report", "--from"]])
def test_where_there_are_no_tables_the_command_that_makes_them_is_told(
    penstock: Command, tmp_path: Path, args: list[str]
) -> None:
    table = ["gold.key_bands"] if args == ["files"] else []
    text = penstock("pipeline", *args, str(tmp_path), *table, code=1).stderr
    assert text == (f"penstock: {tmp_path} has no tables yet; `penstock pipeline run --to {tmp_path}` makes them\n")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--once", "--continuous"], "--once runs once"),
        (["--every", "10ms"], "--every is at least 1 s"),
        (["--master", "spark://a:1", "--remote", "sc://b:2"], "give one of them"),
        (["--endpoint", "a:1", "--path", "."], "give one of them"),
        (["--format", "orc"], "'orc' is not one of"),
    ],
)
def test_what_does_not_go_together_is_refused_before_spark_starts(
    penstock: Command, args: list[str], complaint: str
) -> None:
    assert complaint in penstock("pipeline", "run", *args, code=2).stderr


def test_without_java_the_command_that_helps_is_told(
    penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    text = penstock("pipeline", "run", "--to", str(tmp_path / "tables"), code=1).stderr
    assert text.startswith("penstock: Spark needs Java 17 or newer, and there is none; ")
    assert "apt-get install default-jre-headless" in text
    assert not (tmp_path / "tables").exists()


def test_without_the_extra_the_command_that_helps_is_told(
    penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark import session

    monkeypatch.setattr(session, "find_spec", lambda package: None)
    text = penstock("pipeline", "run", "--to", str(tmp_path), code=1).stderr
    assert text == "penstock: pyspark is not installed; it comes with: pip install 'penstock[spark]'\n"


def test_a_short_run_with_nothing_new_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it is since the last line: with --every it would say so every time."""
    now = [0.0]
    with Told(clock=lambda: now[0]) as told:
        for _ in range(3):
            now[0] += 30.0
            told.progress(Progress("done", 3, 3, 3, 0, 0.5))
            told.done()
    assert capsys.readouterr().err == ""


def test_lines_tell_what_was_done_and_a_failure_once(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    done: list[int] = []
    with Told(clock=lambda: now[0]) as told:
        told.published = lambda: done.append(1)
        for _ in range(2):
            told.failure(ConnectionLost("127.0.0.1:1", "refused"))
        told.progress(Progress("bronze", -1, -1, 200, 0, 0.1))
        now[0] = 20.0
        told.progress(Progress("silver", -1, -1, 200, 5000, 20.0))
        now[0] = 40.0
        told.progress(Progress("done", -1, 200, 200, 5000, 25.0))
        told.done()
        told.done()
    assert capsys.readouterr().err.splitlines() == [
        "penstock: warning: no connection to 127.0.0.1:1: refused; trying again",
        "penstock: silver: entry -1 of 200, 5,000 events so far",
        "penstock: going on",
        "penstock: 5,000 events up to entry 200 in 25 s (200 a second)",
    ]
    assert done == [1, 1]


def test_a_failure_that_lasts_is_reported_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with Told(clock=lambda: now[0]) as told:
        for _ in range(30):
            told.failure(ConnectionLost("127.0.0.1:1", "refused"))
            now[0] += 5.0
    assert capsys.readouterr().err.splitlines() == [
        "penstock: warning: no connection to 127.0.0.1:1: refused; trying again",
        "penstock: warning: no connection to 127.0.0.1:1: refused; failing for 60 s, trying again",
        "penstock: warning: no connection to 127.0.0.1:1: refused; failing for 2 m, trying again",
    ]


class Screen:
    """A terminal in the place of the error stream, and all that came there; for use in a ``with`` block."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._main, other = pty.openpty()
        self._stream = os.fdopen(other, "w", encoding="utf-8")
        self._seen = bytearray()
        self._watching = threading.Thread(target=self._watch)

    @property
    def raw(self) -> str:
        """All of it, when the block has ended."""
        return self._seen.decode()

    def __enter__(self) -> Screen:
        for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setattr(sys, "stderr", self._stream)
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()
        self._stream.close()
        self._watching.join(RUN_WITHIN_S)
        os.close(self._main)

    def _watch(self) -> None:
        with suppress(OSError):  # the other end is closed
            while data := os.read(self._main, 65536):
                self._seen.extend(data)


def test_at_a_terminal_a_bar_shows_every_step_and_makes_way_for_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Screen(monkeypatch) as screen, Told() as told:
        told.progress(Progress("bronze", -1, -1, 199, 0, 0.1))
        told.progress(Progress("silver", -1, -1, 199, 5000, 2.0))
        told.progress(Progress("gold", -1, 99, 199, 5000, 4.0))
        told.progress(Progress("done", -1, 199, 199, 5000, 5.0))
        told.done()
    steps = without_escapes(screen.raw)
    assert [steps.index(text) for text in STEPS] == sorted(steps.index(text) for text in STEPS)
    assert re.search(r"silver .* 0% 5,000 events, 2,500 a second 0:00:0\d", steps)
    assert re.search(r"gold .* 50% 5,000 events, 1,250 a second", steps)
    assert re.search(r"done .* 100% 5,000 events, 1,000 a second", steps)
    assert_bar_is_gone(screen.raw, "penstock: 5,000 events up to entry 199 in 5.0 s (1,000 a second)\r\n")


def test_at_a_terminal_a_failure_is_a_line_and_the_bar_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Screen(monkeypatch) as screen, Told() as told:
        told.progress(Progress("bronze", -1, -1, 199, 0, 0.1))
        told.failure(ConnectionLost("127.0.0.1:1", "refused"))
        told.progress(Progress("silver", -1, -1, 199, 0, 0.1))
    before, line, after = screen.raw.partition(
        "penstock: warning: no connection to 127.0.0.1:1: refused; trying again\r\n"
    )
    assert "bronze" in before
    assert_bar_is_gone(before + line, line)
    assert "silver" in after
    assert_bar_is_gone(after, "")


def assert_bar_is_gone(raw: str, last_line: str) -> None:
    """The bar's line was wiped and the cursor is back before the last line comes, which is plain."""
    assert raw.endswith(last_line)
    bar = raw.removesuffix(last_line)
    assert bar.count(CURSOR_OFF) == bar.count(CURSOR_ON) > 0
    assert bar.rindex(LINE_WIPED) > bar.rindex(BAR)


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java: apt-get install default-jre-headless")
def test_a_run_at_a_terminal_from_the_first_put_to_the_report_and_a_stop_by_signal(
    penstock: Command, node: TestServer, queue: str, tmp_path: Path
) -> None:
    """Every step is seen, every table is a Delta table too, the page lies beside them; SIGTERM ends it after its step.

    What it tells away from a terminal is seen in tests/spark/test_up.py.
    """
    penstock("put", queue, "hello")
    penstock("take", queue, "--ack")
    tables, page = tmp_path / "tables", tmp_path / "report.html"
    places = ["--endpoint", f"{node.host}:{node.port}", "--to", str(tables), "--report", str(page)]
    options = ["--every", "1s", "--master", "local[2]", "--format", "delta", *places]
    with Terminal("pipeline", "run", *options, env={}, patience_s=RUN_WITHIN_S) as terminal:
        for text in (*STEPS, "events up to entry"):
            terminal.wait_for(text)
        terminal.process.send_signal(signal.SIGTERM)
        code = terminal.end()
    assert code == 0, terminal.screen
    line = re.search(r"penstock: [\d,]+ events up to entry [\d,]+ in .+ \([\d,]+ a second\)\r\n", terminal.raw)
    assert line is not None
    assert_bar_is_gone(terminal.raw[: line.end()], line[0])
    assert terminal.raw.count(CURSOR_OFF) == terminal.raw.count(CURSOR_ON)
    assert "log4j" not in terminal.raw
    assert "log level" not in terminal.raw
    assert page.read_text(encoding="utf-8").startswith("<!")
    (told,) = penstock.json("pipeline", "status", "--to", str(tables))
    assert told["format"] == "delta"
    assert told["tables"][0]["rows"] > 0
    (figures,) = penstock.json("pipeline", "report", "--from", str(tables))
    assert queue in json.dumps(figures)
    assert _messages(tables, queue) == ["acked"]


def _messages(tables: Path, queue: str) -> list[Any]:
    """The outcomes of a queue's messages, by its Delta table."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(tables / "silver" / "messages")).to_pyarrow_table().to_pylist()
    return [row["outcome"] for row in rows if row["queue"] == queue]


def test_a_signal_while_the_event_is_being_waited_for_does_not_block() -> None:
    """A signal interrupts the waiting thread anywhere, also where it holds the lock of the event."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = threading.Event()
    try:
        stopped_by_signals(stop)
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(60)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
