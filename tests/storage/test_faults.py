"""Every system call that writes can fail: with an error of the device, or because the disk is full.

One scenario goes through every site there is (a test holds it against the list). In it, one call at a time fails.
Whatever happens then, the caller is told, and the next start finds everything that was confirmed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.storage.disk import SITES, Disk
from penstock.storage.errors import DiskExhausted, StorageError, StorageFailed
from penstock.storage.layout import Layout
from penstock.storage.records import encode_log
from penstock.storage.replace import replace_snapshot_and_log
from penstock.storage.store import StoreSettings
from tests.storage.scenario import Facts, Scenario
from tests.storage.support import (
    FAR_FUTURE_US,
    FailingDisk,
    FastDisk,
    RecordingDisk,
    entries,
    open_store,
    snapshot_blocks,
    take_snapshot,
    term_of,
    write,
)

SETTINGS = StoreSettings(segment_bytes=4096, reserve_bytes=16 * 1024)

GIVEN_UP_QUIETLY = frozenset({"snapshot.unlink", "offsets.create", "offsets.write", "sums.create", "sums.write"})
"""Sites whose failure needs no answer: the file is removed by the next start, or can be done without."""

BEFORE_THE_RESERVE = frozenset({"directory.create", "lock.open"})


@dataclass
class Everything:
    """A life of a data directory that passes every site."""

    root: Path
    disk: Disk
    facts: Facts = field(default_factory=Facts)
    scenario: Scenario | None = None
    is_open: bool = True

    def run(self) -> None:
        scenario = self.scenario = Scenario(self.root, self.disk, self.facts, SETTINGS)
        layout = Layout(self.root)
        scenario.write(30)
        scenario.save_term(1)
        scenario.drop(45)
        scenario.write(30)
        scenario.store.mark()
        scenario.store.skip_entry(scenario.next - 1)
        given_up = scenario.store.begin_snapshot(scenario.next - 1, 1)
        given_up.write_block(b"given up")
        given_up.abort()
        scenario.snapshot()
        scenario.snapshot()
        scenario.store._space.relief("log.write")
        scenario.store.try_recover_space()
        scenario.write(40)
        scenario.store.run_retention(FAR_FUTURE_US)
        self._crash_leaves(scenario)
        layout.reserve.write_bytes(b"the reserve of other settings")
        (layout.temp / "left over").write_bytes(b"")
        with layout.live_events.open("ab") as file:
            file.write(b"a torn block")
        with layout.log.open("r+b") as file:
            file.seek(len(layout.log.read_bytes().rstrip(b"\0")) + 3)
            file.write(b"a torn record")
        (layout.archive / f"{0:020d}.events").write_bytes(b"of a retired segment")
        scenario.reopen()
        self._crash_leaves(scenario)
        first = int.from_bytes(layout.live_events.read_bytes()[16:24], "little")
        layout.live_events.rename(layout.sealed_events(first))
        layout.sealed_log(first).hardlink_to(layout.log)
        scenario.reopen()
        self._crash_leaves(scenario)
        layout.live_events.write_bytes(b"no journal at all")
        scenario.reopen()
        scenario.write(5)
        scenario.store.close()
        self.is_open = False
        self._replace(layout)

    def _replace(self, layout: Layout) -> None:
        layout.snapshot_new.write_bytes(b"interrupted")
        layout.log_new.write_bytes(b"interrupted")
        index = self.facts.acked
        term = term_of(index) + 1
        log = encode_log(index + 1, term, [])
        # Only the reserve of an open store can make room.
        self.disk.relief = None
        replace_snapshot_and_log(self.root, index, term, snapshot_blocks(index), log, self.disk)
        self.facts.snapshot = self.facts.snapshot_asked = index

    def _crash_leaves(self, scenario: Scenario) -> None:
        """The files as they are, without a proper end."""
        scenario.store._journal.close()
        scenario.store._log.close()
        scenario.store._lock.release()

    def end(self) -> None:
        """Let go of what a failure left open."""
        if self.scenario is not None:
            with contextlib.suppress(StorageError):
                self.scenario.store.close()
            self.scenario.store.close()

    def check(self) -> None:
        """Open with a good disk: what was confirmed is there."""
        store, recovered = open_store(self.root, SETTINGS)
        found = list(recovered.entries)
        snapshot_index = -1 if recovered.snapshot is None else recovered.snapshot.last_index
        if recovered.snapshot is not None:
            assert list(recovered.snapshot) == snapshot_blocks(snapshot_index)
        assert self.facts.snapshot <= snapshot_index <= max(self.facts.acked, -1)
        assert found == entries(snapshot_index + 1, store.last_index + 1)
        assert self.facts.acked <= store.last_index <= max(self.facts.appended, -1)
        assert recovered.metadata.term >= self.facts.term
        store.close()


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often the scenario calls at each site when all goes well."""
    disk = RecordingDisk()
    run = Everything(tmp_path_factory.mktemp("well") / "data", disk)
    run.run()
    run.check()
    return Counter(disk.sites)


def test_the_scenario_passes_every_site_and_knows_no_other(calls: Counter[str]) -> None:
    assert set(calls) == SITES


