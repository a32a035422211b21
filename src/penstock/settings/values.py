"""Reading one value: from TOML, where it has a type, and from variables and flags, where it is text.

    kind          TOML                          text
    boolean       true, false                   true, false, yes, no, on, off, 1, 0
    number        256                           256, 10_000
    size          67108864 or "64MiB"           67108864, 64MiB, 1.5GiB, 64MB (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)
    milliseconds  60000 or "60s"                60000, 500ms, 60s, 5m, 2h, 1d
    hours         168 or "7d"                   168, 36h, 7d
    choice        one of the named strings      the same
    host          an IP address or a host name, without a port; or nothing where that is the default
    address       host:port, [IPv6]:port, or nothing

A quantity must come out whole in the setting's own unit: "90m" is refused where hours are counted.
"""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Final

from penstock.settings.errors import InvalidValueError
from penstock.settings.fields import Field
from penstock.settings.origins import is_origin_entry, split_origins
from penstock.settings.source import Source

Value = bool | int | str

_BINARY_SIZES: Final = {"TiB": 1024**4, "GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}
_SIZES: Final = {"B": 1, **_BINARY_SIZES, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_DURATIONS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HOUR_MS: Final = 3_600_000

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})

# Lengths are bounded so that no text, however long, becomes a huge integer.
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_]{0,30}")
_QUANTITY: Final = re.compile(r"([0-9][0-9_]{0,30}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{1,3})")
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_HOST_LENGTH_MAX: Final = 253


def parse(field: Field, value: object, source: Source) -> Value:
    """The checked value of a setting as a TOML file or a caller gave it; InvalidValueError if it is not allowed."""
    parsed = _typed(field, value)
    if parsed is None or not _in_range(field, parsed):
        raise InvalidValueError(field.key, value, source, allowed(field))
    return parsed


def parse_text(field: Field, text: str, source: Source) -> Value:
    """The checked value of a setting as a variable or a flag gave it; InvalidValueError if it is not allowed."""
    stripped = text if field.kind == "text" else text.strip()
    parsed: Value | None
    if field.kind == "boolean":
        parsed = True if stripped.lower() in _TRUE else False if stripped.lower() in _FALSE else None
    elif _is_quantity(field) and _NUMBER.fullmatch(stripped):
        parsed = int(stripped.replace("_", ""))
    else:
        parsed = None if field.kind == "number" else _typed(field, stripped)
    if parsed is None or not _in_range(field, parsed):
        raise InvalidValueError(field.key, text, source, allowed(field))
    return parsed


def allowed(field: Field) -> str:
    """In words: which values this setting takes."""
    bounds = f"from {field.minimum} to {field.maximum}"
    match field.kind:
        case "boolean":
            return "true or false"
        case "choice":
            return f"{', '.join(field.choices[:-1])} or {field.choices[-1]}"
        case "number":
            return f"a whole number {bounds}"
        case "size":
            low, high = _size_text(field.minimum or 0), _size_text(field.maximum or 0)
            return f'a size from {low} to {high}: a number of bytes, or a text such as "64MiB"'
        case "milliseconds":
            return f'a duration {bounds} ms: a number of milliseconds, or a text such as "60s"'
        case "hours":
            return f'a duration {bounds} h: a whole number of hours, or a text such as "7d"'
        case "host":
            or_nothing = "" if field.default else ", or nothing"
            return f"an IP address or a host name, without a port{or_nothing}"
        case "address":
            return "host:port with a port from 1 to 65535, or nothing"
        case "origins":
            return 'origins such as "https://app.example:8443" with commas between them, "*" for all, or nothing'
        case "text":
            return f"a text of {field.minimum} to {field.maximum} characters"


def format_value(field: Field, value: Value) -> str:
    """The value as TOML writes it; sizes in the largest unit that is exact. `parse` reads it back unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_string(value)
    if field.kind == "size":
        text = _size_text(value)
        return text if text.isdigit() else _toml_string(text)
    return str(value)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`. A name other than localhost might mean any address."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _typed(field: Field, value: object) -> Value | None:
    """The value in the field's type, not yet checked against its range; None if it has no such reading."""
    if isinstance(value, bool):
        return value if field.kind == "boolean" else None
    if isinstance(value, int):
        return value if _is_quantity(field) else None
    if not isinstance(value, str):
        return None
    match field.kind:
        case "size":
            return _quantity(value, _SIZES, 1)
        case "milliseconds":
            return _quantity(value, _DURATIONS_MS, 1)
        case "hours":
            return _quantity(value, _DURATIONS_MS, _HOUR_MS)
        case "host":
            return value if _is_host(value) or value == field.default else None
        case "address":
            return value if not value or _is_address(value) else None
        case "origins":
            return value if all(map(is_origin_entry, split_origins(value))) else None
        case "choice" | "text":
            return value
        case "boolean" | "number":
            return None


def _is_quantity(field: Field) -> bool:
    return field.kind in ("number", "size", "milliseconds", "hours")


def _quantity(text: str, units: dict[str, int], divisor: int) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        return None
    amount = Fraction(match[1].replace("_", "")) * units[match[2]] / divisor
    return amount.numerator if amount.denominator == 1 else None


def _in_range(field: Field, value: Value) -> bool:
    if isinstance(value, bool):
        return True
    if field.kind == "choice":
        return value in field.choices
    if isinstance(value, str):
        return _is_clean(value) and _within(field, len(value))
    return _within(field, value)


def _is_clean(text: str) -> bool:
    """No NUL, which no path can hold, and no byte that was not UTF-8, which no TOML file can."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _within(field: Field, measure: int) -> bool:
    above = field.minimum is None or measure >= field.minimum
    return above and (field.maximum is None or measure <= field.maximum)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # What looks like a number in dots is a mistyped address, not a name.
        looks_like_address = re.fullmatch(r"[0-9.]+", text) is not None
        return len(text) <= _HOST_LENGTH_MAX and not looks_like_address and _HOST_NAME.fullmatch(text) is not None
    return True


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
        return False
    if host.startswith("[") and host.endswith("]"):
        return ":" in host and _is_host(host[1:-1])
    return ":" not in host and _is_host(host)


def _size_text(size_bytes: int) -> str:
    for unit, factor in _BINARY_SIZES.items():
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def _toml_string(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text) + '"'
