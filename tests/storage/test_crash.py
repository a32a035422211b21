"""A power cut at any moment: what was confirmed is there, and the journal is what it would have been without the cut.

The scenario goes through everything a running node does: batches, marks, rolls, snapshots, term and vote, the dropping
of entries. At every system call, every state that a power cut could leave is opened, replayed, written on to, and
opened once more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.storage.layout import Layout
from penstock.storage.scan import TornTail
from penstock.storage.store import Store
from tests.storage.crashing import CrashDisk, Picture, materialise, states_after_crash
from tests.storage.scenario import Facts, Scenario
from tests.storage.support import (
    FAR_FUTURE_US,
    all_rows,
    entries,
    joined,
    open_store,
    replay,
    snapshot_blocks,
    write,
)

ENTRIES = 130


def test_a_power_cut_at_any_moment_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    facts = Facts()
    scenario = Scenario(root, CrashDisk(root, lambda: replace(facts)), facts)
    scenario.write(1)
    scenario.save_term(1)
    scenario.write(30)
    scenario.store.mark()
    scenario.write(25)
    scenario.snapshot()
    scenario.save_term(2)
    scenario.drop(45)
    scenario.write(9)
    scenario.write(40)
    scenario.store.mark()
    scenario.snapshot()
    scenario.facts.retiring = True
    assert scenario.store.run_retention(FAR_FUTURE_US)
    scenario.write(ENTRIES - scenario.next)
    scenario.store.close()
    assert scenario.next == ENTRIES
    checked = _check_all(tmp_path, root, _pictures(scenario))
    assert checked > 500


def test_the_making_of_a_directory_can_be_cut_short_anywhere(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    disk = CrashDisk(root, Facts)
    store, _ = open_store(root, disk=disk)
    store.close()
    assert _check_all(tmp_path, root, disk.pictures) > 20


def _check_all(tmp_path: Path, root: Path, pictures: list[Picture]) -> int:
    reference = _reference(tmp_path / "reference")
    seen: set[tuple[object, ...]] = set()
    for picture in pictures:
        for state in states_after_crash(picture):
            facts: Facts = picture.facts
            key = (*sorted(state.items()), *vars(facts).values())
            if key in seen:
                continue
            seen.add(key)
            target = tmp_path / f"crash{len(seen)}"
            materialise(state, root, target)
            try:
                _check(target, facts, reference)
            except Exception as error:
                names = sorted(str(path.relative_to(root)) for path in state)
                raise AssertionError(f"cut after {picture.site} (state {len(seen)}): {names}, {facts}") from error
    return len(seen)


def _check(target: Path, facts: Facts, reference: dict[str, bytes]) -> None:
    store, recovered = open_store(target)
    assert recovered.journal_gap is None
    assert recovered.metadata.term in (facts.term, facts.term_asked)
    snapshot_index = -1
    if recovered.snapshot is not None:
        snapshot_index = recovered.snapshot.last_index
        assert list(recovered.snapshot) == snapshot_blocks(snapshot_index)
    assert snapshot_index in (facts.snapshot, facts.snapshot_asked)
    found = replay(store, recovered)
    assert found == entries(snapshot_index + 1, store.last_index + 1)
    assert facts.acked <= store.last_index <= facts.appended
    assert store.durable_index == store.last_index
    _check_on(store, target, reference, facts.retiring)


def _check_on(store: Store, target: Path, reference: dict[str, bytes], retiring: bool) -> None:
    """Go on writing to the end of the scenario, open again, and compare the journal with one that was never cut."""
    oldest = store.first_index
    write(store, store.last_index + 1, ENTRIES)
    rows = joined(store.journal_rows(oldest, ENTRIES))
    assert all_rows(oldest, ENTRIES).endswith(rows)
    # Of a segment that is being retired, the journal goes first.
    assert retiring or rows == all_rows(oldest, ENTRIES)
    assert rows.endswith(all_rows(store.snapshot_index + 1, ENTRIES))
    assert list(store.read(oldest, ENTRIES)) == entries(oldest, ENTRIES)
    store.close()
    for name, data in _journal_files(target).items():
        assert reference[name] == data, f"{name} is not what it would have been"
    store, _ = open_store(target)
    assert store.last_index == ENTRIES - 1
    store.close()


def _reference(path: Path) -> dict[str, bytes]:
    """The journal of a run without a crash, file by file."""
    store, _ = open_store(path)
    write(store, 0, ENTRIES)
    store.close()
    return _journal_files(path)


def _journal_files(path: Path) -> dict[str, bytes]:
    layout = Layout(path)
    paths = [*sorted(layout.archive.glob("*.events")), layout.live_events]
    return {path.name: path.read_bytes() for path in paths}


def test_a_power_cut_during_a_start_that_mends_something(tmp_path: Path) -> None:
    """For each kind of mending that a start does, its own system calls are cut short too."""
    root = tmp_path / "run"
    root.mkdir()
    facts = Facts()
    scenario = Scenario(root, CrashDisk(root, lambda: replace(facts)), facts)
    scenario.write(31)
    scenario.drop(45)
    scenario.write(25)
    scenario.snapshot()
    scenario.write(30)
    scenario.store.close()
    reference = _reference(tmp_path / "reference")
    mended: set[tuple[str, ...]] = set()
    count = 0
    for picture in _pictures(scenario):
        for state in states_after_crash(picture):
            count += 1
            first = tmp_path / f"first{count}"
            materialise(state, root, first)
            disk = CrashDisk(first)
            store, recovered = open_store(first, disk=disk)
            store.close()
            kind = (picture.site, *(note.split(":")[-1][:20] for note in recovered.notes), *map(_kind, recovered.torn))
            if len(kind) == 1 or kind in mended:
                continue
            mended.add(kind)
            for number, again in enumerate(state for cut in disk.pictures for state in states_after_crash(cut)):
                second = tmp_path / f"second{count}-{number}"
                materialise(again, first, second)
                _check(second, picture.facts, reference)
    assert len(mended) > 8


def _pictures(scenario: Scenario) -> list[Picture]:
    assert isinstance(scenario.disk, CrashDisk)
    return scenario.disk.pictures


def _kind(torn: TornTail) -> str:
    return torn.reason[:12]
