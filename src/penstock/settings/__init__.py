"""Settings of a node from a TOML file, `PENSTOCK_*` variables and command line flags, by one schema (schema.py)."""

from __future__ import annotations

from penstock.settings.describe import SettingLine, describe, render_toml
from penstock.settings.errors import SettingsError, SettingsErrorGroup
from penstock.settings.exposure import check_exposure
from penstock.settings.fields import Field, all_fields
from penstock.settings.load import load
from penstock.settings.schema import (
    EtzelSettings,
    LimitsSettings,
    ListenerSettings,
    MoniqueSettings,
    Place,
    Settings,
    StorageSettings,
    TaskfluxSettings,
)
from penstock.settings.source import Source
from penstock.settings.values import format_value

__all__ = [
    "EtzelSettings",
    "Field",
    "LimitsSettings",
    "ListenerSettings",
    "MoniqueSettings",
    "Place",
    "SettingLine",
    "Settings",
    "SettingsError",
    "SettingsErrorGroup",
    "Source",
    "StorageSettings",
    "TaskfluxSettings",
    "all_fields",
    "check_exposure",
    "describe",
    "format_value",
    "load",
    "render_toml",
]
