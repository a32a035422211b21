"""Where a setting's value came from."""

from __future__ import annotations

from typing import Literal, NamedTuple

SourceKind = Literal["default", "file", "variable", "flag"]


class Source(NamedTuple):
    """The origin of one value: its kind, and which file and key, variable or flag it was."""

    kind: SourceKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    @classmethod
    def file(cls, path: str, key: str) -> Source:
        """A key in the settings file."""
        return cls("file", f"{path}, key {key}")

    @classmethod
    def variable(cls, name: str) -> Source:
        """An environment variable."""
        return cls("variable", name)

    @classmethod
    def flag(cls, name: str) -> Source:
        """A flag on the command line."""
        return cls("flag", name)


DEFAULT = Source("default")
