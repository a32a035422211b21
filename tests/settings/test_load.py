"""Putting settings together: which source wins, and what each refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import Settings, SettingsError, SettingsErrorGroup, Source, describe, load, render_toml
from penstock.settings.errors import (
    ConfigFileError,
    ConflictingSettingsError,
    InvalidValueError,
    MissingValueError,
    UnknownSettingError,
)
from penstock.settings.files import CONFIG_BYTES_MAX
from penstock.settings.load import LISTENERS_MAX


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in a folder of its own, so that only its own penstock.toml is found."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "penstock.toml") -> str:
    Path(name).write_text(text)
    return name


def refusal(config_path: str | None = None, env: dict[str, str] | None = None, **flags: object) -> SettingsError:
    with pytest.raises(SettingsError) as raised:
        load(config_path, env or {}, flags)
    return raised.value


def test_without_sources_all_are_defaults() -> None:
    settings = load(None, {}, {})
    assert settings == Settings()
    assert {line.source for line in describe(settings)} == {Source("default")}


def test_flags_win_over_variables_and_variables_over_the_file() -> None:
    write('log_level = "debug"\nnode_id = 1\n[storage]\nmode = "none"\ninterval_ms = 1\n')
    env = {"PENSTOCK_STORAGE_MODE": "interval", "PENSTOCK_STORAGE_INTERVAL_MS": "2"}
    settings = load(None, env, {"storage.interval_ms": "3"})
    assert (settings.log_level, settings.node_id) == ("debug", 1)
    assert (settings.storage.mode, settings.storage.interval_ms) == ("interval", 3)
    assert [(line.key, str(line.source)) for line in describe(settings) if line.source.kind != "default"] == [
        ("node_id", "file penstock.toml, key node_id"),
        ("log_level", "file penstock.toml, key log_level"),
        ("storage.mode", "variable PENSTOCK_STORAGE_MODE"),
        ("storage.interval_ms", "flag --storage-interval-ms"),
    ]


def test_the_file_is_the_named_one_then_the_variables_then_the_one_in_the_folder() -> None:
    write("node_id = 1")
    named = write("node_id = 2", "named.toml")
    by_variable = write("node_id = 3", "variable.toml")
    assert load(None, {}, {}).node_id == 1
    assert load(None, {"PENSTOCK_CONFIG": by_variable}, {}).node_id == 3
    assert load(Path(named), {"PENSTOCK_CONFIG": by_variable}, {}).node_id == 2


def test_flags_not_given_change_nothing_and_false_is_given() -> None:
    settings = load(None, {"PENSTOCK_TASKFLUX_ACKS": "on"}, {"taskflux.enabled": False, "taskflux.acks": None})
    assert settings.taskflux.enabled is False
    assert settings.taskflux.acks is True
    assert settings.source_of("taskflux.enabled") == Source.flag("--no-taskflux")


def test_typed_flags_are_taken_as_well_as_text() -> None:
    settings = load(None, {}, {"taskflux.port": 0, "limits.payload_bytes": "1MiB"})
    assert (settings.taskflux.port, settings.limits.payload_bytes) == (0, 1024**2)


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes sets the second kind by itself for a service called penstock."""
    env = {
        "PATH": "/bin",
        "PENSTOCK": "x",
        "_PENSTOCK_COMPLETE": "bash_source",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "2602",
        "PENSTOCK_SERVICE_PORT_TASKFLUX": "2602",
        "PENSTOCK_PORT": "tcp://10.0.0.1:2602",
        "PENSTOCK_PORT_2602_TCP": "tcp://10.0.0.1:2602",
        "PENSTOCK_PORT_2602_TCP_ADDR": "10.0.0.1",
    }
    assert load(None, env, {}) == Settings()


def test_the_variable_that_tells_clients_where_the_node_is_is_left_alone() -> None:
    assert load(None, {"PENSTOCK_URL": "penstock://127.0.0.1:2602"}, {}) == Settings()
    error = refusal(None, {"PENSTOCK_URLS": "penstock://127.0.0.1:2602"})
    assert isinstance(error, UnknownSettingError)
    assert error.nearest == "PENSTOCK_URL"


