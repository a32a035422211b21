"""The manifest is what was written or an error; publishing is all or nothing; the directory has one writer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec import structs

from penstock.spark.errors import NoTables, PipelineError, TablesInUse
from penstock.spark.pipeline import directory as directory_module
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.manifest import (
    KEPT_SECONDS,
    File,
    Gap,
    Manifest,
    Table,
    bucket_part,
    decode_manifest,
    encode_manifest,
    load_manifest,
    new_manifest,
    store_manifest,
)
from penstock.spark.pipeline.tables import moment, table_files, watermark
from penstock.storage.disk import Disk
from penstock.storage.errors import DiskExhausted

GOLD = "gold.key_bands"


def full_manifest() -> Manifest:
    """A manifest in which every field says something."""
    first = new_manifest("cluster", 7, format="parquet", buckets=32)
    file = File("bronze/events/2026-01-01/1.parquet", "2026-01-01", 3, 400, 7, 9, 5, 6, 1)
    table = Table(9, 6, (file,))
    return structs.replace(
        first, generation=3, tables={**first.tables, "bronze.events": table}, gaps=(Gap(1, 2),), dropped=()
    )


def make_file(directory: Path, name: str, part: str = "2026-01-01") -> File:
    """A file of gold; what is in it does not matter here."""
    path = directory / "gold" / "key_bands" / part / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return File(path.relative_to(directory).as_posix(), part, 1, 1)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode_manifest(encode_manifest(full_manifest()), Path("m")) == full_manifest()


def test_a_manifest_is_json_that_others_can_read() -> None:
    told = json.loads(encode_manifest(full_manifest()))
    assert told["version"] == 1
    assert told["tables"]["bronze.events"]["watermark"] == 9


def test_any_damage_is_noticed() -> None:
    data = encode_manifest(full_manifest())
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(PipelineError):
            decode_manifest(bytes(damaged), Path("m"))
    for length in range(len(data)):
        with pytest.raises(PipelineError):
            decode_manifest(data[:length], Path("m"))


def test_a_newer_manifest_is_refused_with_the_reason() -> None:
    with pytest.raises(PipelineError, match="version 2, this program reads up to 1"):
        decode_manifest(b'{"version":2,"other":1}', Path("m"))


def test_a_table_that_is_missing_is_noticed() -> None:
    manifest = full_manifest()
    tables = {name: table for name, table in manifest.tables.items() if name != GOLD}
    with pytest.raises(PipelineError, match=r"lacks the table gold\.key_bands"):
        decode_manifest(encode_manifest(structs.replace(manifest, tables=tables)), Path("m"))


def test_a_directory_without_tables_says_how_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(NoTables, match="penstock pipeline run --to"):
        load_manifest(tmp_path)


def test_an_unknown_table_is_told_with_those_there_are(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.begin(full_manifest())
    with pytest.raises(PipelineError, match=r"no table gold\.minutes; there are bronze\.events"):
        table_files(tmp_path, "gold.minutes")


def test_the_watermark_of_all_tables_is_the_lowest(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.begin(full_manifest())
    assert watermark(tmp_path).index == 6
    assert watermark(tmp_path).time is None
    assert watermark(tmp_path, "bronze.events").index == 9
    assert watermark(tmp_path, "bronze.events").time == moment(6)


def test_parts_of_open_rows_are_told_from_days() -> None:
    assert File("x", bucket_part(7), 1, 1).is_open
    assert not File("x", "2026-01-01", 1, 1).is_open


def test_what_was_dropped_stays_for_readers_of_the_older_manifest(tmp_path: Path) -> None:
    now = 1000.0
    with Directory(tmp_path, clock=lambda: now) as directory:
        directory.begin(new_manifest("c", 0, format="parquet", buckets=32))
        old, new = make_file(tmp_path, "old.parquet"), make_file(tmp_path, "new.parquet")
        directory.publish({GOLD: Table(1, 1, (old,))})
        directory.publish({GOLD: Table(2, 2, (new,))})
        assert (tmp_path / old.path).exists()
        assert [each.path for each in directory.published.dropped] == [old.path]
        now += KEPT_SECONDS - 1
        directory.publish({})
        assert (tmp_path / old.path).exists()
        now += 1
        directory.publish({})
        assert not (tmp_path / old.path).exists()
        assert directory.published.dropped == ()
        assert (tmp_path / new.path).exists()


def test_sweeping_removes_what_nobody_names_and_nothing_else(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("c", 0, format="parquet", buckets=32))
        kept, dropped, lost = (make_file(tmp_path, f"{name}.parquet") for name in ("kept", "dropped", "lost"))
        directory.publish({GOLD: Table(1, 1, (dropped,))})
        directory.publish({GOLD: Table(2, 2, (kept,))})
        (tmp_path / "report.html").write_text("not ours to remove")
        assert directory.sweep() == 1
        assert [(tmp_path / file.path).exists() for file in (kept, dropped, lost)] == [True, True, False]
        assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("site", ["manifest.create", "manifest.write", "manifest.sync", "manifest.rename"])
def test_a_publication_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    """Whatever step of replacing the manifest the disk refuses."""

    def refuse(disk: Disk, at: str, path: Path) -> None:
        if at == site:
            raise OSError(28, os.strerror(28), str(path))

    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("c", 0, format="parquet", buckets=32))
        before = (tmp_path / "manifest.json").read_bytes()
        monkeypatch.setattr(Disk, "before", refuse)
        directory.follow = lambda *_: pytest.fail("what follows a publication was done without one")
        with pytest.raises(PipelineError, match="No space left on device; the tables are as they were") as raised:
            directory.publish({GOLD: Table(5, 5)})
        directory.follow = None
        assert isinstance(raised.value.__cause__, DiskExhausted)
        monkeypatch.undo()
        assert (tmp_path / "manifest.json").read_bytes() == before
        assert directory.tables[GOLD].watermark == -1
        directory.publish({GOLD: Table(5, 5)})
        assert load_manifest(tmp_path).tables[GOLD].watermark == 5


def test_what_follows_a_publication_comes_after_it(tmp_path: Path) -> None:
    """A Delta log that was ahead of the manifest would name what a crash takes back."""
    seen: list[tuple[Manifest, list[str]]] = []
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("c", 0, format="delta", buckets=32))
        directory.follow = lambda manifest, names: seen.append((load_manifest(tmp_path), list(names)))
        directory.publish({GOLD: Table(5, 5)})
        assert seen == [(directory.published, [GOLD])]


def test_two_threads_that_publish_take_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is held until the second would have looked at what is published, if it did not wait."""
    together = threading.Barrier(2, timeout=0.3)

    def store(path: Path, manifest: Manifest) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait()
        store_manifest(path, manifest)

    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("c", 0, format="parquet", buckets=32))
        monkeypatch.setattr(directory_module, "store_manifest", store)
        names = (GOLD, "bronze.events")
        threads = [threading.Thread(target=directory.publish, args=({name: Table(5, 5)},)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    manifest = load_manifest(tmp_path)
    assert manifest.generation == 3
    assert [manifest.tables[name].watermark for name in names] == [5, 5]


def test_two_pipelines_cannot_write_one_directory(tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path; from penstock.spark.pipeline.directory import Directory\n"
        "with Directory(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TablesInUse, match=f"process {other.pid}"):
            Directory(tmp_path)
    finally:
        other.kill()
        other.communicate()
    with Directory(tmp_path):
        pass


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="file/tables cannot be written: Not a directory"):
        Directory(tmp_path / "file" / "tables")


def test_a_damaged_manifest_lets_the_lock_go(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(PipelineError, match="damaged"):
        Directory(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with Directory(tmp_path):
        pass
