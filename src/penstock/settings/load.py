"""Putting the settings together: TOML file, then `PENSTOCK_*` variables, then flags; the later one wins.

A config.json of MoniQue's own, where `monique.config` names one, fills what none of these has set.

All sources are checked to the end before anything is refused, so that a user sees every mistake at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.settings.errors import (
    ConfigFileError,
    ConflictingSettingsError,
    InvalidValueError,
    MissingValueError,
    SettingsError,
    SettingsErrorGroup,
    UnknownSettingError,
)
from penstock.settings.fields import (
    CONFIG_VARIABLE,
    LISTENERS_KEY,
    VARIABLE_PREFIX,
    all_fields,
    fields_by_key,
    listener_fields,
    tables,
)
from penstock.settings.files import read_config_file
from penstock.settings.monique_config import read_monique_config
from penstock.settings.schema import (
    EtzelSettings,
    LimitsSettings,
    ListenerSettings,
    MoniqueSettings,
    Settings,
    StorageSettings,
    TaskfluxSettings,
)
from penstock.settings.source import Source
from penstock.settings.values import Value, allowed, parse, parse_text

DEFAULT_CONFIG_PATH: Final = "penstock.toml"
LISTENERS_MAX: Final = 64
CLIENT_VARIABLE: Final = "PENSTOCK_URL"
"""Tells clients where the node is. Whoever has it in the environment may start a node there all the same."""

# A service named "penstock" makes Kubernetes set these in every container of its namespace; they are not meant for us.
_FOREIGN_VARIABLE: Final = re.compile(
    r"PENSTOCK_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

_Table = TypeVar("_Table", bound=Struct)


def load(config_path: str | Path | None, env: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings of a node from all sources.

    `config_path` names the TOML file; without it `PENSTOCK_CONFIG` in `env` does, else ./penstock.toml is read if there
    is one. `flags` maps dotted keys to what the command line gave, text or typed; None means not given. Nothing else is
    read but a config.json of MoniQue that one of these may name. Raises a SettingsError: the one mistake, or a
    SettingsErrorGroup of all of them.
    """
    merge = _Merge()
    path = _config_path(config_path, env)
    if path is not None:
        merge.file(str(path), _read_toml(path))
    merge.variables(env)
    merge.flags(flags)
    merge.monique_config()
    merge.raise_errors()
    settings = merge.settings()
    _check_connections(settings)
    _check_conflicts(settings)
    return settings


