"""Reading and writing one value of each kind."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings.errors import InvalidValueError, SettingsError
from penstock.settings.fields import Field, all_fields, fields_by_key
from penstock.settings.source import Source
from penstock.settings.values import Value, format_value, is_loopback, parse, parse_text

SOURCE = Source.flag("--test")

SIZE = fields_by_key()["storage.segment_bytes"]
MILLISECONDS = fields_by_key()["taskflux.idle_timeout_ms"]
HOURS = fields_by_key()["storage.retention_hours"]
NUMBER = fields_by_key()["limits.queues"]
BOOLEAN = fields_by_key()["insecure"]
CHOICE = fields_by_key()["storage.mode"]
HOST = fields_by_key()["taskflux.host"]
ADDRESS = fields_by_key()["taskflux.advertise"]
TEXT = fields_by_key()["data_dir"]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (SIZE, "8192", 8192),
        (SIZE, "8_192", 8192),
        (SIZE, "8192B", 8192),
        (SIZE, "64MiB", 64 * 1024**2),
        (SIZE, " 64 MiB ", 64 * 1024**2),
        (SIZE, "1.5GiB", 3 * 512 * 1024**2),
        (SIZE, "64MB", 64_000_000),
        (SIZE, "10kB", 10_000),
        (MILLISECONDS, "250", 250),
        (MILLISECONDS, "250ms", 250),
        (MILLISECONDS, "1.5s", 1500),
        (MILLISECONDS, "5m", 300_000),
        (MILLISECONDS, "1d", 86_400_000),
        (HOURS, "7d", 168),
        (HOURS, "90", 90),
        (HOURS, "120m", 2),
        (NUMBER, "12", 12),
        (BOOLEAN, "Yes", True),
        (BOOLEAN, "0", False),
        (CHOICE, "interval", "interval"),
        (HOST, "::1", "::1"),
        (HOST, "node-1.example", "node-1.example"),
        (ADDRESS, "", ""),
        (ADDRESS, "queue.example:2602", "queue.example:2602"),
        (ADDRESS, "[::1]:2602", "[::1]:2602"),
        (TEXT, "a folder ", "a folder "),
    ],
)
def test_text_is_read(field: Field, text: str, value: Value) -> None:
    parsed = parse_text(field, text, SOURCE)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (SIZE, ""),
        (SIZE, "64mib"),
        (SIZE, "64Mi"),
        (SIZE, "64 MiB extra"),
        (SIZE, "-8192"),
        (SIZE, "1023"),
        (SIZE, "3GiB"),
        (SIZE, "4096.5B"),
        (SIZE, "0x2000"),
        (SIZE, "9" * 4000),
        (MILLISECONDS, "0"),
        (MILLISECONDS, "2d"),
        (MILLISECONDS, "1.0005s"),
        (HOURS, "90m"),
        (NUMBER, "1MiB"),
        (NUMBER, "1.0"),
        (NUMBER, "ten"),
        (BOOLEAN, ""),
        (BOOLEAN, "maybe"),
        (CHOICE, "Durable"),
        (HOST, ""),
        (HOST, "127.0.0.1:2602"),
        (HOST, "[::1]"),
        (HOST, "127.0.0.256"),
        (HOST, "tcp://localhost"),
        (HOST, "a" * 64),
        (ADDRESS, "localhost"),
        (ADDRESS, "localhost:"),
        (ADDRESS, "localhost:0"),
        (ADDRESS, "localhost:65536"),
        (ADDRESS, "::1:2602"),
        (ADDRESS, "[localhost]:2602"),
        (ADDRESS, ":2602"),
        (TEXT, ""),
        (TEXT, "a\0b"),
        (TEXT, "a\udc80b"),
        (TEXT, "a" * 4097),
    ],
)
def test_text_that_is_not_allowed_is_refused_with_what_is(field: Field, text: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        parse_text(field, text, SOURCE)
    error = raised.value
    assert (error.key, error.value, error.source) == (field.key, text, SOURCE)
    assert error.allowed in str(error)
    assert "flag --test" in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (SIZE, True),
        (SIZE, 8192.0),
        (SIZE, "8192"),
        (SIZE, None),
        (NUMBER, "12"),
        (NUMBER, True),
        (NUMBER, 1.0),
        (BOOLEAN, "true"),
        (BOOLEAN, 1),
        (CHOICE, 1),
        (TEXT, 1),
        (TEXT, ["a"]),
        (HOST, 127),
    ],
)
def test_typed_values_are_not_converted(field: Field, value: object) -> None:
    """In TOML a quoted number is a mistake, and true is not 1."""
    with pytest.raises(InvalidValueError):
        parse(field, value, SOURCE)


def values_of(field: Field) -> st.SearchStrategy[Value]:
    if field.kind == "boolean":
        return st.booleans()
    if field.kind == "choice":
        return st.sampled_from(field.choices)
    if field.kind == "text":
        return st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text)
    if field.kind in ("host", "address", "origins"):
        return st.just(field.default)
    return st.integers(field.minimum, field.maximum) | st.sampled_from([field.minimum or 0, field.maximum or 0])


@given(st.data())
def test_what_is_written_is_read_back_unchanged(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(all_fields()))
    value = data.draw(values_of(field))
    written = tomllib.loads(f"key = {format_value(field, value)}")["key"]
    assert parse(field, written, SOURCE) == value


@given(st.sampled_from(all_fields()), st.text(max_size=40) | st.from_regex(r"[0-9]{1,6}(\.[0-9])?[A-Za-z]{0,3}"))
def test_any_text_is_read_or_refused_by_the_documented_error(field: Field, text: str) -> None:
    try:
        value = parse_text(field, text, SOURCE)
    except SettingsError:
        return
    assert parse(field, value, SOURCE) == value


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("192.168.1.5", False),
        ("localhost.example", False),
        ("example", False),
    ],
)
def test_only_what_is_surely_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
