"""How soon: puts into a node, and a continuous pipeline in a process of its own whose manifest is watched."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import penstock
from bench.errors import ServerFailed
from bench.model import Bench
from bench.servers import Penstock

_PUTS = 40
_WARM_UP = 10
_PAUSE_S = 0.25
_LIMIT_S = 120.0
_LOOK_EVERY_S = 0.005


def delays_s(bench: Bench, server: Penstock, target: Path) -> list[float]:
    """For each of some puts, how long after its answer the manifest covered it."""
    endpoint = f"127.0.0.1:{server.port}"
    command = [*bench.workshop.penstock_command, "pipeline", "run", "--continuous"]
    log = bench.workshop.folder / "pipeline.log"
    with log.open("wb") as output, penstock.connect_sync(f"penstock://{endpoint}") as client:
        process = subprocess.Popen(
            [*command, "--endpoint", endpoint, "--to", str(target)], stdout=output, stderr=output
        )
        try:
            queue = client.queue("bench")
            queue.create()
            found = []
            for _ in range(_WARM_UP + _PUTS):
                queue.put(b"x" * 100)
                answered_s = time.perf_counter()
                _await(target, client.status().applied_index, process)
                found.append(time.perf_counter() - answered_s)
                time.sleep(_PAUSE_S)
            return found[_WARM_UP:]
        finally:
            process.terminate()
            process.wait()


def _await(target: Path, index: int, process: subprocess.Popen[bytes]) -> None:
    give_up_s = time.perf_counter() + _LIMIT_S
    while _watermark(target) < index:
        if process.poll() is not None or time.perf_counter() > give_up_s:
            raise ServerFailed("pipeline", f"entry {index} did not come to bronze, see pipeline.log")
        time.sleep(_LOOK_EVERY_S)


def _watermark(target: Path) -> int:
    try:
        manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return -1
    return int(manifest["tables"]["bronze.events"]["watermark"])
