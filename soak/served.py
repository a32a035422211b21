"""The process that is killed: a real node with a watched disk. `python -m soak.served '{"data_dir": ..., ...}'`

It imports everything, says "standby", waits for a line on its standard input, starts the node, and says "ready" with
the port as JSON. When its standard input ends, so does it: whoever started it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from penstock.doors.server import Server
from penstock.settings import LimitsSettings, Settings, StorageSettings, TaskfluxSettings
from penstock.storage.errors import StorageError
from penstock.testing import OTHER_DOORS_CLOSED
from soak.sites import Fault, SitePage, WatchedDisk

NODE_FAILED = 70
START_FAILED = 1


class Options(msgspec.Struct, kw_only=True):
    """What the one argument says."""

    data_dir: str
    page: str = ""
    """The file of the shared page; empty for none."""
    storage: dict[str, Any] = {}
    """Settings of storage that are not the default."""
    limits: dict[str, Any] = {}
    port: int = 0
    fault: Fault | None = None


def say(**values: Any) -> None:
    """Write one line for the process that started this one."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def serve(options: Options) -> int:
    """Serve until the node fails, or standard input ends; the exit code."""
    page = SitePage(Path(options.page)) if options.page else None
    disk = WatchedDisk(page, options.fault)
    settings = Settings(
        data_dir=options.data_dir,
        storage=StorageSettings(**options.storage),
        limits=LimitsSettings(**options.limits),
        taskflux=TaskfluxSettings(port=options.port),
        **OTHER_DOORS_CLOSED,
    )
    server = Server(settings, disk=disk)
    try:
        await server.start()
    except StorageError as error:
        sys.stderr.write(f"the node cannot start: {error}\n")
        return START_FAILED
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    def read_input() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            end()

    loop.add_reader(0, read_input)
    server.node.failed.add_done_callback(end)
    say(state="ready", port=server.listeners[0].port, notes=server.notes)
    await ended
    await server.stop()
    if server.node.failed.done():
        sys.stderr.write(f"{server.node.failed.result()}\n")
        return NODE_FAILED
    return 0


def main() -> int:
    """Run the process."""
    options = msgspec.json.decode(sys.argv[1], type=Options)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    say(state="standby")
    if not sys.stdin.readline():
        return 0
    with contextlib.suppress(ImportError):
        import uvloop

        return asyncio.Runner(loop_factory=uvloop.new_event_loop).run(serve(options))
    return asyncio.run(serve(options))


if __name__ == "__main__":
    sys.exit(main())
