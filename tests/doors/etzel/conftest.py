"""Nodes with an Etzel door: on each of the two event loops, or with a clock that the test puts forward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import uvloop

from tests.doors.conftest import AdvancedLoop
from tests.doors.etzel.support import Client, EtzelServer


@pytest.fixture(params=["asyncio", "uvloop"])
def etzel(request: pytest.FixtureRequest) -> Iterator[EtzelServer]:
    """A node on each of the two event loops."""
    server = EtzelServer(uvloop.new_event_loop() if request.param == "uvloop" else AdvancedLoop())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def clocked() -> Iterator[EtzelServer]:
    """A node whose clock the test puts forward."""
    server = EtzelServer(AdvancedLoop())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(etzel: EtzelServer) -> Client:
    """A client of the node."""
    return etzel.client()
