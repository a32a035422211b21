"""Starting and killing served processes. Each is ended by its own id, and at the latest when its starter is done."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
START_S_MAX: Final = 60.0
_ERRORS_BYTES_MAX: Final = 20_000


class ServedFailed(Exception):
    """A served process ended or did not answer when it should have. Carries what it wrote to its error stream."""

    code = "served-failed"

    def __init__(self, reason: str, errors: str) -> None:
        super().__init__(f"{reason}; it wrote:\n{errors.strip() or '(nothing)'}")
        self.reason = reason
        self.errors = errors


class Served:
    """One served process. Made early, it stands by, with everything imported, until ``begin``."""

    def __init__(self, options: dict[str, Any], errors: Path) -> None:
        self.errors_path = errors
        with errors.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "soak.served", json.dumps(options)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
            )
        self.port = 0
        self.notes: list[str] = []
        """What the start had to mend."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def begin(self) -> None:
        """Have it start the node; does not wait for it."""
        self._expect("standby")
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def wait_ready(self) -> None:
        """Wait until it serves."""
        said = self._expect("ready")
        self.port, self.notes = said["port"], said["notes"]

    def is_ready(self) -> bool:
        """Whether it has said something (so that ``wait_ready`` would not wait)."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def _expect(self, state: str) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], START_S_MAX)[0]:
            raise ServedFailed(f"the process did not say {state!r} within {START_S_MAX:.0f} s", self.errors())
        line = stdout.readline()
        if not line:
            raise ServedFailed(f"the process ended with code {self.process.wait()} before {state!r}", self.errors())
        said: dict[str, Any] = json.loads(line)
        assert said["state"] == state, said
        return said

    def kill(self) -> None:
        """Kill it as the system would, without a chance to do anything, and wait for its end."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()
        self._close_pipes()

    def stop(self) -> int:
        """Let it stop in good order; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(timeout=START_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServedFailed("the process did not stop", self.errors()) from None
        finally:
            self._close_pipes()

    def wait_end(self, timeout_s: float = START_S_MAX) -> int:
        """Wait until it ends by itself; its exit code."""
        return self.process.wait(timeout=timeout_s)

    def errors(self) -> str:
        """The end of what it wrote to its error stream."""
        return self.errors_path.read_bytes()[-_ERRORS_BYTES_MAX:].decode(errors="replace")

    def memory_bytes(self) -> int:
        """Its resident memory now; 0 if it is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def start(options: dict[str, Any], errors: Path) -> Served:
    """Start a process and wait until it serves."""
    served = Served(options, errors)
    try:
        served.begin()
        served.wait_ready()
    except BaseException:
        served.kill()
        raise
    return served


def wait_until(condition: Any, timeout_s: float = 30.0, every_s: float = 0.001) -> bool:
    """Look again and again until the condition holds; false if it never did."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True
