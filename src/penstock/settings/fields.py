"""The schema as a flat list: one `Field` per setting, with the names it has in each source.

dotted key             TOML                    variable                       flag
data_dir               data_dir                PENSTOCK_DATA_DIR              --data-dir
storage.segment_bytes  segment_bytes           PENSTOCK_STORAGE_SEGMENT_BYTES --storage-segment-bytes
                       in [storage]
taskflux.enabled       enabled in [taskflux]   PENSTOCK_TASKFLUX_ENABLED      --taskflux / --no-taskflux
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import fields as struct_fields

from penstock.settings.schema import ListenerSettings, Settings

Kind = Literal["boolean", "choice", "number", "size", "milliseconds", "hours", "host", "address", "origins", "text"]

VARIABLE_PREFIX: Final = "PENSTOCK_"
CONFIG_VARIABLE: Final = "PENSTOCK_CONFIG"
LISTENERS_KEY: Final = "taskflux.listeners"

_METAVARS: Final[dict[Kind, str]] = {
    "number": "N",
    "size": "SIZE",
    "milliseconds": "DURATION",
    "hours": "DURATION",
    "host": "HOST",
    "address": "HOST:PORT",
    "origins": "ORIGIN,...",
    "text": "TEXT",
}


class Field(Struct, frozen=True, kw_only=True):
    """One setting: its dotted key, its kind, default and range, and what it means."""

    key: str
    kind: Kind
    default: bool | int | str
    help: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return VARIABLE_PREFIX + self.key.replace(".", "_").upper()

    @property
    def parameter(self) -> str:
        """The key as a Python name: what a command line library may call the option's parameter."""
        return self.key.replace(".", "_")

    @property
    def flag(self) -> str:
        """The command line flag that sets it; for a boolean, the one that turns it on."""
        return "--" + self._flag_stem

    @property
    def flag_off(self) -> str | None:
        """The flag that turns a boolean off; None for all other kinds."""
        return f"--no-{self._flag_stem}" if self.kind == "boolean" else None

    @property
    def metavar(self) -> str:
        """What stands for the value in a usage line."""
        return _METAVARS.get(self.kind, "|".join(self.choices))

    @property
    def _flag_stem(self) -> str:
        return self.key.removesuffix(".enabled").replace(".", "-").replace("_", "-")


@cache
def all_fields() -> tuple[Field, ...]:
    """Every setting, in the order of the schema."""
    return tuple(_fields_of(Settings, ""))


@cache
def fields_by_key() -> dict[str, Field]:
    """Every setting by its dotted key."""
    return {field.key: field for field in all_fields()}


@cache
def tables() -> tuple[str, ...]:
    """The names of the TOML tables."""
    return tuple(dict.fromkeys(field.key.rpartition(".")[0] for field in all_fields() if "." in field.key))


@cache
def listener_fields() -> dict[str, Field]:
    """What a table in [[taskflux.listeners]] may hold: by its key there, the field of the door that it stems from."""
    return {each.name: fields_by_key()[f"taskflux.{each.name}"] for each in struct_fields(ListenerSettings)}


def field_of(key: str) -> Field:
    """The field behind a dotted key, also behind one of a further listener such as `taskflux.listeners[0].port`."""
    if key.startswith(LISTENERS_KEY + "["):
        return listener_fields()[key.rpartition(".")[2]]
    return fields_by_key()[key]


def _fields_of(table: type[Struct], prefix: str) -> list[Field]:
    hints = get_type_hints(table, include_extras=True)
    own: list[Field] = []
    nested: list[Field] = []
    for each in struct_fields(table):
        hint = hints[each.name]
        key = prefix + each.name
        if get_origin(hint) is Annotated:
            annotated, meta = get_args(hint)
            own.append(_field(key, annotated, meta, each.default))
        elif isinstance(hint, type) and issubclass(hint, Struct):
            nested.extend(_fields_of(hint, key + "."))
    return own + nested


def _field(key: str, annotated: Any, meta: Meta, default: Any) -> Field:
    if meta.description is None:
        raise TypeError(f"{key} has no description in the schema")
    return Field(
        key=key,
        kind=_kind(key, annotated, meta),
        default=default,
        help=meta.description,
        minimum=int(meta.min_length or 0) if annotated is str else _whole(meta.ge),
        maximum=meta.max_length if annotated is str else _whole(meta.le),
        choices=get_args(annotated) if get_origin(annotated) is Literal else (),
    )


def _kind(key: str, annotated: Any, meta: Meta) -> Kind:
    if get_origin(annotated) is Literal:
        return "choice"
    if annotated is bool:
        return "boolean"
    if annotated is str:
        kind: Kind = (meta.extra or {}).get("kind", "text")
        return kind
    if key.endswith("_bytes"):
        return "size"
    if key.endswith("_ms"):
        return "milliseconds"
    return "hours" if key.endswith("_hours") else "number"


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