def chosen_calls(count: int) -> list[int]:
    """The first, the last and some calls in between."""
    return sorted({1, 2, count // 3, count // 2, count - 1, count} & set(range(1, count + 1)))


@pytest.mark.parametrize("site", sorted(SITES))
def test_an_error_of_the_device_is_told_and_loses_nothing(tmp_path: Path, calls: Counter[str], site: str) -> None:
    for nth in chosen_calls(calls[site]):
        disk = FailingDisk(site, errno.EIO, nth)
        run = Everything(tmp_path / str(nth), disk)
        if site in GIVEN_UP_QUIETLY:
            run.run()
        else:
            with pytest.raises(StorageFailed) as caught:
                run.run()
            assert (caught.value.site, caught.value.errno) == (site, errno.EIO)
            assert not isinstance(caught.value, DiskExhausted)
            assert caught.value.code == "storage_failed"
        assert disk.failed == 1
        run.end()
        run.check()


def exhausted(run: Everything) -> DiskExhausted | None:
    """How the scenario ends on a full disk."""
    try:
        run.run()
    except DiskExhausted as error:
        return error
    return None


@pytest.mark.parametrize("site", sorted(SITES))
def test_a_full_disk_is_told_or_gets_the_reserve_and_loses_nothing(
    tmp_path: Path, calls: Counter[str], site: str
) -> None:
    call = site.split(".")[1]
    final = call in ("sync", "sync_directory", "unlink") or site.startswith(("snapshot.", "replace."))
    for nth in chosen_calls(calls[site]):
        disk = FailingDisk(site, errno.ENOSPC, nth)
        run = Everything(tmp_path / str(nth), disk)
        error = exhausted(run)
        told = error is not None
        assert error is None or error.site == site
        assert disk.failed == 1
        if site not in GIVEN_UP_QUIETLY | BEFORE_THE_RESERVE and (run.is_open or not told):
            assert told == final
        run.end()
        run.check()


@pytest.mark.parametrize(
    "site", ["log.write", "log.create", "log.seal", "journal.write", "metadata.write", "tail.write"]
)
def test_a_disk_that_stays_full_after_the_reserve_is_gone_ends_it(tmp_path: Path, site: str) -> None:
    after_the_start = {"log.write": 3, "log.create": 3, "journal.write": 3, "metadata.write": 2}.get(site, 1)
    run = Everything(tmp_path, FailingDisk(site, errno.ENOSPC, after_the_start, for_ever=True))
    with pytest.raises(DiskExhausted) as caught:
        run.run()
    assert caught.value.code == "disk_exhausted"
    assert run.scenario is not None
    assert run.scenario.store.disk_full
    assert not Layout(tmp_path).reserve.exists()
    run.end()
    run.check()


@pytest.mark.parametrize("site", ["log.write", "log.sync"])
def test_after_a_failure_the_log_refuses_everything(tmp_path: Path, site: str) -> None:
    """A second sync could succeed although the first one lost pages; so there is none."""
    disk = FailingDisk(site, errno.EIO, nth=10)
    store, _ = open_store(tmp_path, disk=disk)
    with pytest.raises(StorageFailed):
        write(store, 0, 20)
    disk.armed = False
    durable = store.durable_index
    for call in (
        lambda: store.append(entries(store.last_index + 1, store.last_index + 2)),
        store.sync,
        store.mark,
        lambda: store.truncate_from(store.last_index + 1),
    ):
        with pytest.raises(StorageFailed):
            call()
    assert store.durable_index == durable
    store.close()


def test_a_journal_that_cannot_be_synced_for_a_snapshot_ends_the_log_too(tmp_path: Path) -> None:
    disk = FailingDisk("journal.sync", errno.EIO)
    disk.armed = False
    store, _ = open_store(tmp_path, disk=disk)
    write(store, 0, 20)
    disk.armed = True
    with pytest.raises(StorageFailed):
        take_snapshot(store, 19)
    assert store.snapshot_index == -1
    with pytest.raises(StorageFailed):
        store.append(entries(20, 21))
    store.close()


def test_a_snapshot_that_finds_no_space_leaves_the_reserve_and_the_node_alone(tmp_path: Path) -> None:
    disk = FailingDisk("snapshot.write", errno.ENOSPC, nth=3)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    write(store, 0, 20)
    with pytest.raises(DiskExhausted):
        take_snapshot(store, 19)
    assert not store.disk_full
    assert Layout(tmp_path).reserve.exists()
    assert list(Layout(tmp_path).temp.glob("raft.snapshot*")) == []
    write(store, 20, 30)
    take_snapshot(store, 29)
    assert store.snapshot_index == 29
    store.close()


def test_a_short_write_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take fewer bytes than it is given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, bytes(data)[:7], offset))
    store, _ = open_store(tmp_path, disk=FastDisk())
    write(store, 0, 60)
    store.close()
    monkeypatch.undo()
    store, recovered = open_store(tmp_path)
    assert list(recovered.entries) == entries(0, 60)
    store.close()


def test_a_file_system_without_preallocation_is_grown_by_writing(tmp_path: Path) -> None:
    disk = FailingDisk("log.allocate", errno.EOPNOTSUPP, for_ever=True)
    store, _ = open_store(tmp_path, disk=disk)
    write(store, 0, 100)
    store.close()
    assert disk.failed > 0
    store, recovered = open_store(tmp_path, disk=FailingDisk("log.allocate", errno.EOPNOTSUPP, for_ever=True))
    assert list(recovered.entries) == entries(0, 100)
    store.close()
