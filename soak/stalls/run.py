"""Every attack in turn, beside a client that pings."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from penstock.wire.native import messages as m
from soak.client import Connection, ConnectionGone
from soak.process import ROOT
from soak.stalls.attacks import ATTACKS, Attack, Ports

CALLBACK_S_MAX: Final = 0.020
_PING_EVERY_S: Final = 0.005


class Stalled:
    """The node under attack. Use it in a ``with`` block."""

    def __init__(self, directory: Path) -> None:
        with (directory / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "soak.stalls.served", str(directory / "data")],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.ports: Ports = self._line()

    def worst(self) -> list[tuple[float, str]]:
        """The callbacks that took the most CPU time since the last call: (seconds, name)."""
        assert self._process.stdin is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        return [(took_s, name) for took_s, name in self._line()["worst"]]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionGone(f"the node ended with {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def __enter__(self) -> Stalled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Pinger(threading.Thread):
    """A client that only wants to know whether the node answers, and how long that took at worst."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(port)
        self._ended = threading.Event()
        self.worst_s = 0.0

    def run(self) -> None:
        """Ping until told to end."""
        while not self._ended.wait(_PING_EVERY_S):
            began_s = time.perf_counter()
            self._connection.ask(m.Ping())
            self.worst_s = max(self.worst_s, time.perf_counter() - began_s)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join()
        self._connection.close()


def attack_all(directory: Path, say: Callable[[str], object], only: str = "") -> list[str]:
    """Run the attacks whose name contains ``only``; what held the loop for too long, in words."""
    violations: list[str] = []
    say(f"{'attack':<42} {'worst callback':>14}  {'worst ping':>10}")
    with Stalled(directory) as node:
        for attack in ATTACKS:
            if only in attack.name:
                violations += _attack(node, attack, say)
    return violations


def _attack(node: Stalled, attack: Attack, say: Callable[[str], object]) -> list[str]:
    attack.prepare(node.ports)
    prepared = node.worst()
    pinger = Pinger(node.ports["taskflux.port"])
    pinger.start()
    attack.run(node.ports)
    pinger.end()
    worst = sorted([*node.worst(), *prepared], reverse=True)
    took_s, name = worst[0]
    say(f"{attack.name:<42} {took_s * 1000:>11.1f} ms  {pinger.worst_s * 1000:>7.1f} ms  {name}")
    return [
        f"{attack.name}: {name} held the loop for {took_s * 1000:.1f} ms of CPU time"
        for took_s, name in worst
        if took_s > CALLBACK_S_MAX
    ]
