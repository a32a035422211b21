"""The node under test: `penstock serve` with every door open and small files, watched from outside."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final

WAIT_S: Final = 120.0
"""How long a start or a stop may take; only a node that hangs takes this long."""
_PORTS: Final = "taskflux etzel monique-gateway monique-com-in monique-com-out monique-tech-in monique-tech-out".split()
_OPTIONS: Final = (
    *("--storage-segment-bytes", "1MiB", "--storage-snapshot-bytes", "4MiB", "--storage-reserve-bytes", "1MiB"),
    *("--monique-connections", "spec=0", "--limits-memory-bytes", "256MiB"),
    *(word for port in _PORTS for word in (f"--{port}-port", "0")),
)
_LINE: Final = re.compile(r"^(\w+) +([\d.]+):(\d+)")
_PLACES: Final = ("taskflux", "etzel", "gateway", "components", "subscribers", "tech-in", "tech-out", "workers")
"""What the announced addresses are, in their order."""


class NodeFailed(Exception):
    """The node ended, hung or reported an error of its own. Carries what it wrote to its error stream."""

    code = "node-failed"

    def __init__(self, reason: str, errors: str) -> None:
        super().__init__(f"{reason}; the end of its log:\n{errors[-8000:].strip() or '(nothing)'}")
        self.reason = reason


class ServedNode:
    """One process. Use it in a ``with`` block: it is killed at the end unless it was stopped."""

    def __init__(self, directory: Path) -> None:
        self._errors = directory / "errors.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--data-dir", str(directory / "data"), *_OPTIONS],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.ports: dict[str, int] = {}
        self._wait_ready()

    def _wait_ready(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        deadline_s = time.monotonic() + WAIT_S
        said = b""
        while b"is ready." not in said:
            if not select.select([stdout], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise NodeFailed("the node did not become ready", self.errors())
            more = os.read(stdout.fileno(), 1 << 16)
            if not more:
                raise NodeFailed(f"the node ended with code {self.process.wait()} at its start", self.errors())
            said += more
        found = [match for line in said.decode().splitlines() if (match := _LINE.match(line))]
        self.ports = {place: int(match[3]) for place, match in zip(_PLACES, found, strict=True)}
        self.ports["native"] = self.ports["taskflux"]

    @property
    def url(self) -> str:
        """Where clients of the native protocol connect."""
        return f"penstock://127.0.0.1:{self.ports['native']}"

    def errors(self) -> str:
        """What it wrote to its error stream."""
        return self._errors.read_text(errors="replace")

    def check(self) -> None:
        """Raise if it has ended or reported an unexpected error."""
        if self.process.poll() is not None:
            raise NodeFailed(f"the node ended with code {self.process.returncode}", self.errors())
        if "Traceback" in self.errors():
            raise NodeFailed("the node logged a traceback", self.errors())

    def memory_bytes(self) -> int:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Stop it by SIGTERM. Raises if it does not end, or not with 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise NodeFailed("SIGTERM did not end the node", self.errors()) from None
        if code:
            raise NodeFailed(f"the node ended with code {code} after SIGTERM", self.errors())

    def __enter__(self) -> ServedNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
