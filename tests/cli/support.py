"""Running the command: in this process, as a process of its own, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from penstock.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 30.0
"""How long anything may take on a busy machine before it counts as stuck."""


class Command:
    """Runs the command in this process, against a node."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self._runner = CliRunner(env={"PENSTOCK_URL": url})

    def __call__(self, *args: str, input: bytes | str | None = None, code: int = 0) -> Result:
        """Run it; `code` is the exit code that it must end with."""
        result = self._runner.invoke(cli, args, input=input, prog_name="penstock")
        assert result.exit_code == code, f"{args}: {result.exit_code}\n{result.output}\n{result.exc_info}"
        return result

    def json(self, *args: str, input: bytes | str | None = None, code: int = 0) -> list[dict[str, Any]]:
        """Run it with --json; each line is one document."""
        return [json.loads(line) for line in self(*args, "--json", input=input, code=code).stdout.splitlines()]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a command: none of ours but these, and no door on a fixed port unless a test opens it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**kept, "PENSTOCK_ETZEL_ENABLED": "false", "PENSTOCK_MONIQUE_ENABLED": "false", **(extra or {})}


def run(*args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m penstock` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", *args],
        env=environment(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def started(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`python -m penstock` as a process that runs on; killed at the end if it still does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *args],
        env=environment(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


def without_escapes(text: str) -> str:
    """What a terminal was sent, without what moves and colours it."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", text)


class Terminal:
    """A process with a terminal: what a person would see, and what they type."""

    def __init__(self, *args: str, env: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        self._screen = b""
        self._patience_s = patience_s
        self._main, other = pty.openpty()
        sizes = {"COLUMNS": "120", "LINES": "30", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *args],
            env=environment({**sizes, **env}),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._main)

    @property
    def screen(self) -> str:
        """All that was written so far, without the escapes that move and colour it."""
        return without_escapes(self.raw)

    @property
    def raw(self) -> str:
        """The same with these."""
        return self._screen.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        """Read until this has been written."""
        deadline = time.monotonic() + self._patience_s
        while text not in self.screen:
            assert self._read(deadline), f"{text!r} did not come:\n{self.screen}"

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._main, text.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read until the process has ended; its exit code."""
        deadline = time.monotonic() + self._patience_s
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # The other end is closed: the process has ended.
            return False
        self._screen += data
        return bool(data)
