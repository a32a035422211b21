"""Facts about the machine that a reader needs to judge the figures: cores, kernel, file system, latency of a sync."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from bench.quantiles import quantile

_MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "overlay"}


@dataclass(frozen=True)
class SyncLatency:
    """How long a small write and its fdatasync take on a preallocated file."""

    p50_us: float
    p99_us: float
    max_us: float
    per_s: float


@dataclass(frozen=True)
class Machine:
    """What the run ran on."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    file_system: str

    @property
    def doubtful_disk(self) -> bool:
        """The data may lie in memory, where a sync costs nothing."""
        return self.file_system.split()[0] in _MEMORY_FILE_SYSTEMS


def describe_machine(data_folder: Path) -> Machine:
    """Read the facts; `data_folder` is where the servers write."""
    pages = os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        file_system=_file_system(data_folder.resolve()),
    )


def measure_sync(folder: Path, seconds: float = 0.3, size_bytes: int = 4096) -> SyncLatency:
    """Overwrite and sync a preallocated file for a while."""
    path = folder / "sync-probe"
    file_bytes = 4 << 20
    latencies_us: list[float] = []
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(file, bytes(file_bytes))
        os.fsync(file)
        data = b"x" * size_bytes
        started = time.perf_counter()
        while (before := time.perf_counter()) - started < seconds:
            os.pwrite(file, data, len(latencies_us) * size_bytes % file_bytes)
            os.fdatasync(file)
            latencies_us.append((time.perf_counter() - before) * 1e6)
        wall_s = time.perf_counter() - started
    finally:
        os.close(file)
        path.unlink()
    return SyncLatency(
        p50_us=quantile(latencies_us, 0.5),
        p99_us=quantile(latencies_us, 0.99),
        max_us=max(latencies_us),
        per_s=len(latencies_us) / wall_s,
    )


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Kind and device of the mount that holds the folder."""
    best, answer = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        device, mount, kind = line.split()[:3]
        if folder.is_relative_to(mount) and len(mount) >= best:
            best, answer = len(mount), f"{kind} on {device}"
    return answer
