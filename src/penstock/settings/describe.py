"""Showing settings: each value with where it came from, and the whole as a TOML file."""

from __future__ import annotations

from typing import NamedTuple

from penstock.settings.fields import LISTENERS_KEY, Field, all_fields, field_of, listener_fields
from penstock.settings.schema import Settings
from penstock.settings.source import Source
from penstock.settings.values import Value, format_value


class SettingLine(NamedTuple):
    """One value in force: its dotted key, the value, and where it came from."""

    key: str
    value: Value
    source: Source

    @property
    def text(self) -> str:
        """The value as TOML writes it."""
        return format_value(field_of(self.key), self.value)


def describe(settings: Settings) -> list[SettingLine]:
    """Every value in force in the order of the schema, further listeners last."""
    lines = [SettingLine(field.key, _value(settings, field), settings.source_of(field.key)) for field in all_fields()]
    for number, listener in enumerate(settings.taskflux.listeners):
        for name in listener_fields():
            key = f"{LISTENERS_KEY}[{number}].{name}"
            lines.append(SettingLine(key, getattr(listener, name), settings.source_of(key)))
    return lines


def render_toml(settings: Settings) -> str:
    """A TOML file that gives exactly these settings, with the meaning of each as a comment."""
    parts: list[str] = []
    table_now = ""
    for line in describe(settings):
        table, _, name = line.key.rpartition(".")
        if table != table_now:
            table_now = table
            header = f"[[{LISTENERS_KEY}]]" if table.startswith(LISTENERS_KEY) else f"[{table}]"
            parts.append(f"\n{header}")
        if not table.startswith(LISTENERS_KEY):
            parts.append(f"# {field_of(line.key).help}")
        parts.append(f"{name} = {line.text}")
    return "\n".join(parts) + "\n"


def _value(settings: Settings, field: Field) -> Value:
    holder: object = settings
    for name in field.key.split("."):
        holder = getattr(holder, name)
    assert isinstance(holder, bool | int | str)
    return holder
