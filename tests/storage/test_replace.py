"""Snapshot and log are exchanged together: whatever a power cut leaves, both are old or both are new."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.errors import DirectoryInUse, NotADataDirectory, WrongMarker
from penstock.storage.layout import Layout
from penstock.storage.records import encode_log
from penstock.storage.replace import replace_snapshot_and_log
from penstock.storage.verify import verify
from tests.storage.crashing import CrashDisk, materialise, states_after_crash
from tests.storage.support import (
    FastDisk,
    all_rows,
    entries,
    joined,
    open_store,
    replay,
    rows_of,
    snapshot_blocks,
    take_snapshot,
    write,
)

OLD_SNAPSHOT, OLD_LAST = 60, 99
NEW_SNAPSHOT, NEW_LAST, NEW_TERM = 500, 519, 12
NEW_BLOCKS = [b"a state", b"from elsewhere"]


def new_log() -> bytes:
    batch = [(index, NEW_TERM, b"new %d" % index) for index in range(NEW_SNAPSHOT + 1, NEW_LAST + 1)]
    return encode_log(NEW_SNAPSHOT + 1, NEW_TERM, batch)


def make_old(root: Path) -> None:
    store, _ = open_store(root)
    write(store, 0, OLD_SNAPSHOT + 1)
    take_snapshot(store, OLD_SNAPSHOT)
    write(store, OLD_SNAPSHOT + 1, OLD_LAST + 1)
    store.save_metadata(3, 1)
    store.close()


def do_replace(root: Path, disk: FastDisk | None = None) -> None:
    replace_snapshot_and_log(root, NEW_SNAPSHOT, NEW_TERM, NEW_BLOCKS, new_log(), disk or FastDisk())


def check_whole(root: Path) -> str:
    """Open the directory; it must be all old or all new. Says which."""
    store, recovered = open_store(root)
    assert recovered.snapshot is not None
    found = list(recovered.entries)
    if recovered.snapshot.last_index == OLD_SNAPSHOT:
        assert list(recovered.snapshot) == snapshot_blocks(OLD_SNAPSHOT)
        assert found == entries(OLD_SNAPSHOT + 1, OLD_LAST + 1)
        assert list(store.read(0, OLD_LAST)) == entries(0, OLD_LAST + 1)
        for index, _, _ in found:
            store.journal_append(index, rows_of(index))
        assert joined(store.journal_rows(0, OLD_LAST)) == all_rows(0, OLD_LAST + 1)
        # Raising the term alone is harmless; a vote in the old term is kept.
        assert (recovered.metadata.term, recovered.metadata.vote) in ((3, 1), (NEW_TERM, None))
        which = "old"
    else:
        assert recovered.snapshot.last_index == NEW_SNAPSHOT
        assert list(recovered.snapshot) == NEW_BLOCKS
        assert [(index, data) for index, _, data in found] == [
            (index, b"new %d" % index) for index in range(NEW_SNAPSHOT + 1, NEW_LAST + 1)
        ]
        assert store.first_index == NEW_SNAPSHOT + 1
        assert joined(store.journal_rows(0, NEW_LAST)) == b""
        assert recovered.metadata.term == NEW_TERM
        assert recovered.journal_gap is None
        which = "new"
    layout = Layout(root)
    assert not layout.snapshot_new.exists()
    assert not layout.log_new.exists()
    store.close()
    assert verify(root).ok
    return which


def test_replacing_gives_the_new_state_and_keeps_the_ids(tmp_path: Path) -> None:
    make_old(tmp_path)
    do_replace(tmp_path)
    assert check_whole(tmp_path) == "new"
    store, recovered = open_store(tmp_path)
    replay(store, recovered)
    write(store, NEW_LAST + 1, NEW_LAST + 50)
    store.close()
    store, _ = open_store(tmp_path)
    assert store.last_index == NEW_LAST + 49
    store.close()


def test_a_power_cut_at_any_step_and_in_the_start_after_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    make_old(root)
    disk = CrashDisk(root)
    do_replace(root, disk)
    outcomes: list[str] = []
    seen: set[object] = set()
    for picture in disk.pictures:
        for state in states_after_crash(picture):
            key = frozenset(state.items())
            if key in seen:
                continue
            seen.add(key)
            first = tmp_path / f"first{len(seen)}"
            materialise(state, root, first)
            recovery = CrashDisk(first)
            store, _ = open_store(first, disk=recovery)
            store.close()
            outcomes.append(check_whole(first))
            for cut in recovery.pictures:
                for again in states_after_crash(cut):
                    key = frozenset(again.items())
                    if key in seen:
                        continue
                    seen.add(key)
                    second = tmp_path / f"second{len(seen)}"
                    materialise(again, first, second)
                    # What the first start decided may be lost with it, but not once it has opened the directory.
                    which = check_whole(second)
                    assert cut is not recovery.pictures[-1] or which == outcomes[-1]
    assert outcomes[0] == "old"
    assert outcomes[-1] == "new"
    assert {"old", "new"} == set(outcomes)


def test_a_directory_that_no_node_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADataDirectory):
        do_replace(tmp_path)


def test_an_open_directory_is_refused(tmp_path: Path) -> None:
    make_old(tmp_path)
    store, _ = open_store(tmp_path)
    with pytest.raises(DirectoryInUse):
        do_replace(tmp_path)
    store.close()
    assert check_whole(tmp_path) == "old"


def test_bytes_that_are_no_log_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    make_old(tmp_path)
    with pytest.raises(WrongMarker):
        replace_snapshot_and_log(tmp_path, 5, 1, NEW_BLOCKS, b"not a log", FastDisk())
    assert check_whole(tmp_path) == "old"