@pytest.mark.parametrize(
    ("text", "name", "nearest"),
    [
        ('data_dri = "x"', "data_dri", "data_dir"),
        ("[storage]\nsegment_byte = 1", "storage.segment_byte", "storage.segment_bytes"),
        ("segment_bytes = 1", "segment_bytes", "storage.segment_bytes"),
        ("[limits]\nport = 1", "limits.port", "taskflux.port"),
        ("[storge]\nmode = 1", "storge", "storage"),
        ('"storage.mode" = "none"', "storage.mode", "storage"),
        ("[taskflux]\nlistener = []", "taskflux.listener", "taskflux.listeners"),
        ("log-level = 1", "log-level", "log_level"),
        ("zzzzzz = 1", "zzzzzz", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(text: str, name: str, nearest: str | None) -> None:
    error = refusal(write(text))
    assert isinstance(error, UnknownSettingError)
    assert (error.name, error.nearest, error.code) == (name, nearest, "unknown_setting")
    assert f"file penstock.toml, key {name}" in str(error)
    assert (f"did you mean {nearest}?" in str(error)) is (nearest is not None)


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    error = refusal(env={"PENSTOCK_STORAGE_MOD": "none"})
    assert str(error) == (
        "variable PENSTOCK_STORAGE_MOD: there is no setting of this name; did you mean PENSTOCK_STORAGE_MODE?"
    )


def test_an_unknown_flag_is_refused_with_the_nearest_known_key() -> None:
    with pytest.raises(UnknownSettingError, match=r"did you mean storage\.mode\?"):
        load(None, {}, {"storage.mod": "none"})


@pytest.mark.parametrize(
    ("text", "env", "flags", "source"),
    [
        ('[storage]\nmode = "fast"', {}, {}, "file penstock.toml, key storage.mode"),
        ("", {"PENSTOCK_STORAGE_MODE": "fast"}, {}, "variable PENSTOCK_STORAGE_MODE"),
        ("", {}, {"storage.mode": "fast"}, "flag --storage-mode"),
    ],
)
def test_a_wrong_value_is_refused_with_its_source_and_what_is_allowed(
    text: str, env: dict[str, str], flags: dict[str, object], source: str
) -> None:
    write(text)
    with pytest.raises(InvalidValueError) as raised:
        load(None, env, flags)
    assert str(raised.value) == (f"{source}: 'fast' is not allowed for storage.mode; give durable, interval or none")


def test_a_wrong_value_is_refused_even_if_a_later_source_would_win() -> None:
    write("[taskflux]\nport = 65536")
    with pytest.raises(InvalidValueError, match="a whole number from 0 to 65535"):
        load(None, {}, {"taskflux.port": 2602})


def test_all_mistakes_are_told_at_once() -> None:
    write('node_id = "one"\nnode = 1')
    error = refusal(None, {"PENSTOCK_LOG_LEVEL": "loud"})
    assert isinstance(error, SettingsErrorGroup)
    assert [type(each) for each in error.errors] == [InvalidValueError, UnknownSettingError, InvalidValueError]
    assert str(error).count("\n") == 2


@pytest.mark.parametrize("text", ["storage = 1", "storage = [1]", "taskflux = true"])
def test_a_value_where_a_table_belongs_is_refused(text: str) -> None:
    assert "a table: [" in str(refusal(write(text)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"node_id = ", "is not TOML"),
        (b"node_id = 1\nnode_id = 2", "is not TOML"),
        (b"data_dir = '\xff'", "is not TOML"),
        (b"a = " + b"[" * 100_000, "is not TOML"),
        (b"#" * (CONFIG_BYTES_MAX + 1), "is longer than"),
    ],
)
def test_a_file_that_is_not_toml_is_refused_by_name(content: bytes, reason: str) -> None:
    Path("bad.toml").write_bytes(content)
    error = refusal("bad.toml")
    assert isinstance(error, ConfigFileError)
    assert str(error).startswith(f"bad.toml: {reason}")


def test_a_named_file_must_exist() -> None:
    assert str(refusal("absent.toml")) == "absent.toml: cannot be read: No such file or directory"
    assert isinstance(refusal(None, {"PENSTOCK_CONFIG": "absent.toml"}), ConfigFileError)
    assert isinstance(refusal("."), ConfigFileError)


def test_further_listeners_inherit_what_they_do_not_say() -> None:
    write('[taskflux]\nacks = false\n[[taskflux.listeners]]\nport = 2603\ndialect = "csharp"\n')
    settings = load(None, {"PENSTOCK_TASKFLUX_IDLE_TIMEOUT_MS": "5s"}, {})
    (listener,) = settings.taskflux.listeners
    assert (listener.host, listener.port, listener.dialect) == ("127.0.0.1", 2603, "csharp")
    assert (listener.acks, listener.idle_timeout_ms, listener.ack_timeout_ms) == (False, 5000, 60_000)
    sources = {line.key: str(line.source) for line in describe(settings)}
    assert sources["taskflux.listeners[0].dialect"] == "file penstock.toml, key taskflux.listeners[0].dialect"
    assert sources["taskflux.listeners[0].acks"] == "file penstock.toml, key taskflux.acks"
    assert sources["taskflux.listeners[0].idle_timeout_ms"] == "variable PENSTOCK_TASKFLUX_IDLE_TIMEOUT_MS"
    assert sources["taskflux.listeners[0].host"] == "default"


def test_a_further_listener_must_have_a_port() -> None:
    error = refusal(write('[[taskflux.listeners]]\nhost = "::1"'))
    assert isinstance(error, MissingValueError)
    assert error.key == "taskflux.listeners[0].port"


def test_a_further_listener_is_checked_like_the_first() -> None:
    error = refusal(write('[[taskflux.listeners]]\nport = -1\nprot = 1\nacks = "no"'))
    assert isinstance(error, SettingsErrorGroup)
    assert str(error).splitlines() == [
        (
            "file penstock.toml, key taskflux.listeners[0].port: -1 is not allowed for taskflux.listeners[0].port; "
            "give a whole number from 0 to 65535"
        ),
        "file penstock.toml, key taskflux.listeners[0].prot: there is no setting of this name; did you mean port?",
        (
            "file penstock.toml, key taskflux.listeners[0].acks: 'no' is not allowed for taskflux.listeners[0].acks; "
            "give true or false"
        ),
    ]


@pytest.mark.parametrize("value", ["1", '"x"', "[1]", "{port = 1}"])
def test_listeners_must_be_tables(value: str) -> None:
    assert "[[taskflux.listeners]]" in str(refusal(write(f"[taskflux]\nlisteners = {value}")))


def test_there_is_a_limit_to_listeners() -> None:
    text = "".join(f"[[taskflux.listeners]]\nport = {3000 + number}\n" for number in range(LISTENERS_MAX + 1))
    assert isinstance(refusal(write(text)), ConflictingSettingsError)


def test_two_listeners_cannot_share_a_port_but_may_both_take_any_free_one() -> None:
    error = refusal(write("[[taskflux.listeners]]\nport = 2602"))
    assert isinstance(error, ConflictingSettingsError)
    assert error.keys == ("taskflux.port", "taskflux.listeners[0].port")
    write("[taskflux]\nport = 0\n[[taskflux.listeners]]\nport = 0")
    assert len(load(None, {}, {}).taskflux.open_listeners()) == 2


def test_the_written_file_gives_the_same_settings() -> None:
    write(
        'data_dir = "a \\"b\\" \\\\ c"\ninsecure = true\n[limits]\nmemory_bytes = 12345\n'
        '[taskflux]\nadvertise = "q:1"\n'
        "[[taskflux.listeners]]\nport = 1\n[[taskflux.listeners]]\nport = 2\nacks = false"
    )
    settings = load(None, {}, {"storage.segment_bytes": "1MiB"})
    again = load(write(render_toml(settings), "again.toml"), {}, {})
    assert [(line.key, line.value) for line in describe(again)] == [
        (line.key, line.value) for line in describe(settings)
    ]
    assert load(write(render_toml(Settings()), "defaults.toml"), {}, {}).limits == Settings().limits


def test_describe_lists_every_key_once_with_the_text_to_show() -> None:
    write("[[taskflux.listeners]]\nport = 1")
    lines = describe(load(None, {}, {}))
    keys = [key for key, _value, _source in lines]
    assert len(keys) == len(set(keys))
    texts = {line.key: line.text for line in lines}
    assert texts["storage.segment_bytes"] == '"64MiB"'
    assert texts["taskflux.listeners[0].port"] == "1"
    assert texts["insecure"] == "false"