class _Merge:
    """Values by dotted key with the source of each, and the errors met so far."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.sources: dict[str, Source] = {}
        self.listeners: list[dict[str, Value]] = []
        self.errors: list[SettingsError] = []

    def file(self, path: str, document: dict[str, Any]) -> None:
        """Take over what a TOML document holds."""
        for name, value in document.items():
            source = Source.file(path, name)
            if "." in name:
                # A quoted key with dots in it: close to what was meant, but TOML does not see a table in it.
                self.errors.append(UnknownSettingError(name, source, _nearest_key(name, tables())))
            elif name not in tables():
                self._file_value(path, name, value)
            elif isinstance(value, dict):
                for inner, inner_value in value.items():
                    self._file_value(path, f"{name}.{inner}", inner_value)
            else:
                self.errors.append(InvalidValueError(name, value, source, f"a table: [{name}]"))

    def variables(self, env: Mapping[str, str]) -> None:
        """Take over the variables that are ours, in the order of their names."""
        known = {field.variable: field for field in all_fields()}
        for name in sorted(env):
            if not name.startswith(VARIABLE_PREFIX) or name in (CONFIG_VARIABLE, CLIENT_VARIABLE):
                continue
            source = Source.variable(name)
            if name in known:
                self._put(known[name].key, env[name], source)
            elif not _FOREIGN_VARIABLE.fullmatch(name):
                nearest = _nearest(name, [*known, CONFIG_VARIABLE, CLIENT_VARIABLE])
                self.errors.append(UnknownSettingError(name, source, nearest))

    def flags(self, flags: Mapping[str, object]) -> None:
        """Take over what the command line gave."""
        for key, value in flags.items():
            if value is None:
                continue
            field = fields_by_key().get(key)
            if field is None:
                nearest = _nearest_key(key, fields_by_key())
                self.errors.append(UnknownSettingError(key, Source.flag(key), nearest))
                continue
            name = field.flag_off if value is False and field.flag_off else field.flag
            self._put(key, value, Source.flag(name))

    def monique_config(self) -> None:
        """Take over from MoniQue's own file what nobody has set."""
        path = self.values.get("monique.config")
        if not path:
            return
        try:
            found = read_monique_config(str(path)).values
        except ConfigFileError as error:
            self.errors.append(error)
            return
        for key, (value, file_key) in found.items():
            # Who says on which address all of it listens need not name its parts one by one.
            overruled = key.endswith("_host") and "monique.host" in self.values
            if key not in self.values and not overruled:
                self._put(key, value, Source.file(str(path), file_key), text_allowed=False)

    def raise_errors(self) -> None:
        """Refuse the whole if any part was wrong."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise SettingsErrorGroup(self.errors)

    def settings(self) -> Settings:
        """The settings made of the values; all of them have been checked."""
        own = {key: value for key, value in self.values.items() if "." not in key}
        taskflux = self._of_table("taskflux")
        inherited = {name: taskflux[name] for name in listener_fields() if name in taskflux}
        self._inherit_sources(inherited)
        further = tuple(_table(ListenerSettings, {**inherited, **given}) for given in self.listeners)
        return _table(
            Settings,
            {
                **own,
                "storage": _table(StorageSettings, self._of_table("storage")),
                "limits": _table(LimitsSettings, self._of_table("limits")),
                "taskflux": _table(TaskfluxSettings, {**taskflux, "listeners": further}),
                "etzel": _table(EtzelSettings, self._of_table("etzel")),
                "monique": _table(MoniqueSettings, self._of_table("monique")),
                "sources": dict(self.sources),
            },
        )

    def _inherit_sources(self, inherited: Iterable[str]) -> None:
        for number, given in enumerate(self.listeners):
            for name in inherited:
                if name not in given:
                    self.sources[f"{LISTENERS_KEY}[{number}].{name}"] = self.sources[f"taskflux.{name}"]

    def _of_table(self, table: str) -> dict[str, Value]:
        prefix = table + "."
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def _file_value(self, path: str, key: str, value: object) -> None:
        source = Source.file(path, key)
        if key == LISTENERS_KEY:
            self._file_listeners(path, value)
        elif key in fields_by_key():
            self._put(key, value, source, text_allowed=False)
        else:
            names = [*fields_by_key(), LISTENERS_KEY]
            nearest = _nearest_key(key, names if "." in key else [*names, *tables()])
            self.errors.append(UnknownSettingError(key, source, nearest))

    def _file_listeners(self, path: str, value: object) -> None:
        tables_given = value if isinstance(value, list) else None
        if tables_given is None or not all(isinstance(each, dict) for each in tables_given):
            source = Source.file(path, LISTENERS_KEY)
            self.errors.append(InvalidValueError(LISTENERS_KEY, value, source, f"tables: [[{LISTENERS_KEY}]]"))
            return
        if len(tables_given) > LISTENERS_MAX:
            reason = f"{len(tables_given)} listeners are given, {LISTENERS_MAX} are the most"
            self.errors.append(ConflictingSettingsError([LISTENERS_KEY], reason))
            return
        for number, table in enumerate(tables_given):
            self.listeners.append(self._file_listener(path, f"{LISTENERS_KEY}[{number}]", table))

    def _file_listener(self, path: str, key: str, table: dict[str, object]) -> dict[str, Value]:
        known = listener_fields()
        given: dict[str, Value] = {}
        for name, value in table.items():
            source = Source.file(path, f"{key}.{name}")
            if name not in known:
                nearest = _nearest(name, known)
                self.errors.append(UnknownSettingError(f"{key}.{name}", source, nearest))
                continue
            try:
                given[name] = parse(replace(known[name], key=f"{key}.{name}"), value, source)
            except SettingsError as error:
                self.errors.append(error)
            self.sources[f"{key}.{name}"] = source
        if "port" not in table:
            # The door's own port is taken by its first listener, so there is nothing to inherit.
            source = Source.file(path, key)
            self.errors.append(MissingValueError(f"{key}.port", source, allowed(known["port"])))
        return given

    def _put(self, key: str, value: object, source: Source, *, text_allowed: bool = True) -> None:
        field = fields_by_key()[key]
        try:
            if text_allowed and isinstance(value, str):
                self.values[key] = parse_text(field, value, source)
            else:
                self.values[key] = parse(field, value, source)
        except SettingsError as error:
            self.errors.append(error)
        else:
            self.sources[key] = source


def _table(table: type[_Table], values: Mapping[str, Any]) -> _Table:
    return table(**values)


def _config_path(config_path: str | Path | None, env: Mapping[str, str]) -> Path | None:
    named = config_path or env.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    default = Path(DEFAULT_CONFIG_PATH)
    return default if default.exists() else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_config_file(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigFileError(str(path), f"is not TOML: {error}") from error


def _check_connections(settings: Settings) -> None:
    monique = settings.monique
    try:
        monique.open_connections()
    except ValueError as error:
        source = settings.source_of("monique.connections")
        allowed_text = "specs with their ports: spec=port,spec=port"
        raise InvalidValueError("monique.connections", monique.connections, source, allowed_text) from error


def _check_conflicts(settings: Settings) -> None:
    taken: dict[tuple[str, int], str] = {}
    for place in settings.places():
        if place.port == 0:
            continue
        first_key = taken.setdefault((place.host, place.port), place.port_key)
        if first_key != place.port_key:
            reason = f"both listen on {place.host} port {place.port}"
            raise ConflictingSettingsError([first_key, place.port_key], reason)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    matches = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return matches[0] if matches else None


def _nearest_key(key: str, known: Iterable[str]) -> str | None:
    """The known key most like this one; first of all one with the same last part, set in the wrong table."""
    names = list(known)
    by_last_part = {name.rpartition(".")[2]: name for name in reversed(names)}
    wanted = key.replace("-", "_")
    last_part = wanted.rpartition(".")[2]
    if last_part in by_last_part:
        return by_last_part[last_part]
    nearest_part = _nearest(last_part, by_last_part)
    return _nearest(wanted, names) or (by_last_part[nearest_part] if nearest_part is not None else None)
