"""A data directory that an earlier release wrote starts, and yields the same state and the same history."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock.client.events import read_events
from penstock.engine.journal import ROW_BYTES
from penstock.engine.records import BURIED, DELAYED, LEASED, READY
from penstock.node.opening import recover
from penstock.storage.history import HistoryFiles
from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from penstock.storage.verify import verify
from tests.storage.formats import recipe
from tests.storage.formats.dumping import differences, dump_event, dump_state
from tests.storage.support import CLUSTER_ID, FastDisk

FORMATS = Path(__file__).parent / "formats"
FIXTURES = sorted(path.name for path in FORMATS.glob("*.tar.xz"))


@pytest.fixture(params=[(name, end) for name in FIXTURES for end in ("stopped", "killed")], ids="-".join)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of a directory, and what the release that wrote it saw in it."""
    name, end = request.param
    with tarfile.open(FORMATS / name) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / end, json.loads((tmp_path / f"{end}.json").read_text(encoding="utf-8"))


def open_again(path: Path) -> tuple[Store, dict[str, Any], bytes]:
    """Start as a node does; the store, the state, and all rows of the journal."""
    settings = StoreSettings(segment_bytes=recipe.SEGMENT_BYTES, reserve_bytes=0)
    store, recovered = Store.open(
        path,
        row_bytes=ROW_BYTES,
        new_cluster_id=CLUSTER_ID,
        node_id=recipe.NODE_ID,
        settings=settings,
        disk=FastDisk(),
    )
    engine = recover(store, recovered.snapshot, recovered.entries, recovered.journal_last_index)
    rows = b"".join(store.journal_rows(store.first_index, store.last_index))
    return store, dump_state(engine), rows


def events_in(path: Path) -> tuple[list[int], list[dict[str, Any]]]:
    with HistoryFiles(path) as files:
        reach = files.reach()
        found = [dump_event(event) for event in read_events(files, reach.first_index, reach.applied_index)]
    return [reach.first_index, reach.applied_index], found


def test_the_state_and_the_history_are_the_same(released: tuple[Path, dict[str, Any]]) -> None:
    path, expected = released
    assert not [str(problem) for problem in verify(path).problems if problem.severity != "torn"]
    reach, events = events_in(path)
    assert reach == expected["history"]
    assert differences(expected["events"], events) == []
    store, state, rows = open_again(path)
    assert differences(expected["state"], state) == []
    assert len(rows) == len(expected["events"]) * ROW_BYTES
    store.close()
    assert verify(path).problems == []
    assert events_in(path) == (reach, events), "the same by the files that the start completed"


def test_a_start_goes_on_from_it_and_the_next_one_finds_all(released: tuple[Path, dict[str, Any]]) -> None:
    """Entries are added until the log has rolled: the live segment of an earlier version becomes a sealed one."""
    path, expected = released
    store, _, _ = open_again(path)
    segments = len(Layout(path).sealed_first_indexes())
    first = store.last_index + 1
    added: list[bytes] = []
    while len(Layout(path).sealed_first_indexes()) < segments + 2:
        added.append(b"not a command %d " % len(added) * 40)
        store.append([(first + len(added) - 1, recipe.TERM, added[-1])])
    store.sync()
    assert [data for _, _, data in store.read(first, store.last_index)] == added
    store.close()
    store, _, rows = open_again(path)
    # An entry that is not one of the engine's is an event, too.
    assert len(rows) == (len(expected["events"]) + len(added)) * ROW_BYTES
    assert store.last_index == first + len(added) - 1
    store.close()
    assert verify(path).problems == []


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_the_recipe_makes_every_kind_of_state(tmp_path: Path, end: str) -> None:
    """The present format read by the present code; and nothing that the recipe promises is missing."""
    path = tmp_path / end
    recipe.write(path, is_killed=end == "killed")
    expected = json.loads((tmp_path / f"{end}.json").read_text(encoding="utf-8"))
    store, found, _ = open_again(path)
    store.close()
    assert differences(expected["state"], found) == []
    records = [record for each in found["records"].values() for record in each]
    assert {record["state"] for record in records} == {READY, DELAYED, LEASED, BURIED}
    assert any(record["origin"] for record in records)
    assert any(record["expires_at_us"] for record in records)
    assert any(record["headers"] for record in records)
    for kind in ("staged", "published", "producers", "bindings", "unfinished_jobs", "former_names", "dedup_keys"):
        assert found[kind], kind
    assert Layout(path).sealed_first_indexes()
    assert Layout(path).snapshot.exists()
