"""What processes use, read from /proc: CPU time and memory of a server's whole process tree, and a meter for loads."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_tree(root_pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            fields = _stat_fields(int(entry))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    tree, rest = [], [root_pid]
    while rest:
        pid = rest.pop()
        tree.append(pid)
        rest += children.get(pid, [])
    return tree


def cpu_seconds(pid: int) -> float:
    """CPU time of all living threads of a process, in nanosecond steps; 0 if it is gone.

    `schedstat` counts what utime and stime of `stat` count, without their steps of 10 ms.
    """
    total_ns = 0
    try:
        for thread in os.listdir(_PROC / str(pid) / "task"):
            total_ns += int((_PROC / str(pid) / "task" / thread / "schedstat").read_text().split()[0])
    except (OSError, IndexError, ValueError):
        fields = _stat_fields(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0
    return total_ns / 1e9


def memory_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes together."""
    total = 0
    for pid in pids:
        try:
            resident_pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
        total += resident_pages * os.sysconf("SC_PAGE_SIZE")
    return total


def peak_memory_bytes(pids: Iterable[int]) -> int:
    """The most resident memory that processes ever had, each by itself, added up."""
    total = 0
    for pid in pids:
        try:
            text = (_PROC / str(pid) / "status").read_text()
        except OSError:
            continue
        found = _PEAK.search(text)
        total += int(found[1]) * 1024 if found is not None else 0
    return total


def machine_busy_seconds() -> float:
    """CPU time that all cores together spent not idle since the machine started."""
    fields = [int(field) for field in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, iowait = fields[3], fields[4]
    return (sum(fields) - idle - iowait) / _TICKS_PER_S


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on: the name before them may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


class Meter:
    """A stopwatch for wall time and for the CPU time of server, client and everybody else. May run several times."""

    def __init__(self, server_pids: Callable[[], list[int]]) -> None:
        self._server_pids = server_pids
        self.wall_s = 0.0
        self.server_s = 0.0
        self.client_s = 0.0
        self.machine_s = 0.0

    def __enter__(self) -> Meter:
        self._server_before = {pid: cpu_seconds(pid) for pid in self._server_pids()}
        self._machine_before = machine_busy_seconds()
        self._client_before = time.process_time()
        self._wall_before = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.wall_s += time.perf_counter() - self._wall_before
        self.client_s += time.process_time() - self._client_before
        self.machine_s += machine_busy_seconds() - self._machine_before
        for pid in {*self._server_before, *self._server_pids()}:
            # A process that ended in between reads 0 now; what it used is lost rather than counted negative.
            self.server_s += max(0.0, cpu_seconds(pid) - self._server_before.get(pid, 0.0))

    def figures(self, messages: int) -> dict[str, float]:
        """The figures of a sample: rate, server CPU per message, cores used by client and by others."""
        wall_s = max(self.wall_s, 1e-9)
        others_s = max(0.0, self.machine_s - self.server_s - self.client_s)
        return {
            "rate_per_s": messages / wall_s,
            "cpu_us": self.server_s / max(messages, 1) * 1e6,
            "server_cores": self.server_s / wall_s,
            "client_cores": self.client_s / wall_s,
            "other_cores": others_s / wall_s,
        }
