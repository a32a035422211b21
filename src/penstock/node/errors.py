"""Why a node stops, or does not start.

NodeError
 ├─ NodeFailed    (cause): the disk failed, or the program did; what was acknowledged is safe, the process must end
 ├─ EntryFailed   (index, operations, cause): the engine raised an error while it applied a committed entry
 │   └─ ReplayFailed: it did so at a start
 └─ DiskStuck     (seconds): the disk did not answer while the node stopped
"""

from __future__ import annotations

from penstock.engine import commands as c
from penstock.engine.entries import Entry

_OPERATIONS_NAMED_MAX = 5


class NodeError(Exception):
    """A node that cannot serve."""

    code = "node"


class NodeFailed(NodeError):
    """The node stopped because of an error that it must not live with."""

    code = "failed"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the node stopped: {described(cause)}")
        self.cause = cause


class EntryFailed(NodeError):
    """A committed entry could not be applied: a fault of the program. The state must not be used any more."""

    code = "entry_failed"

    def __init__(self, index: int, entry: Entry | None, cause: BaseException) -> None:
        self.operations = operations_of(entry)
        super().__init__(f"entry {index} ({self.operations}) cannot be applied: {described(cause)}")
        self.index = index
        self.cause = cause


class ReplayFailed(EntryFailed):
    """An entry of the log could not be applied at a start. Nothing was changed; the next start will fail here, too."""

    code = "replay_failed"

    def __str__(self) -> str:
        return (
            f"{super().__str__()}. This is a fault of the program, please report it. The data are unchanged. "
            f"To start without this entry, and lose what its commands did: --skip-entry {self.index} "
            "(docs/operations.md, A start that fails at an entry)"
        )


class DiskStuck(NodeError):
    """A sync of the log was still running when the time for a stop was over."""

    code = "disk_stuck"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the disk did not finish a sync of the log within {seconds:g} s")
        self.seconds = seconds


def described(problem: BaseException) -> str:
    """An error in one line: errors of ours explain themselves, others need their type."""
    if type(problem).__module__.startswith("penstock."):
        return str(problem)
    return f"unexpected {type(problem).__name__}: {problem}"


def operations_of(entry: Entry | None) -> str:
    """The operations in an entry, for people."""
    if entry is None:
        return "unreadable"
    names: dict[str, int] = {}
    for command in entry.commands:
        name = c.TYPES[command.op].__name__ if command.op in c.TYPES else f"operation {command.op}"
        names[name] = names.get(name, 0) + 1
    parts = [name if count == 1 else f"{count} × {name}" for name, count in names.items()]
    if len(parts) > _OPERATIONS_NAMED_MAX:
        parts[_OPERATIONS_NAMED_MAX:] = [f"{len(parts) - _OPERATIONS_NAMED_MAX} other operations"]
    return ", ".join(parts) or "no commands"
