"""Spark's own servers from the pip package, as processes on this machine: a standalone cluster, and Connect.

Each listens on a free port of 127.0.0.1, is small, and is ended by its process id.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

PATIENCE_S: Final = 60.0
_HOME: Final = Path(pyspark.__file__).parent
_LOOPBACK: Final = "127.0.0.1"
_WORKERS: Final = (_LOOPBACK, "localhost")
"""Two names, so two hosts to Spark: it gives a task no twin on the host where it runs already."""
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
# What they say in their logs when they listen.
_MASTER_PORT: Final = r"service 'sparkMaster' on port (\d+)"
_CONNECT_PORT: Final = r"Spark Connect server started at: \S*?:(\d+)"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master with two workers of one core each; its address, `spark://host:port`."""
    with ExitStack() as stack:
        ports = ["--port", "0", "--webui-port", "0"]
        command = [_program("spark-class"), _MASTER, "--host", _LOOPBACK, *ports]
        master = stack.enter_context(_server("master", folder, command))
        url = f"spark://{_LOOPBACK}:{master.wait_for(_MASTER_PORT)}"
        size = ["--cores", "1", "--memory", "1g"]
        started = [
            stack.enter_context(
                _server(
                    f"worker-{number}",
                    folder,
                    [
                        _program("spark-class"),
                        _WORKER,
                        "--host",
                        host,
                        *ports,
                        *size,
                        "--work-dir",
                        str(folder / f"work-{number}"),
                        url,
                    ],
                )
            )
            for number, host in enumerate(_WORKERS)
        ]
        for worker in started:
            worker.wait_for(r"(Successfully registered) with master")
        yield url


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A Spark Connect server on two cores; its address, `sc://host:port`."""
    all_settings = {
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **(settings or {}),
    }
    options = [word for key, value in all_settings.items() for word in ("--conf", f"{key}={value}")]
    command = [_program("spark-submit"), "--master", "local[2]", "--class", _CONNECT, *options, "spark-internal"]
    with _server("connect", folder, command, memory="768m") as server:
        yield f"sc://{_LOOPBACK}:{server.wait_for(_CONNECT_PORT)}"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's variables, with what makes Spark use this Python and no address but loopback."""
    own = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": _LOOPBACK,
    }
    return {**os.environ, **own, **(extra or {})}


class _Server:
    """One of Spark's programs, and what it logs."""

    def __init__(self, name: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._name = name
        self._log = log
        self._process = process

    def wait_for(self, pattern: str) -> str:
        """What the group of this pattern is once it stands in the log."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            text = self._log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found[1]
            is_late = time.monotonic() > deadline or self._process.poll() is not None
            assert not is_late, f"{self._name} did not come up:\n{text[-3000:]}"
            time.sleep(0.05)


@contextmanager
def _server(name: str, folder: Path, command: list[str], memory: str = "256m") -> Iterator[_Server]:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment({"SPARK_CONF_DIR": str(folder), "SPARK_DAEMON_MEMORY": memory}),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _Server(name, log, process)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def _program(name: str) -> str:
    return str(_HOME / "bin" / name)
