"""What can be wrong with settings.

    SettingsError                    code "settings"
    ├── ConfigFileError              code "config_file"         the file cannot be read, or is not TOML
    ├── UnknownSettingError          code "unknown_setting"     a key, variable or flag that nobody knows
    ├── InvalidValueError            code "invalid_value"       the wrong type, or out of range
    ├── MissingValueError            code "missing_value"       a table lacks what it cannot do without
    ├── ConflictingSettingsError     code "conflicting"         each value is fine, together they are not
    ├── ExposedListenerError         code "exposed_listener"    a public address without authentication
    └── SettingsErrorGroup           code "several"             more than one of the above

Every message names where the value came from and what would be right, so that it can be shown to a user as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from penstock.settings.source import Source


class SettingsError(Exception):
    """Base of all errors in settings; `str(error)` is a sentence for the user."""

    code: ClassVar[str] = "settings"


class ConfigFileError(SettingsError):
    """The settings file cannot be read or is not TOML."""

    code = "config_file"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnknownSettingError(SettingsError):
    """A key, variable or flag that is not in the schema; `nearest` is the known name it resembles, if any."""

    code = "unknown_setting"

    def __init__(self, name: str, source: Source, nearest: str | None) -> None:
        hint = f"; did you mean {nearest}?" if nearest is not None else ""
        super().__init__(f"{source}: there is no setting of this name{hint}")
        self.name = name
        self.source = source
        self.nearest = nearest


class InvalidValueError(SettingsError):
    """A value of the wrong type or out of range; `allowed` says in words what is accepted."""

    code = "invalid_value"

    def __init__(self, key: str, value: object, source: Source, allowed: str) -> None:
        super().__init__(f"{source}: {_shortened(value)} is not allowed for {key}; give {allowed}")
        self.key = key
        self.value = value
        self.source = source
        self.allowed = allowed


class MissingValueError(SettingsError):
    """A table was given without a key that has no default."""

    code = "missing_value"

    def __init__(self, key: str, source: Source, allowed: str) -> None:
        super().__init__(f"{source}: {key} is missing; give {allowed}")
        self.key = key
        self.source = source
        self.allowed = allowed


class ConflictingSettingsError(SettingsError):
    """Values that are fine alone contradict each other."""

    code = "conflicting"

    def __init__(self, keys: Sequence[str], reason: str) -> None:
        super().__init__(f"{' and '.join(keys)}: {reason}")
        self.keys = tuple(keys)
        self.reason = reason


class ExposedListenerError(SettingsError):
    """A listener would be reachable from other machines though nothing authenticates them."""

    code = "exposed_listener"

    def __init__(self, key: str, host: str, source: Source) -> None:
        super().__init__(
            f"{key} = {host!r} ({source}) can be reached from other machines, and nothing would ask them who they are; "
            f"bind to 127.0.0.1, or say --insecure (insecure = true, PENSTOCK_INSECURE=true) if that is what you want"
        )
        self.key = key
        self.host = host
        self.source = source


class SettingsErrorGroup(SettingsError):
    """Several errors at once, so that a user can mend them all before the next try."""

    code = "several"

    def __init__(self, errors: Sequence[SettingsError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


def _shortened(value: object, length_max: int = 80) -> str:
    """The value as the user wrote it, cut so that a pasted file does not fill the screen."""
    text = repr(value)
    return text if len(text) <= length_max else f"{text[:length_max]}..."
