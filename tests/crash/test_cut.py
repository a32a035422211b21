"""The log cut anywhere in its last 64 KiB: a real node starts with every entry that is whole, and says what it cut.

Every byte is tried in process in tests/storage; here it is a sample, each with a start of its own.
"""

from __future__ import annotations

import shutil
from collections import deque
from pathlib import Path
from random import Random

import pytest

from penstock.engine.commands import PUT
from penstock.engine.entries import decode_entry
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.records import read_entries
from penstock.storage.scan import scan_live
from soak.client import Connection
from soak.process import Served
from tests.crash.nodes import KIB, browse, put, put_each, served

CUTS = 50
REACH_BYTES = 64 * KIB
STANDING_BY = 3
STORAGE = {"segment_bytes": 1024 * KIB, "reserve_bytes": 0}
PAYLOADS = [b"%05d" % number + bytes(number % 400) for number in range(500)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose log has one entry for each payload, written by a node that was killed at its end."""
    directory = tmp_path_factory.mktemp("whole")
    with served(directory, storage=STORAGE) as node:
        put_each(node.port, PAYLOADS)
    return directory


def ends_of_puts(data_dir: Path) -> tuple[list[int], list[int]]:
    """Where the record of each put ends in the log, and where any record ends."""
    log = Layout(data_dir).log
    with FileSource(log) as source:
        scan = scan_live(source, log, None, 0)
        assert scan.torn is None
        starts = list(scan.offsets)
        entries = list(read_entries(source, log, scan.offsets, 0, scan.end, 0, scan.last_index + 1, scan.head.seed))
    ends, puts = [], []
    for start, (_, _, data) in zip(starts, entries, strict=True):
        ends.append(start + 32 + len(data))
        entry = decode_entry(data)
        assert entry is not None
        if any(command.op == PUT for command in entry.commands):
            puts.append(ends[-1])
    return puts, ends


def test_a_real_start_keeps_every_whole_entry(whole: Path, tmp_path: Path) -> None:
    puts, ends = ends_of_puts(whole / "data")
    assert len(puts) == len(PAYLOADS)
    log_end = ends[-1]
    random = Random(1)
    places = sorted(random.sample(range(log_end - REACH_BYTES, log_end), CUTS - 4))
    places += [log_end - 1, log_end, ends[-20], ends[-20] + 1]
    waiting: deque[tuple[int, Served]] = deque()
    rest = iter(places)
    try:
        while True:
            while len(waiting) < STANDING_BY and (place := next(rest, None)) is not None:
                waiting.append((place, start_from_cut(whole, tmp_path, place)))
            if not waiting:
                break
            place, node = waiting.popleft()
            with node:
                check_start(node, place, [end for end in puts if end <= place], place in ends)
                shutil.rmtree(tmp_path / f"cut-{place}")
    finally:
        for _, node in waiting:
            node.kill()


def start_from_cut(whole: Path, directory: Path, place: int) -> Served:
    data_dir = directory / f"cut-{place}"
    shutil.copytree(whole / "data", data_dir)
    with Layout(data_dir).log.open("r+b") as file:
        file.truncate(place)
    node = Served({"data_dir": str(data_dir), "storage": STORAGE}, directory / f"errors-{place}")
    node.begin()
    return node


def check_start(node: Served, place: int, whole_puts: list[int], at_boundary: bool) -> None:
    node.wait_ready()
    found = [record.payload for record in browse(node.port)]
    assert found == PAYLOADS[: len(whole_puts)], f"cut at {place}"
    torn = [note for note in node.notes if "raft.log: cut" in note]
    assert len(torn) == (not at_boundary), f"cut at {place}: {node.notes}"
    with Connection(node.port) as connection:
        assert connection.term == 2, "the term rises at every start"
        assert put(connection, b"after").first == len(whole_puts) + 1
