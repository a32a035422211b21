"""A byte that was once safely on disk and is not what it was: the node refuses to start, and says where and why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.storage.layout import Layout
from tests.crash.nodes import KIB, browse, put_each, serve_command, served

STORAGE = {"segment_bytes": 16 * KIB, "snapshot_bytes": 2**30, "reserve_bytes": 0}
PAYLOADS = [b"%05d" % number + bytes(200) for number in range(150)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with archived segments and a live log."""
    directory = tmp_path_factory.mktemp("sound")
    with served(directory, storage=STORAGE) as node:
        put_each(node.port, PAYLOADS)
        assert node.stop() == 0
    return directory / "data"


@pytest.fixture(scope="module")
def with_snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose state is in a snapshot."""
    directory = tmp_path_factory.mktemp("snapshot")
    storage = STORAGE | {"snapshot_bytes": 8 * KIB}
    with served(directory, storage=storage) as node:
        put_each(node.port, PAYLOADS)
        assert node.stop() == 0
    assert Layout(directory / "data").snapshot.exists()
    return directory / "data"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "offset", "told"),
    [
        ("consensus/raft.log", 0, "not with the marker"),
        ("consensus/raft.log", 4, "version"),
        ("consensus/raft.log", 100, "was safely on disk"),
        ("consensus/raft.log", 2000, "was safely on disk"),
        ("consensus/raft.metadata", 12, "wrong checksum"),
        ("consensus/archive/00000000000000000000.log", 3000, "wrong checksum"),
    ],
)
def test_a_damaged_file_stops_the_start(sound: Path, tmp_path: Path, name: str, offset: int, told: str) -> None:
    shutil.copytree(sound, tmp_path / "data")
    refused(tmp_path / "data", name, offset, told)


@pytest.mark.parametrize(("offset", "told"), [(12, "wrong checksum of the header"), (300, "wrong checksum of a block")])
def test_a_damaged_snapshot_stops_the_start(with_snapshot: Path, tmp_path: Path, offset: int, told: str) -> None:
    shutil.copytree(with_snapshot, tmp_path / "data")
    refused(tmp_path / "data", "consensus/raft.snapshot", offset, told)


def refused(data_dir: Path, name: str, offset: int, told: str) -> None:
    flip(data_dir / name, offset)
    before = {path: path.read_bytes() for path in data_dir.rglob("raft.*")}
    result = serve_command(data_dir, "--storage-reserve-bytes", "0", "--storage-segment-bytes", "16KiB")
    assert result.returncode == 1
    assert "is ready" not in result.stdout
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"penstock: {data_dir / name}, offset ")
    assert told in last_line
    assert "Traceback" not in result.stderr
    assert {path: path.read_bytes() for path in data_dir.rglob("raft.*")} == before, "nothing is repaired by guessing"


def test_a_damaged_journal_is_rebuilt_and_told(sound: Path, tmp_path: Path) -> None:
    """The journal follows from the log, so it is no reason to refuse."""
    shutil.copytree(sound, tmp_path / "data")
    flip(Layout(tmp_path / "data").live_events, 9)
    with served(tmp_path, storage=STORAGE) as node:
        assert [record.payload for record in browse(node.port)] == PAYLOADS
        assert any("live.events" in note for note in node.notes)


def test_files_of_version_1_are_refused_with_the_way_to_bring_them_in(tmp_path: Path) -> None:
    consensus = tmp_path / "data" / "consensus"
    consensus.mkdir(parents=True)
    (consensus / "raft.metadata").write_bytes(bytes.fromhex("2f0f6f2f01000000010000000000000000"))
    result = serve_command(tmp_path / "data")
    assert result.returncode == 1
    assert "penstock storage import" in result.stderr
