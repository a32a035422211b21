"""The served process as the suite holds it: started, put forward in time, restarted and killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from penstock import connect_sync
from penstock.client.sync import Client

ROOT: Final = Path(__file__).resolve().parent.parent.parent
WITHIN_S: Final = 20.0
"""How long the suite waits for what must come; only a failing rule waits so long."""


class Hosted:
    """A served node, and an operator's connection to it."""

    def __init__(self, folder: Path, specs: Iterable[str] = ()) -> None:
        """Keeps its data in a folder; the controller of MoniQue has workers for these specs."""
        self._data_dir = folder / "data"
        self._errors_path = folder / "errors"
        self._specs = list(specs)
        self._process: subprocess.Popen[bytes] | None = None
        self._operator: Client | None = None
        self._ports: dict[str, int] = {}
        self._ahead_s = 0.0

    def start(self) -> None:
        """Start the process on the data directory, and wait until it serves."""
        options = {"data_dir": str(self._data_dir), "ahead_s": self._ahead_s, "specs": self._specs}
        with self._errors_path.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.served", json.dumps(options)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._hear()

    def port(self, key: str) -> int:
        """Where a door listens, by the key of its setting."""
        return self._ports[key]

    @property
    def operator(self) -> Client:
        """A client of our own protocol, for what an operator does and sees."""
        if self._operator is None:
            self._operator = connect_sync(f"penstock://127.0.0.1:{self.port('taskflux.port')}")
        return self._operator

    def now_ms(self) -> int:
        """The time as the node has it."""
        return int((time.time() + self._ahead_s) * 1000)

    def advance(self, seconds: float) -> None:
        """Put the node's clock forward; what is due by then has happened when this returns."""
        self._order(do="advance", seconds=seconds)

    def restart(self, down_s: float = 0.0) -> None:
        """Stop the node in good order, let so much time pass, and start it from its directory again."""
        self._leave()
        self._order(do="restart", seconds=down_s)

    def kill(self) -> None:
        """Kill the process as the system would, and start another on its directory."""
        self._leave()
        self._end(signal.SIGKILL)
        self.start()

    def close(self) -> None:
        """End all."""
        self._leave()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(WITHIN_S)
            finally:
                self._end(signal.SIGKILL)

    def errors(self) -> str:
        """What the process wrote to its error stream."""
        return self._errors_path.read_text(errors="replace")

    def _order(self, **order: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout
        ready, _, _ = select.select([stdout], [], [], WITHIN_S)
        line = stdout.readline() if ready else b""
        assert line, f"the served process says nothing; it wrote:\n{self.errors()[-5000:]}"
        said = json.loads(line)
        self._ports, self._ahead_s = said["ports"], said["ahead_s"]

    def _leave(self) -> None:
        if self._operator is not None:
            self._operator.close()
            self._operator = None

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self._process = None

    def __enter__(self) -> Hosted:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
