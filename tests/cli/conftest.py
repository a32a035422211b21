"""A node in memory for the tests of the command line, and the command."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from penstock.client import connect_sync
from penstock.client.sync import Client
from penstock.testing import TestServer
from tests.cli.support import Command

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def node() -> Iterator[TestServer]:
    """One node for all tests: each takes queues of its own."""
    with TestServer() as server:
        yield server


@pytest.fixture
def penstock(node: TestServer) -> Command:
    """The command."""
    return Command(node.url)


@pytest.fixture
def client(node: TestServer) -> Iterator[Client]:
    """A client of the same node, to look at what the command did."""
    with connect_sync(node.url) as connected:
        yield connected


@pytest.fixture
def queue(client: Client) -> Iterator[str]:
    """A queue of this test's own."""
    name = f"queue-{next(_numbers)}"
    client.queue(name).create()
    yield name
    if any(view.name == name for view in client.queues()):
        client.queue(name).drop()
