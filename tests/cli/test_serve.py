"""`penstock serve` as a real process: what it says, how it stops, and how it fails."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli import serve
from penstock.cli.connecting import DEFAULT_URL, URL_VARIABLE
from penstock.cli.logs import JsonFormatter, TextFormatter
from penstock.client import connect_sync
from penstock.client.endpoints import DEFAULT_URL as CLIENT_DEFAULT_URL
from penstock.client.endpoints import URL_VARIABLE as CLIENT_URL_VARIABLE
from penstock.doors.listening import Listener
from penstock.doors.server import Server
from penstock.settings import Settings, TaskfluxSettings
from penstock.storage.disk import Disk
from penstock.storage.errors import StorageFailed
from penstock.testing import OTHER_DOORS_CLOSED
from tests.cli.support import Command, run, started

SMALL = ["--storage-segment-bytes", "1MiB", "--storage-reserve-bytes", "0"]


@contextmanager
def serving(tmp_path: Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], list[str], str]]:
    """A node that is ready: its process, the lines it said, and its address."""
    with started("serve", "--taskflux-port", "0", *SMALL, *args, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].endswith("is ready."):
            line = process.stdout.readline()
            assert line, process.communicate()
            lines.append(line.rstrip("\n"))
        address = next(line.split()[1] for line in lines if line.startswith("taskflux"))
        yield process, lines, f"penstock://{address}"


def test_it_says_where_it_listens_what_it_keeps_and_how_to_try_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, lines, url):
        assert lines[-1] == f"Penstock {__version__} is ready."
        assert f"data      {tmp_path / 'penstock-data'}" in lines
        assert any(line.startswith("mode      durable: ") for line in lines)
        assert f"  export PENSTOCK_URL={url}" in lines
        tries = [line.strip() for line in lines if " -m penstock " in line]
        assert len(tries) == 3
        penstock = Command(url)
        penstock("put", "greetings", "hello, world", "--create")
        assert penstock("take", "greetings", "--ack").stdout.endswith("\nhello, world\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully_and_nothing_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (process, _, url):
        with connect_sync(url) as client:
            client.queue("kept").put("a", create=True)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert f"{number.name}: the node stops" in errors
        assert "Traceback" not in errors
    with serving(tmp_path) as (_, _, url), connect_sync(url) as client:
        assert [record.payload for record in client.queue("kept").peek()] == [b"a"]


def test_log_lines_for_programs(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json", "--log-level", "info") as (process, _, _):
        process.terminate()
        _, errors = process.communicate(timeout=30)
    documents = [json.loads(line) for line in errors.splitlines()]
    assert any("recovered" in each["message"] for each in documents)
    assert {"time", "level", "logger", "message"} <= set(documents[0])


def test_log_level(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "warning") as (process, _, _):
        process.terminate()
        assert process.communicate(timeout=30)[1] == ""


def test_a_port_that_is_taken_names_door_port_setting_and_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("serve", "--taskflux-port", str(port), *SMALL, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("penstock: ")]
    for part in ("taskflux", str(port), "taskflux.port", "--taskflux-port", "--no-taskflux"):
        assert part in line
    assert "Traceback" not in done.stderr
    assert "is ready" not in done.stdout


def test_wrong_settings_end_with_2(tmp_path: Path) -> None:
    done = run("serve", "--taskflux-host", "0.0.0.0", cwd=tmp_path)
    assert done.returncode == 2
    assert "--insecure" in done.stderr
    assert not (tmp_path / "penstock-data").exists()
    assert run("serve", cwd=tmp_path, env={"PENSTOCK_TASKFLUXPORT": "1"}).returncode == 2


def test_a_directory_in_use_is_told(tmp_path: Path) -> None:
    with serving(tmp_path):
        done = run("serve", "--taskflux-port", "0", "--no-etzel", "--no-monique", *SMALL, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("penstock: ")
    assert "penstock-data" in done.stderr
    assert "Traceback" not in done.stderr


def test_damage_is_told_with_file_and_reason(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _, url):
        with connect_sync(url) as client:
            client.queue().put("a" * 1000)
            client.queue().put("b" * 1000)
        process.terminate()
        process.wait(30)
    log = tmp_path / "penstock-data" / "consensus" / "raft.log"
    content = log.read_bytes()
    log.write_bytes(content.replace(b"a" * 1000, b"a" * 500 + b"A" + b"a" * 499))
    done = run("serve", "--taskflux-port", "0", *SMALL, cwd=tmp_path)
    assert done.returncode == 1
    assert f"penstock: {Path('penstock-data/consensus/raft.log')}, offset " in done.stderr


def test_what_recovery_mended_is_told(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, _, _):
        process.terminate()
        process.wait(30)
    journal = tmp_path / "penstock-data" / "consensus" / "events" / "live.events"
    journal.write_bytes(b"no marker" + journal.read_bytes()[9:])
    with serving(tmp_path) as (_, lines, _):
        assert any(line.startswith("mended    ") and "live.events" in line for line in lines)


class FailingDisk(Disk):
    """A disk that fails once the node is started: the first sync of raft.log is recovery's own."""

    syncs = 0

    def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
        if site == "log.sync" and path.parent.name == "consensus":
            self.syncs += 1
            if self.syncs > 1:
                raise StorageFailed(site, path, errno.EIO)
        super().fdatasync(descriptor, site, path)


