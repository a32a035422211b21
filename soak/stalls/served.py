"""The node on a measured loop: `python -m soak.stalls.served DATA-DIR`. Answers each line of input with one of JSON.

Only asyncio's own loop can be measured callback by callback; the callbacks are the same as on uvloop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from time import thread_time
from typing import Any, Final

from penstock.doors.server import Server
from penstock.settings import (
    EtzelSettings,
    LimitsSettings,
    MoniqueSettings,
    Settings,
    StorageSettings,
    TaskfluxSettings,
)

_MIB: Final = 1024 * 1024
_WORST_KEPT: Final = 5


class LoopWatch:
    """Keeps the callbacks that took the most CPU time."""

    def __init__(self) -> None:
        self.worst: list[tuple[float, str]] = []
        self._collecting_s = 0.0

    def install(self) -> None:
        """Measure every callback of every asyncio loop of this process from now on."""
        run = asyncio.events.Handle._run
        gc.callbacks.append(self._on_collection)

        def measured(handle: Any) -> None:
            name = _name_of(handle)
            self._collecting_s = 0.0
            began_s = thread_time()
            run(handle)
            self._note(thread_time() - began_s, name)

        asyncio.events.Handle._run = measured  # type: ignore[method-assign]

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        self._collecting_s += thread_time() * (1 if phase == "stop" else -1)

    def _note(self, took_s: float, name: str) -> None:
        if len(self.worst) < _WORST_KEPT or took_s > self.worst[-1][0]:
            collected = f" ({self._collecting_s * 1000:.1f} ms of it garbage collection)" if self._collecting_s else ""
            self.worst = sorted([*self.worst, (took_s, name + collected)], reverse=True)[:_WORST_KEPT]

    def report(self) -> list[tuple[float, str]]:
        """The worst since the last report."""
        worst, self.worst = self.worst, []
        return worst


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_coro().__qualname__}"  # type: ignore[union-attr]
    return getattr(callback, "__qualname__", None) or repr(callback)


async def serve(data_dir: str, watch: LoopWatch) -> None:
    """Serve until standard input ends."""
    settings = Settings(
        data_dir=data_dir,
        storage=StorageSettings(snapshot_bytes=64 * _MIB, reserve_bytes=0),
        limits=LimitsSettings(memory_bytes=2048 * _MIB),
        taskflux=TaskfluxSettings(port=0),
        etzel=EtzelSettings(port=0),
        monique=MoniqueSettings(
            gateway_port=0, com_in_port=0, com_out_port=0, tech_in_port=0, tech_out_port=0, connections="spec=0"
        ),
    )
    server = Server(settings)
    await server.start()
    watch.report()
    _say({listener.key: listener.port for listener in server.listeners})
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read_input() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(_say, {"worst": watch.report()}) if line.strip() else None
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read_input, daemon=True).start()
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({waiting, server.node.failed}, return_when=asyncio.FIRST_COMPLETED)
    await server.stop()


def _say(values: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    watched = LoopWatch()
    watched.install()
    asyncio.run(serve(sys.argv[1], watched))
