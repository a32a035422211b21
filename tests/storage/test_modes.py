"""Who may read what holds users' messages: the owner and the group, and nobody else, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.disk import Disk
from penstock.storage.modes import create_file, make_directories


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("make", [make_directories, lambda path: Disk().mkdir(path, "test")])
def test_all_directories_that_are_made_are_closed_to_others(make: object, tmp_path: Path) -> None:
    assert callable(make)
    there = tmp_path / "there"
    there.mkdir(0o755)
    make(there / "a" / "b")
    assert [mode(path) for path in (there, there / "a", there / "a" / "b")] == [0o755, 0o750, 0o750]
    make(there / "a" / "b")


def test_a_file_is_closed_to_others_also_if_it_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(path)
    assert mode(path) == 0o640
    path.write_text("secret")
    path.chmod(0o666)
    create_file(path)
    assert (mode(path), path.read_bytes()) == (0o640, b"")
    path.chmod(0o600)
    create_file(path)
    assert mode(path) == 0o600
