"""The process that is killed: a node on a real disk with an Etzel door. `python -m tests.doors.etzel.served DATA_DIR`

It writes the port of its door as a line. Each line on its standard input is a number of seconds by which its clock goes
forward; it answers "done" when what is due by then has happened. When the input ends, so does it.
"""

from __future__ import annotations

import asyncio
import sys
import time

from penstock.doors.server import Server
from penstock.node.clock import LogClock
from penstock.settings import EtzelSettings, MoniqueSettings, Settings, TaskfluxSettings
from tests.doors.conftest import AdvancedLoop


async def main(data_dir: str) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, AdvancedLoop)

    def ahead_ns() -> int:
        return int(loop.ahead_s * 1e9)

    settings = Settings(
        data_dir=data_dir,
        taskflux=TaskfluxSettings(enabled=False),
        etzel=EtzelSettings(port=0),
        monique=MoniqueSettings(enabled=False),
    )
    clock = LogClock(lambda: time.monotonic_ns() + ahead_ns(), lambda: time.time_ns() + ahead_ns())
    server = Server(settings, clock=clock)
    await server.start()
    print(server.listeners[0].port, flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        loop.ahead_s += float(line)
        for _ in range(3):  # what is due is found, proposed, and applied
            await asyncio.sleep(0)
        print("done", flush=True)
    await server.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=AdvancedLoop) as runner:
        runner.run(main(sys.argv[1]))
