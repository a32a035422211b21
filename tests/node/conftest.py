"""Each test of a node has a data directory of its own, on the real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.support import stores


@pytest.fixture(autouse=True)
def _data_directory(tmp_path: Path) -> Iterator[None]:
    stores.begin(tmp_path)
    yield
    stores.close()
