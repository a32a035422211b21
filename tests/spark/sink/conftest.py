"""A node as users start it, for all tests of the sink; each test has a queue of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engine import commands as c
from soak.spark_sink import Broker


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A durable node, in a process of its own."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A new queue, named after the test."""
    name = f"{request.node.name[:200]}"
    broker.ask(c.CreateQueue(name, c.QueueSettings()))
    return name