def test_a_disk_that_fails_ends_it_with_70(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "Server", lambda settings, **more: Server(settings, disk=FailingDisk()))
    result = Command()("serve", "--data-dir", str(tmp_path / "d"), "--taskflux-port", "0", *SMALL, code=70)
    assert "penstock: the node stopped: " in result.stderr
    assert "log.sync failed: Input/output error" in result.stderr


def test_without_doors_it_says_so() -> None:
    server = Server(Settings(taskflux=TaskfluxSettings(enabled=False), **OTHER_DOORS_CLOSED), in_memory=True)
    lines = list(serve.announcement(server))
    assert "doors     none is open" in lines
    assert not any("Try it" in line for line in lines)


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("127.0.0.1", 2602, None),
        ("127.0.0.1", 5, "penstock://127.0.0.1:5"),
        ("0.0.0.0", 5, "penstock://127.0.0.1:5"),
        ("::", 5, "penstock://[::1]:5"),
    ],
)
def test_the_address_to_try_is_one_that_a_client_can_use(host: str, port: int, url: str | None) -> None:
    first, *rest = serve._tries(Listener(TaskfluxSettings(host=host, port=port).places()[0], lambda: None))  # type: ignore[arg-type,return-value]
    if url is None:
        assert " put " in first
    else:
        assert first == f"export PENSTOCK_URL={url}"
        assert len(rest) == 3


def test_the_default_address_is_the_clients_own() -> None:
    assert DEFAULT_URL == CLIENT_DEFAULT_URL
    assert URL_VARIABLE == CLIENT_URL_VARIABLE


@pytest.mark.parametrize(
    ("argv", "found", "command"),
    [
        ("/usr/bin/penstock", "/usr/bin/penstock", "penstock"),
        (".venv/bin/penstock", None, ".venv/bin/penstock"),
        (".venv/bin/penstock", "/usr/bin/penstock", ".venv/bin/penstock"),
        ("/x/penstock/__main__.py", None, "python -m penstock"),
    ],
)
def test_the_command_to_try_is_one_that_the_shell_finds(
    monkeypatch: pytest.MonkeyPatch, argv: str, found: str | None, command: str
) -> None:
    monkeypatch.setattr("sys.argv", [argv])
    monkeypatch.setattr("shutil.which", lambda name: found)
    assert serve.own_command() == command


def test_it_runs_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert serve._loop_factory() is None
    with asyncio.Runner(loop_factory=serve._loop_factory()) as runner:
        assert runner.run(asyncio.sleep(0, "done")) == "done"


def test_log_lines_escape_what_came_from_outside() -> None:
    record = logging.LogRecord("penstock", logging.WARNING, "", 1, "bad %s", ("\x1b[31m\nfake line",), None)
    text = TextFormatter().format(record)
    assert text.endswith("warning  bad \\x1b[31m\\nfake line")
    assert json.loads(JsonFormatter().format(record))["message"] == "bad \x1b[31m\nfake line"


def test_log_lines_carry_tracebacks() -> None:
    try:
        raise ZeroDivisionError("oops")
    except ZeroDivisionError as error:
        trouble = (type(error), error, error.__traceback__)
    record = logging.LogRecord("penstock", logging.ERROR, "", 1, "failed", (), trouble)
    assert "ZeroDivisionError: oops" in TextFormatter().format(record)
    assert "ZeroDivisionError: oops" in json.loads(JsonFormatter().format(record))["exception"]
