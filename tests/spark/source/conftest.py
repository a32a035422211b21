"""What the tests of the data source share: a node that serves the history with every kind of event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.history import HistoryReader
from tests.spark.source.making import OnDisk


@pytest.fixture(scope="session")
def node(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDisk]:
    """A node with the same history. Nobody puts anything into it."""
    import shutil

    copy = tmp_path_factory.mktemp("node") / "data"
    shutil.copytree(data_dir, copy)
    with OnDisk(copy) as server:
        yield server


@pytest.fixture
def reader(node: OnDisk) -> Iterator[HistoryReader]:
    """The node's history."""
    with HistoryReader(node.url) as opened:
        yield opened
