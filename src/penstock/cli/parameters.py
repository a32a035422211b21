"""Kinds of values that several commands take: durations, moments, keys, handles, queue names."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    # Generic only in the newest releases of click, so not where the program runs.
    ParamType: TypeAlias = click.ParamType[Any]
else:
    ParamType = click.ParamType

_UNITS_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|)")
_KEY_RANGE: Final = re.compile(r"(-?[0-9]{1,19})\.\.(-?[0-9]{1,19})")
_PAIR: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")
_INT64: Final = 2**63
_COMPLETION_TIMEOUT_SECONDS: Final = 1.0

NONE: Final = "none"
"""What takes a setting away."""


class Duration(ParamType):
    """A length of time, in seconds or with a unit; with `forever`, also "forever", which is infinite."""

    name = "duration"

    def __init__(self, *, forever: bool = False) -> None:
        self._forever = forever

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        if self._forever and value == "forever":
            return math.inf
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            also = ", or forever" if self._forever else ""
            self.fail(f"{value!r} is no duration; give seconds, or 250ms, 30s, 5m, 2h, 1d{also}", param, ctx)
        return float(match[1]) * _UNITS_SECONDS[match[2]]


class Moment(ParamType):
    """A point in time, ISO 8601; without a time zone it is local time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment, with a time zone."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time; give 2030-12-31T18:00, with Z or +01:00 if it is not local", param, ctx)
        return moment.astimezone()


class DurationOrMoment(ParamType):
    """Either of the two."""

    name = "duration|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | datetime:
        """Seconds, or the moment."""
        if isinstance(value, str) and _DURATION.fullmatch(value.strip()) is None:
            return MOMENT.convert(value, param, ctx)
        return DURATION.convert(value, param, ctx)


class Key(ParamType):
    """A record's key."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            key = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if not -_INT64 <= key < _INT64:
            self.fail(f"{key} is outside {-_INT64}..{_INT64 - 1}", param, ctx)
        return key


class KeyRange(ParamType):
    """Keys from..to, both included."""

    name = "from..to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Both ends."""
        if isinstance(value, tuple):
            return value
        match = _KEY_RANGE.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is no range of keys; give 0..9 or -5..5", param, ctx)
        low, high = KEY.convert(match[1], param, ctx), KEY.convert(match[2], param, ctx)
        if low > high:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return low, high


class Pair(ParamType):
    """Two numbers with a colon: a handle id:token, an attempt partition:attempt."""

    def __init__(self, first: str, second: str) -> None:
        self.name = f"{first}:{second}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Both numbers."""
        if isinstance(value, tuple):
            return value
        match = _PAIR.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        return int(match[1]), int(match[2])


class Header(ParamType):
    """A header, name=value."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


class OrNone(ParamType):
    """A value of another kind, or "none", which stays that text."""

    def __init__(self, inner: ParamType) -> None:
        self._inner = inner
        self.name = f"{inner.name}|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, or `NONE`."""
        return NONE if value == NONE else self._inner.convert(value, param, ctx)


class QueueName(ParamType):
    """The name of a queue; completed from what the node has."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it was typed: whether it can be one, the node knows."""
        name = str(value)
        if any("\ud800" <= character <= "\udfff" for character in name):
            self.fail(f"{name!r} is no text", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The node's queues; none if it cannot be asked, since nobody wants an error in the middle of typing."""
        from click.shell_completion import CompletionItem

        from penstock.cli.connecting import connected
        from penstock.client import PenstockError

        try:
            with connected(ctx.params.get("url"), connect_timeout=_COMPLETION_TIMEOUT_SECONDS) as client:
                names = [view.name for view in client.queues()]
        except PenstockError:
            return []
        return [CompletionItem(name) for name in names if name and name.startswith(incomplete)]


DURATION: Final = Duration()
WAIT: Final = Duration(forever=True)
MOMENT: Final = Moment()
KEY: Final = Key()
KEY_RANGE: Final = KeyRange()
HANDLE: Final = Pair("ID", "TOKEN")
ATTEMPT: Final = Pair("PARTITION", "ATTEMPT")
HEADER: Final = Header()
QUEUE: Final = QueueName()
RECORD_ID: Final = click.IntRange(1, _INT64 - 1)
NATURAL: Final = click.IntRange(0, _INT64 - 1)
