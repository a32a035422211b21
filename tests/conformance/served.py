"""The node that the suite asks: a process of its own, on a real data directory, whose clock its starter puts forward.

    python -m tests.conformance.served '{"data_dir": ..., "ahead_s": 0}'

It says one line of JSON when it serves, and one for each order that it is given on its standard input: `advance` (put
the clock forward; what is due by then has happened when this is answered), `restart` (stop in good order, put the clock
forward while nothing runs, start from the directory again) and `stop`. When its input ends, so does it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from penstock.doors.server import Server
from penstock.node.clock import LogClock
from penstock.node.requests import NOBODY
from penstock.settings import EtzelSettings, LimitsSettings, MoniqueSettings, Settings, TaskfluxSettings

PAYLOAD_BYTES_MAX = 1024 * 1024
"""The node's limit; small, so that the largest payload is quickly sent."""
DAY_MS = 86_400_000


class Options(msgspec.Struct, kw_only=True):
    """What the one argument says."""

    data_dir: str
    ahead_s: float = 0.0
    specs: list[str] = []
    """For which MoniQue's controller has workers."""


class Order(msgspec.Struct, kw_only=True):
    """A line of the standard input."""

    do: str
    seconds: float = 0.0


class AdvancedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Served:
    """A server that can be stopped and started again, and its clock."""

    def __init__(self, loop: AdvancedLoop, options: Options) -> None:
        self._loop = loop
        self._options = options
        self._loop.ahead_s = options.ahead_s
        self._server: Server | None = None

    def _clock(self) -> LogClock:
        def ahead_ns() -> int:
            return int(self._loop.ahead_s * 1e9)

        return LogClock(lambda: time.monotonic_ns() + ahead_ns(), lambda: time.time_ns() + ahead_ns())

    async def start(self) -> None:
        """Serve on free ports."""
        settings = Settings(
            data_dir=self._options.data_dir,
            limits=LimitsSettings(payload_bytes=PAYLOAD_BYTES_MAX),
            # A client that waits while the clock is put forward is not idle; who does not acknowledge still is late.
            taskflux=TaskfluxSettings(port=0, idle_timeout_ms=DAY_MS),
            etzel=EtzelSettings(port=0),
            monique=MoniqueSettings(
                gateway_port=0,
                com_in_port=0,
                com_out_port=0,
                tech_in_port=0,
                tech_out_port=0,
                connections=",".join(f"{spec}=0" for spec in self._options.specs),
            ),
        )
        self._server = Server(settings, clock=self._clock())
        await self._server.start()

    async def stop(self) -> None:
        """Stop in good order."""
        assert self._server is not None
        await self._server.stop()
        self._server = None

    async def advance(self, seconds: float) -> None:
        """Put the clock forward, and wait for what is due by then."""
        assert self._server is not None
        self._loop.ahead_s += seconds
        # One turn of the loop finds the timers that are due, the next has run them; then their entries are in flight.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        applied: asyncio.Future[None] = self._loop.create_future()
        self._server.node.read(lambda: applied.set_result(None), NOBODY)
        await applied

    async def obey(self, order: Order) -> None:
        """Do what was ordered."""
        if order.do == "advance":
            await self.advance(order.seconds)
        elif order.do == "restart":
            await self.stop()
            self._loop.ahead_s += order.seconds
            await self.start()
        else:
            raise ValueError(f"there is no order {order.do!r}")

    def say(self) -> None:
        """Tell where the doors are and how far the clock is ahead."""
        assert self._server is not None
        ports = {listener.key: listener.port for listener in self._server.listeners}
        write_line({"ports": ports, "ahead_s": self._loop.ahead_s})


def write_line(value: dict[str, Any]) -> None:
    """Write one line for the process that started this one."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def serve(loop: AdvancedLoop, options: Options) -> None:
    """Serve, and obey, until the input ends."""
    served = Served(loop, options)
    await served.start()
    served.say()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    unread = bytearray()

    def read_input() -> None:
        unread.extend(data := os.read(0, 65536))
        *whole, rest = bytes(unread).split(b"\n")
        unread[:] = rest
        for line in [*whole, b""] if not data else whole:
            lines.put_nowait(line)

    loop.add_reader(0, read_input)
    while line := await lines.get():
        await served.obey(msgspec.json.decode(line, type=Order))
        served.say()
    loop.remove_reader(0)
    await served.stop()


def main() -> None:
    """Run the process."""
    options = msgspec.json.decode(sys.argv[1], type=Options)
    Path(options.data_dir).mkdir(parents=True, exist_ok=True)
    loop = AdvancedLoop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve(loop, options))
    loop.close()


if __name__ == "__main__":
    main()
