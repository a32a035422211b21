"""A config.json of MoniQue's own fills what nobody has set, and is otherwise left to its components."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.settings import load
from penstock.settings.errors import ConfigFileError, ConflictingSettingsError, InvalidValueError
from penstock.settings.files import CONFIG_BYTES_MAX
from penstock.settings.monique_config import Heartbeat, read_monique_config

ORIGINAL: dict[str, Any] = {
    "deploy": {
        "monique": {
            "scheduler-in": {"host": "127.0.0.1", "comport": 19000, "techport": 19024},
            "scheduler-in-logic": {"host": "elsewhere", "comport": 19010, "techport": 19034},
            "scheduler-logic-out": {"host": "elsewhere", "comport": 19011, "techport": 19035},
            "scheduler-out": {"host": "localhost", "comport": 19001, "techport": 19025},
            "controller": {"host": "127.0.0.2"},
            "websocket": {"host": "*", "port": 19160},
        }
    },
    "params": {
        "scheduler-in": {"creator": "in", "logfile": "in.log", "frequency": 30000},
        "scheduler-logic": {"creator": "logic", "logfile": "", "frequency": 3, "allow-messages": ["a_b", "error"]},
        "mq-websocket": {"creator": "gateway", "logfile": "", "frequency": 5000},
        "mq_controller": {
            "creator": "c",
            "logfile": "",
            "frequency": 7000,
            "connections": {"a_b": 10000, "c_d": 10001},
        },
        "example_calculator": {"creator": "me", "logfile": "", "frequency": 30000, "port": 10000},
    },
}


def written(tmp_path: Path, document: object) -> str:
    path = tmp_path / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def loaded(path: str, **flags: object) -> Any:
    given = {f"monique.{name}": value for name, value in {"config": path, **flags}.items()}
    return load(None, {}, given)


def test_the_original_s_file_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, ORIGINAL)
    settings = loaded(path, inner=True)
    monique = settings.monique
    places = {place.port_key.removeprefix("monique."): (place.host, place.port) for place in settings.monique.places()}
    assert places == {
        "gateway_port": ("0.0.0.0", 19160),
        "com_in_port": ("127.0.0.1", 19000),
        "tech_in_port": ("127.0.0.1", 19024),
        "com_out_port": ("localhost", 19001),
        "tech_out_port": ("localhost", 19025),
        "inner_com_in_port": ("127.0.0.1", 19010),
        "inner_tech_in_port": ("127.0.0.1", 19034),
        "inner_com_out_port": ("localhost", 19011),
        "inner_tech_out_port": ("localhost", 19035),
        "connections[a_b]": ("127.0.0.2", 10000),
        "connections[c_d]": ("127.0.0.2", 10001),
    }
    assert monique.allowed_specs() == {"a_b", "error"}
    source = settings.source_of("monique.com_in_port")
    assert str(source) == f"file {path}, key deploy.monique.scheduler-in.comport"
    heartbeats = [Heartbeat("mq-websocket", "gateway", 5000), Heartbeat("mq_controller", "c", 7000)]
    assert read_monique_config(path).heartbeats == heartbeats


def test_what_is_set_otherwise_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, ORIGINAL)
    (tmp_path / "penstock.toml").write_text("[monique]\ncom_in_port = 1\nhost = '::1'\n")
    given = {"monique.config": path, "monique.com_out_port": 2}
    monique = load(None, {"PENSTOCK_MONIQUE_CONNECTIONS": "x_y=3"}, given).monique
    assert (monique.com_in_port, monique.com_out_port, monique.tech_in_port) == (1, 2, 19024)
    assert monique.open_connections() == {"x_y": 3}
    assert {place.host for place in monique.places()} == {"::1"}, "one host for all overrules those of the file"


@pytest.mark.parametrize(
    "document",
    [{}, {"deploy": {}}, {"deploy": {"monique": {"websocket": {}}}, "params": {"scheduler-logic": {}}}, {"other": [1]}],
)
def test_what_is_missing_keeps_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: object) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, document)
    assert [place.port for place in loaded(path).monique.places()] == [9160, 9000, 9001, 9024, 9025]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
        ('"' + "x" * CONFIG_BYTES_MAX, "is longer than"),
        ({"deploy": 5}, "deploy is not an object"),
        ({"deploy": {"monique": {"websocket": []}}}, "deploy.monique.websocket is not an object"),
        ({"params": {"scheduler-logic": {"allow-messages": "x"}}}, "allow-messages is not a list of specs"),
        ({"params": {"scheduler-logic": {"allow-messages": ["a", 5]}}}, "allow-messages is not a list of specs"),
        (
            {"params": {"mq_controller": {"connections": {"a": "10000"}}}},
            "'a' with '10000' is not a spec with its port",
        ),
        ({"params": {"mq_controller": {"connections": {"a,b": 1}}}}, "'a,b' with 1"),
        ({"params": {"mq_controller": {"connections": {"a": 70000}}}}, "'a' with 70000"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: object, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigFileError, match=told.replace("[", r"\[")):
        loaded(written(tmp_path, document))


def test_a_file_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigFileError, match="No such file"):
        loaded(str(tmp_path / "absent.json"))


@pytest.mark.parametrize("port", ["9000", -1, 70000, 1.5, True])
def test_a_value_that_is_wrong_is_told_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: object
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match=r"key deploy\.monique\.websocket\.port"):
        loaded(written(tmp_path, {"deploy": {"monique": {"websocket": {"port": port}}}}))


@pytest.mark.parametrize("text", ["a", "a=", "=5", "a=b", "a=70000", "a=1,b", "a=-1", "a=١"])
def test_connections_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match=r"spec=port,spec=port"):
        load(None, {}, {"monique.connections": text})


def test_a_controller_s_port_that_is_used_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConflictingSettingsError, match=r"monique\.com_in_port and monique\.connections\[a_b\]"):
        load(None, {}, {"monique.connections": "a_b=9000"})


def test_a_host_of_a_part_may_be_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(None, {"PENSTOCK_MONIQUE_GATEWAY_HOST": ""}, {}).monique.gateway_host == ""
    with pytest.raises(InvalidValueError, match="without a port, or nothing"):
        load(None, {"PENSTOCK_MONIQUE_GATEWAY_HOST": "a b"}, {})
    with pytest.raises(InvalidValueError):
        load(None, {"PENSTOCK_MONIQUE_HOST": ""}, {})
