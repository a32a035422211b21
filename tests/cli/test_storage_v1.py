"""`penstock storage import` and `export` as a user types them: what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.storage import version1 as v1
from penstock.storage.disk import Disk
from penstock.storage.export_version1 import read_state
from penstock.storage.layout import Layout
from penstock.storage.lock import DirectoryLock


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["storage", *map(str, arguments)])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory as the original system leaves it."""
    commands: list[v1.LogCommand] = [
        v1.CreateQueue(b"orders", 9),
        v1.Enqueue(b"orders", 2, b"second"),
        v1.Enqueue(b"orders", 1, b"first"),
        v1.Enqueue(b"", 5, b"gone"),
        v1.Dequeue(b""),
    ]
    directory = tmp_path / "old" / "consensus"
    directory.mkdir(parents=True)
    log = v1.Log([v1.LogEntry(2, command) for command in commands])
    (directory / "raft.log").write_bytes(v1.encode_log(log))
    (directory / "raft.metadata").write_bytes(v1.encode_metadata(v1.Metadata(3, 1)))
    return directory.parent


def test_import_tells_its_assumptions_and_figures(old: Path, tmp_path: Path) -> None:
    result = run("import", old, "--data-dir", tmp_path / "new")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line for line in lines if line.startswith("assumed: ")] == lines[:-2]
    assert any("only that form fits" in line for line in lines)
    assert lines[-2].startswith(
        f"imported 2 records in 2 queues into {tmp_path / 'new'} (0 records from the snapshot, 5 "
    )
    assert lines[-1] == f"start it with: penstock serve --data-dir {tmp_path / 'new'}"
    queue = read_state(tmp_path / "new").engine.state.by_name["orders"]
    assert [record.payload for record in queue.order.walk()] == [b"first", b"second"]


def test_import_for_programs(old: Path, tmp_path: Path) -> None:
    result = run("import", old, "--data-dir", tmp_path / "new", "--json", "--names", "string")
    document = json.loads(result.output)
    assert (document["records"], document["queues"], document["entries_applied"], document["term"]) == (2, 2, 5, 3)
    assert "names in the log are read as String (Int32 length), as told" in document["assumptions"]


def test_import_into_a_node_fails_and_changes_nothing(old: Path, tmp_path: Path) -> None:
    run("import", old, "--data-dir", tmp_path / "new")
    result = run("import", old, "--data-dir", tmp_path / "new")
    assert result.exit_code == 1
    assert result.output.startswith(f"penstock: {tmp_path / 'new'}/consensus: holds ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"PENS" + data[4:], "raft.log, offset 0: the file begins with 50454e53"),
        (lambda data: data[:4] + b"\x02" + data[5:], "raft.log, offset 4: the file has version 2, not 1"),
        (lambda data: data[:16] + b"X" + data[17:], "unknown command 0x58"),
    ],
)
def test_a_damaged_file_is_told_with_offset_and_reason(old: Path, tmp_path: Path, damage: object, told: str) -> None:
    log = old / "consensus" / "raft.log"
    log.write_bytes(damage(log.read_bytes()))  # type: ignore[operator]
    result = run("import", old, "--data-dir", tmp_path / "new")
    assert result.exit_code == 1
    assert told in result.output
    assert not (tmp_path / "new").exists()


def test_the_wrong_form_of_names_is_told(old: Path, tmp_path: Path) -> None:
    result = run("import", old, "--data-dir", tmp_path / "new", "--names", "queuename")
    assert result.exit_code == 1
    assert "raft.log, offset " in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("import",),
        ("import", "missing-directory"),
        ("import", ".", "--names", "other"),
        ("export",),
        ("export", "x", "--bad"),
    ],
)
def test_mistakes_on_the_command_line_are_usage_errors(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("as_log", [False, True])
def test_export_brings_back_what_was_imported(old: Path, tmp_path: Path, as_log: bool) -> None:
    run("import", old, "--data-dir", tmp_path / "new")
    result = run(
        "export", tmp_path / "out", "--data-dir", tmp_path / "new", "--strict", *(["--as-log"] if as_log else [])
    )
    assert result.exit_code == 0, result.output
    assert "not held by version 1: 2 × record with its id and publish time" in result.output
    assert "exported 2 records in 2 queues:" in result.output
    names = {path.name for path in (tmp_path / "out" / "consensus").iterdir()}
    assert names == {"raft.log", "raft.metadata"} | (set() if as_log else {"raft.snapshot"})
    again = run("import", tmp_path / "out", "--data-dir", tmp_path / "again")
    assert again.exit_code == 0, again.output
    queue = read_state(tmp_path / "again").engine.state.by_name["orders"]
    assert [record.payload for record in queue.order.walk()] == [b"first", b"second"]
    assert queue.settings.size_max == 9


def test_export_as_log_in_the_other_form_of_names(old: Path, tmp_path: Path) -> None:
    run("import", old, "--data-dir", tmp_path / "new")
    run("export", tmp_path / "out", "--data-dir", tmp_path / "new", "--as-log", "--names", "queuename")
    log = v1.decode_log((tmp_path / "out" / "consensus" / "raft.log").read_bytes())
    assert (log.names, log.entries[0].command) == ("queuename", v1.CreateQueue(b"orders", 9))


def test_strict_refuses_to_lose_and_writes_nothing(old: Path, tmp_path: Path) -> None:
    snapshot = v1.Snapshot(0, 1, [v1.SnapshotQueue(b"", 1, [(1, b"a"), (1, b"b")])])
    (old / "consensus" / "raft.log").unlink()
    (old / "consensus" / "raft.snapshot").write_bytes(v1.encode_snapshot(snapshot))
    run("import", old, "--data-dir", tmp_path / "new")
    arguments = ("export", tmp_path / "out", "--data-dir", tmp_path / "new", "--as-log")
    result = run(*arguments, "--strict")
    assert result.exit_code == 1
    assert "nothing was written: 1 × size limit of the default queue" in result.output
    assert not (tmp_path / "out").exists()
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    assert [loss["count"] for loss in json.loads(result.output)["lost"] if not loss["always"]] == [1]


def test_a_running_node_is_not_exported(old: Path, tmp_path: Path) -> None:
    run("import", old, "--data-dir", tmp_path / "new")
    with DirectoryLock(Disk(), Layout(tmp_path / "new")):
        result = run("export", tmp_path / "out", "--data-dir", tmp_path / "new")
    assert result.exit_code == 1
    assert "has this data directory open" in result.output
