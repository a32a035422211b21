"""A node with a MoniQue door for each test of this folder that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doors.monique.site import Site, running


@pytest.fixture
def site() -> Iterator[Site]:
    """A node without a disk, its door as it is by default."""
    with running() as site:
        yield site
