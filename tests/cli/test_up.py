"""`penstock up` without Spark: the doors open first, the set-up is shown, and what is missing is told with a remedy.

With Spark it is tested in tests/spark/test_up.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.cli import up
from penstock.client import connect_sync
from penstock.doors.server import Server
from penstock.settings import Settings, TaskfluxSettings
from penstock.testing import OTHER_DOORS_CLOSED
from tests.cli.support import PATIENCE_S, ROOT, Terminal, environment, run, started

SMALL = ["--taskflux-port", "0", "--storage-segment-bytes", "1MiB", "--storage-reserve-bytes", "0"]


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """Variables under which no Java is found."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "JAVA_HOME": ""}


@contextmanager
def upped(tmp_path: Path, env: dict[str, str], *args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A node that is ready, and its address."""
    with started("up", *SMALL, *args, cwd=tmp_path, env=env) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].endswith("is ready."):
            line = process.stdout.readline()
            assert line, process.communicate()
            lines.append(line.rstrip("\n"))
        pipeline = tmp_path / "penstock-data" / "pipeline"
        assert f"pipeline  {pipeline}  every 30 s: tables, and report.html" in lines
        yield process, "penstock://" + next(line.split()[1] for line in lines if line.startswith("taskflux"))


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    """The first log line that has this text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"{text!r} did not come")


def test_the_doors_are_open_before_spark_is_set_up(tmp_path: Path, no_java: dict[str, str]) -> None:
    os.mkfifo(tmp_path / "go")
    with upped(tmp_path, no_java, "--prepare", "echo waiting; read word <go; echo got $word") as (process, url):
        wait_for_line(process, "setting up Spark: waiting")
        with connect_sync(url) as client:
            client.queue("early").put("a", create=True)
        (tmp_path / "go").write_text("on\n")
        wait_for_line(process, "setting up Spark: got on")


def test_without_java_it_says_what_to_install_and_serves_on(tmp_path: Path, no_java: dict[str, str]) -> None:
    with upped(tmp_path, no_java) as (process, url):
        line = wait_for_line(process, "the node serves without the data pipeline")
        assert "sudo apt-get install default-jre-headless" in line
        with connect_sync(url) as client:
            client.queue("on").put("a", create=True)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "SIGTERM: the node stops" in errors
    assert "Traceback" not in errors


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, no_java: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    with upped(tmp_path, {**no_java, "PYTHONPATH": str(tmp_path)}) as (process, _):
        assert "pip install 'penstock[spark]'" in wait_for_line(process, "the node serves without the data pipeline")


def test_a_set_up_that_fails_is_told_once_with_the_way_to_try_again(tmp_path: Path, no_java: dict[str, str]) -> None:
    with upped(tmp_path, no_java, "--prepare", "echo no network; exit 1") as (process, _):
        line = wait_for_line(process, "Spark could not be set up")
        assert "(no network), the node serves on; to try again: echo no network; exit 1" in line
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "without the data pipeline" not in errors


def test_the_reason_that_is_told_is_the_commands_own_and_not_where_make_failed(
    tmp_path: Path, no_java: dict[str, str]
) -> None:
    script = "echo no network; echo 'make[1]: *** [Makefile:1: .venv/.spark] Error 1'; exit 1"
    with upped(tmp_path, no_java, "--prepare", script) as (process, _):
        assert "could not be set up (no network), the node" in wait_for_line(process, "Spark could not be set up")


def test_what_is_missing_is_told_again_only_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever mends what was told must hear what else is missing."""
    monkeypatch.setattr(up, "_LOOK_AGAIN_SECONDS", 0.0)
    for was_told, expected in ((False, ["no Spark", "no Java"]), (True, ["no Java"])):
        found = iter(["no Spark", "no Spark", "no Java", "no Java", None])
        monkeypatch.setattr(up, "_what_is_missing", lambda found=found: next(found))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            asyncio.run(up.wait_for_spark(was_told))
        assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == expected


# `make run` itself, in a folder whose environment is this one's.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile with an environment that has Penstock, but neither Spark nor a way to get it."""
    folder = tmp_path / "checkout"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / "requirements").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "pyproject.toml").touch()
    for name in ("run", "spark", "dev"):
        (folder / "requirements" / f"{name}.txt").touch()
    for name in ("penstock", "python"):
        script = folder / ".venv" / "bin" / name
        program = f"{sys.executable} -m penstock" if name == "penstock" else sys.executable
        pip = '[ "$2" != pip ] || { echo "ERROR: no network" >&2; exit 1; }\n' if name == "python" else ""
        script.write_text(f'#!/bin/sh\n{pip}exec {program} "$@"\n')
        script.chmod(0o755)
    (folder / ".venv" / ".run").touch()
    return folder


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_make_run_without_a_network_serves_on_until_a_signal_ends_all_of_it(
    checkout: Path, number: signal.Signals
) -> None:
    """It says the one command that helps. SIGTERM goes to make alone, SIGINT to all, as a terminal sends it."""
    arguments = " ".join([*SMALL, "--no-etzel", "--no-monique"])
    process = subprocess.Popen(
        ["make", "run", f"ARGS={arguments}"],
        cwd=checkout,
        env=environment({"MAKEFLAGS": "", "MAKELEVEL": ""}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            line = wait_for_line(process, "Spark could not be set up")
            assert (
                "is there a network, and room on the disk?), the node serves on; to try again: make spark-ready" in line
            )
            with connect_sync(f"penstock://{address}") as client:
                client.queue("on").put("a", create=True)
            if number == signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE_S)  # ends when nobody holds the streams any more
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert f"{number.name}: the node stops" in errors
    assert "Traceback" not in errors


def test_a_signal_ends_the_set_up_too(tmp_path: Path, no_java: dict[str, str]) -> None:
    os.mkfifo(tmp_path / "never")
    with upped(tmp_path, no_java, "--prepare", "echo $$; read word <never") as (process, _):
        line = wait_for_line(process, "setting up Spark: ")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.rpartition(" ")[2]), 0)


