"""HTML and SVG as text that cannot be broken into: what is not markup by its type is escaped.

Names of queues, specs and reasons come from whoever may put a message, so nothing here trusts a plain string.
"""

from __future__ import annotations

import html
import unicodedata
from typing import Final

_VOID: Final = frozenset({"link", "meta"})
# Controls, invisible format characters (which can turn the direction of a line) and line separators.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Markup(str):
    """Text that is markup already and goes out as it is."""

    __slots__ = ()


Child = Markup | str


def shown(text: str) -> str:
    """A name as it may be shown: what cannot be seen is written as an escape."""
    return "".join(_visible(each) if unicodedata.category(each) in _UNSEEN else each for each in text)


def cut(text: str, columns_max: int) -> str:
    """A name in so many columns of text, with an ellipsis where it was longer."""
    text = shown(text)
    columns = 0
    for position, each in enumerate(text):
        columns += _columns(each)
        if columns > columns_max:
            return _without_end(text[:position], columns_max - 1) + "…"
    return text


def tag(element: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. Attributes are named as in Python: `class_`, `text_anchor`; one that is None is left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{told}>")
    return Markup(f"<{element}{told}>{joined(*children)}</{element}>")


def joined(*children: Child) -> Markup:
    """Several in a row."""
    return Markup("".join(each if isinstance(each, Markup) else html.escape(each, quote=False) for each in children))


def number(value: float) -> str:
    """A coordinate: tenths of a unit are finer than any screen."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _without_end(text: str, columns_max: int) -> str:
    while text and sum(map(_columns, text)) > columns_max:
        text = text[:-1]
    return text
