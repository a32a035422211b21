"""`penstock config`: what is in force, where it came from, and whether a node could start with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import all_fields
from tests.cli.support import Command


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No penstock.toml is found by chance."""
    monkeypatch.chdir(tmp_path)


def test_show_tells_every_setting_and_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock.toml").write_text('node_id = 3\n[storage]\nmode = "none"\n')
    monkeypatch.setenv("PENSTOCK_STORAGE_MODE", "interval")
    lines = Command()("config", "show", "--taskflux-port", "4000", "--no-taskflux-acks").stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert set(rows) == {field.key for field in all_fields()}
    assert rows["node_id"] == ["3", "file", "penstock.toml,", "key", "node_id"]
    assert rows["storage.mode"] == ['"interval"', "variable", "PENSTOCK_STORAGE_MODE"]
    assert rows["taskflux.port"] == ["4000", "flag", "--taskflux-port"]
    assert rows["taskflux.acks"] == ["false", "flag", "--no-taskflux-acks"]
    assert rows["data_dir"] == ['"penstock-data"', "default"]


def test_show_as_toml_is_a_file_that_gives_the_same(tmp_path: Path) -> None:
    written = Command()("config", "show", "--toml", "--limits-payload-bytes", "1MiB").stdout
    (tmp_path / "again.toml").write_text(written)
    assert Command()("config", "show", "--toml", "--config", "again.toml").stdout == written
    assert 'payload_bytes = "1MiB"' in written


def test_show_as_json() -> None:
    documents = {each["key"]: each for each in Command().json("config", "show", "--taskflux-port", "7")}
    assert documents["taskflux.port"] == {
        "key": "taskflux.port",
        "value": 7,
        "source": {"kind": "flag", "name": "--taskflux-port"},
    }
    Command()("config", "show", "--json", "--toml", code=2)


def test_every_setting_is_an_option() -> None:
    text = " ".join(Command()("config", "check", "--help").stdout.split())
    for field in all_fields():
        assert f" {field.flag} " in text
        assert field.flag_off is None or f" {field.flag_off} " in text
    for heading in ("Settings:", "Storage:", "Limits:", "TaskFlux door:"):
        assert heading in text


def test_check_is_content_with_good_settings() -> None:
    assert Command()("config", "check").stdout == "the settings are in order\n"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--taskflux-port", "x"], "flag --taskflux-port: 'x' is not allowed"),
        (["--storage-mode", "fast"], "durable, interval or none"),
        (["--taskflux-host", "0.0.0.0"], "--insecure"),
        (["--config", "absent.toml"], "absent.toml: cannot be read"),
    ],
)
def test_check_ends_with_2_and_says_what_is_wrong(args: list[str], complaint: str) -> None:
    result = Command()("config", "check", *args, code=2)
    assert result.stderr.startswith("penstock: ")
    assert complaint in result.stderr


def test_check_tells_all_mistakes_of_a_file_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("nodeid = 3\n[storage]\nmode = 5\n")
    lines = Command()("config", "check", "--config", "bad.toml", code=2).stderr.splitlines()
    assert lines[0] == "penstock: the settings have several mistakes:"
    assert "did you mean node_id?" in lines[1]
    assert "storage.mode" in lines[2]


def test_a_variable_that_nobody_knows_is_refused_and_the_clients_own_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "penstock://127.0.0.1:1")
    Command("penstock://127.0.0.1:1")("config", "check")
    monkeypatch.setenv("PENSTOCK_STORAGEMODE", "none")
    assert "did you mean PENSTOCK_STORAGE_MODE?" in Command()("config", "check", code=2).stderr
