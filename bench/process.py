"""A server's process: started on a free port with a folder of its own, ended whatever happens.

What a server prints goes to a log beside its folder, and is shown when it fails.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from bench.cpu import Meter, process_tree
from bench.errors import BenchError, ServerFailed
from bench.load import connect

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
_POLL_S = 0.005
_LAST_BREATH_S = 0.5
_LOG_LINES_SHOWN = 3


class ServerProcess(ABC):
    """A server's process. Use it as a context manager: it is started on entry and ended on exit, come what may."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command that starts it."""

    def environment(self) -> dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def greet(self, connection: socket.socket) -> None:  # noqa: B027 (most servers need no greeting)
        """What a new connection needs before the first request."""

    def prepare(self) -> None:  # noqa: B027 (most servers need no preparation)
        """What must be done once after the start."""

    def connect(self) -> socket.socket:
        """A connection that is ready for a load."""
        connection = connect(self.port)
        try:
            self.greet(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def meter(self) -> Meter:
        """A stopwatch that charges this server's processes."""
        return Meter(self.pids)

    def pids(self) -> list[int]:
        """Its processes."""
        return process_tree(self._process.pid) if self._process is not None else []

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            # Apart from us: Ctrl-C must reach the benchmark alone, which then ends its servers.
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
            )
        self.wait_until_open(self.port)
        self.prepare()

    def stop(self) -> None:
        """End it in the orderly way; by force if that takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._log.unlink(missing_ok=True)
        try:
            self.start()
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, BenchError | OSError) and self._ended_by_itself(_LAST_BREATH_S):
                raise ServerFailed(self.name, self._last_words()) from error
        finally:
            self._clear()

    def _clear(self) -> None:
        # Its data goes too, so there is nothing that an orderly end could save.
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with ExitStack() as stack:
            descendants = [*_handles(process_tree(process.pid)[1:], stack)]
            self._end_process(process, how)
            for handle in descendants:
                _kill(handle)

    @staticmethod
    def _end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        process.send_signal(how)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait_until_open(self, port: int) -> None:
        """Wait until it accepts connections on a port."""
        limit = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit:
            if self._ended_by_itself():
                break
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(_POLL_S)
            else:
                return
        raise ServerFailed(self.name, f"it does not listen on port {port}; {self._last_words()}")

    def _ended_by_itself(self, wait_s: float = 0.0) -> bool:
        """Whether the process has gone; connections may end a moment before it does."""
        if self._process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        return self._process.returncode is not None

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        status = self._process.poll() if self._process is not None else None
        return f"exit status {status}, last words: " + (" | ".join(lines[-_LOG_LINES_SHOWN:]) or "none")


def _handles(pids: list[int], stack: ExitStack) -> Iterator[int]:
    """Handles of processes. Unlike a number, a handle never comes to mean another process."""
    for pid in pids:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            yield handle


def _kill(handle: int) -> None:
    """End a process that its parent left behind, and wait until it has gone."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.poll(STOP_LIMIT_S * 1000)


def free_port() -> int:
    """A port that nobody listens on now."""
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on now, no two alike."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
