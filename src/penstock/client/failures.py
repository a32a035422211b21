"""Why something failed, in words: the names of reasons, and texts of failures within their limit."""

from __future__ import annotations

from typing import Final

from penstock.engine.commands import FAILURE_BYTES_MAX
from penstock.engine.journal import REASONS

_ELLIPSIS: Final = "…"
_NUMBERS: Final = {name: number for number, name in REASONS.items() if name}


def reason_name(number: int) -> str:
    """A reason in words; empty for none."""
    return REASONS.get(number, f"reason {number}")


def reason_number(reason: str | int) -> int:
    """A reason by its name or number, as the node knows it; 0 for none. Raises ``ValueError`` for an unknown name."""
    if isinstance(reason, int):
        return reason
    if reason and reason not in _NUMBERS:
        raise ValueError(f"{reason!r} is not a reason; the reasons are {', '.join(_NUMBERS)}")
    return _NUMBERS.get(reason, 0)


def failure_of(error: BaseException) -> str:
    """An exception as the text of a failure: its type and message."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:  # the user's class, which may do anything
        message = ""
    return short_failure(f"{name}: {message}" if message else name)


def short_failure(text: str) -> str:
    """A text of a failure, cut to what a node keeps. What UTF-8 cannot express is replaced."""
    data = text.encode("utf-8", "replace")
    if len(data) <= FAILURE_BYTES_MAX:
        return data.decode()
    end = _ELLIPSIS.encode()
    return data[: FAILURE_BYTES_MAX - len(end)].decode("utf-8", "ignore") + _ELLIPSIS