def test_at_a_terminal_the_set_up_has_a_status_line_below_the_log(tmp_path: Path, no_java: dict[str, str]) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"printf '10%%\\r20%%\\r'; read word <{tmp_path / 'go'}; [ -t 1 ] && echo a terminal; exit 1"
    arguments = ["up", *SMALL, "--data-dir", str(tmp_path / "d"), "--prepare", script]
    with Terminal(*arguments, env=no_java) as terminal:
        terminal.wait_for("setting up Spark: 20%")
        (tmp_path / "go").write_text("on\n")
        terminal.wait_for("could not be set up (a terminal)")
        terminal.interrupt()
        terminal.wait_for("SIGINT: the node stops")
        assert terminal.end() == 0


def test_without_the_native_door_there_is_no_pipeline() -> None:
    settings = Settings(taskflux=TaskfluxSettings(enabled=False), **OTHER_DOORS_CLOSED)
    beside = up.PipelineBeside(settings, 30, None)
    server = Server(settings, in_memory=True)
    assert list(beside.announce(server)) == ["pipeline  none: it reads by the taskflux door, which is closed"]
    asyncio.run(beside.run(server))


def test_it_does_not_run_all_the_time(tmp_path: Path) -> None:
    done = run("up", "--every", "10ms", cwd=tmp_path)
    assert done.returncode == 2
    assert "--every is at least 1 s" in done.stderr


def test_a_pipeline_that_dies_is_told_and_started_again_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(up, "_PAUSE_SECONDS_MIN", 0.01)
    monkeypatch.setattr(up, "_PAUSE_SECONDS_MAX", 0.03)
    script = "echo begun >>lives; seq 9; [ $(wc -l <lives) -lt 5 ] || mkfifo done; exit 7"

    async def live() -> None:
        keeper = asyncio.create_task(up.keep_running(["sh", "-c", f"cd {tmp_path} && {script}"]))
        while not (tmp_path / "done").exists():
            await asyncio.sleep(0.01)
        keeper.cancel()
        await asyncio.wait([keeper])
        assert keeper.cancelled()

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
    told = [record.getMessage() for record in caplog.records]
    endings = [line for line in told if line.startswith("the data pipeline ended with 7")]
    pauses = [line.partition("again in ")[2].partition(" s;")[0] for line in endings]
    assert pauses[:4] == ["0.01", "0.02", "0.03", "0.03"]
    assert told[1:6] == ["  5", "  6", "  7", "  8", "  9"]


def test_a_pipeline_that_lived_long_is_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(up, "_PAUSE_SECONDS_MIN", 0.01)
    monkeypatch.setattr(up, "_STEADY_SECONDS", 0.0)

    async def live() -> None:
        keeper = asyncio.create_task(up.keep_running([sys.executable, "-c", ""]))
        while len(caplog.records) < 3:
            await asyncio.sleep(0.01)
        keeper.cancel()
        await asyncio.wait([keeper])

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
    assert all("again in 0.01 s" in record.getMessage() for record in caplog.records)


def test_a_failure_of_the_pipeline_is_a_warning_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(up, "_PAUSE_SECONDS_MIN", 60.0)
    script = "echo 'penstock: warning: it failed'; echo 'penstock: 5 events'; echo 'Java speaks'"

    async def live() -> None:
        keeper = asyncio.create_task(up.keep_running(["sh", "-c", f"({script}) >&2"]))
        while not any("ended with" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.01)
        keeper.cancel()
        await asyncio.wait([keeper])

    with caplog.at_level(logging.DEBUG):
        asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
    told = {record.getMessage(): record.levelno for record in caplog.records}
    assert told["pipeline: it failed"] == logging.WARNING
    assert told["pipeline: 5 events"] == logging.INFO
    assert told["pipeline: Java speaks"] == logging.DEBUG
