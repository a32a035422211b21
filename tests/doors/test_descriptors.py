"""The limit of connections and the system's limit of open files."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.doors import descriptors
from penstock.doors.descriptors import KEPT, connections_allowed


class System:
    """Limits as the system would have them."""

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = (soft, hard)

    def getrlimit(self, _kind: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, _kind: int, limits: tuple[int, int]) -> None:
        assert limits[0] <= self.limits[1]
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "soft_after"),
    [
        (1024, 1024, 10_000, 1024 - KEPT, 1024),
        (1024, 4096, 10_000, 4096 - KEPT, 4096),
        (1024, 1_048_576, 10_000, 10_000, 10_000 + KEPT),
        (1024, 4096, 500, 500, 1024),
        (100, 100, 500, 25, 100),
    ],
)
def test_the_limit_is_raised_as_far_as_needed_and_files_of_the_log_keep_their_share(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    wanted: int,
    allowed: int,
    soft_after: int,
) -> None:
    system = System(soft, hard)
    for name in ("getrlimit", "setrlimit"):
        monkeypatch.setattr(descriptors.resource, name, getattr(system, name))
    with caplog.at_level(logging.WARNING):
        assert connections_allowed(wanted) == allowed
    assert system.limits == (soft_after, hard)
    assert bool(caplog.records) == (allowed < wanted)
    if caplog.records:
        assert str(wanted) in caplog.text
        assert str(soft_after) in caplog.text


NODE = """
import asyncio, sys
from penstock.doors.server import Server
from penstock.engine import commands as c
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.testing import OTHER_DOORS_CLOSED

async def main():
    storage = StorageSettings(segment_bytes=64 * 1024)
    settings = Settings(data_dir=sys.argv[1], storage=storage, taskflux=TaskfluxSettings(port=0), **OTHER_DOORS_CLOSED)
    server = Server(settings)
    await server.start()
    print(server.listeners[0].port, flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await asyncio.wait([asyncio.ensure_future(reader.read()), server.node.failed], return_when="FIRST_COMPLETED")
    print("failed" if server.node.failed.done() else "well", len(server._keeper.connections), flush=True)
    await server.stop()

asyncio.run(main())
"""


def test_idle_connections_up_to_the_limit_of_files_do_not_stop_the_log_from_growing(tmp_path: Path) -> None:
    from tests.doors.native.support import RawClient, put

    limit = 320
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert node.stdin is not None
    assert node.stdout is not None
    sockets: list[socket.socket] = []
    try:
        port = int(node.stdout.readline())
        with RawClient(port) as client:
            client.call(put("", b"x"))
            sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(limit + 50)]
            for _ in range(40):
                client.call(put("", bytes(10_000)))
        outcome, count = node.communicate(timeout=60)[0].split()
        assert outcome == "well"
        assert int(count) <= limit - KEPT
    finally:
        for each in sockets:
            each.close()
        node.kill()
        node.wait()
