"""What the command says when it fails, and the exit codes that scripts can rely on.

click.ClickException
 ├─ Failure          anything that went wrong, in one line, with its exit code
 └─ click.UsageError a mistake on the command line (exit code 2), click's own

0   done
1   the operation failed, or failed for some of what was named; a node could not start
2   a mistake on the command line or in the settings
3   no connection to a node, or no answer from it
4   the node refused; nothing was changed
5   the node may or may not have done it
6   there was nothing: a take or peek on an empty queue, no history
70  the node that this process ran failed while it served or stopped
130 interrupted
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO, Any, Final

import click

from penstock.cli.output import lines_printable

FAILED: Final = 1
USAGE: Final = 2
NO_CONNECTION: Final = 3
REFUSED: Final = 4
OUTCOME_UNKNOWN: Final = 5
NOTHING: Final = 6
NODE_FAILED: Final = 70
INTERRUPTED: Final = 130

_HINTS: Final = {
    "NO_SUCH_QUEUE": "`penstock queue list` shows what there is, `penstock queue create` makes one",
    "QUEUE_EXISTS": "`penstock queue show` tells its settings, `penstock queue set` changes them",
    "BAD_QUEUE_NAME": "a name has up to 255 printable ASCII characters and no space; '' is the default queue",
    "SETTING_FIXED": "make another queue and move the messages there",
    "QUEUE_FULL": "wait until some are taken, or raise it: `penstock queue set NAME --size-max N`",
    "PAYLOAD_TOO_LARGE": "`penstock queue show` and `penstock config show` tell the limits",
    "HEADERS_TOO_LARGE": "put what is long into the payload",
    "DEDUP_FULL": "raise the limit: `penstock queue set NAME --dedup-keys-max N`; `penstock queue show` has the number",
    "KEY_OUT_OF_RANGE": "`penstock queue show` tells the range",
    "NO_SUCH_RECORD": "`penstock history` tells what became of it",
    "LEASE_LOST": "its lease ended; `penstock history` tells how",
    "WRONG_STATE": "`penstock get` tells its state",
    "NO_SUCH_JOB": "`penstock jobs` lists them",
    "NO_SUCH_BINDING": "`penstock bindings` lists them",
    "MEMORY_FULL": "take some messages, or raise limits.memory_bytes",
    "STAGING_FULL": "`penstock staging list` shows what is staged, `penstock staging abort` drops a batch",
    "DISK_FULL": "make room on the node's disk; takes and acks go on",
    "OUTCOME_UNKNOWN": "look before you repeat it",
    "CONNECTION_LOST": "is a node running there? Start one with `penstock serve`, or say another with --url",
    "FRAME_TOO_LARGE": "a newer client may read it; `penstock config show` lists the node's limits",
    "HANDSHAKE_REFUSED": "the reason comes from what listens there; --url names another node",
}


class Failure(click.ClickException):
    """A failure in one line, with the exit code it ends the command with."""

    def __init__(self, message: str, exit_code: int = FAILED, hint: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class, and reads it here
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Write `penstock: message; hint`; more than one line only where there is more than one mistake."""
        text = lines_printable(self.format_message())
        click.echo(f"penstock: {text}; {self.hint}" if self.hint else f"penstock: {text}", file=file or sys.stderr)


def explain(error: Exception) -> Failure:
    """The failure that an error of any of our packages, or of the system, is shown as."""
    parts = type(error).__module__.split(".")
    package = parts[1] if parts[0] == "penstock" and len(parts) > 1 else ""
    if package in _EXPLAINERS:
        return _EXPLAINERS[package](error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}")
    hint = "this is a fault of the program; `penstock --debug …` shows where"
    return Failure(f"unexpected {type(error).__name__}: {error}", hint=hint)


def _explain_client(error: Exception) -> Failure:
    from penstock.client import errors

    assert isinstance(error, errors.PenstockError)
    hint = _HINTS.get(error.name, "")
    if isinstance(error, errors.Refused):
        text = f"{error.detail} ({error.name})" if error.detail else error.name
        if error.position is not None:
            text = f"message {error.position + 1}: {text}"
        return Failure(text, REFUSED, hint)
    codes: dict[type[Exception], int] = {
        errors.OutcomeUnknown: OUTCOME_UNKNOWN,
        errors.ConnectionLost: NO_CONNECTION,
        errors.HandshakeRefused: NO_CONNECTION,
        errors.Timeout: NO_CONNECTION,
        errors.BadUrl: USAGE,
    }
    return Failure(str(error), codes.get(type(error), FAILED), hint)


def _explain_settings(error: Exception) -> Failure:
    lines = str(error).splitlines()
    text = lines[0] if len(lines) == 1 else "the settings have several mistakes:\n  " + "\n  ".join(lines)
    return Failure(text, USAGE)


def _explain_plainly(error: Exception) -> Failure:
    return Failure(str(error))


def _explain_node(error: Exception) -> Failure:
    from penstock.node.errors import ReplayFailed

    return Failure(str(error), FAILED if isinstance(error, ReplayFailed) else NODE_FAILED)


_EXPLAINERS: Final[dict[str, Callable[[Exception], Failure]]] = {
    "client": _explain_client,
    "settings": _explain_settings,
    "storage": _explain_plainly,
    "engine": _explain_plainly,
    "wire": _explain_plainly,
    "doors": _explain_plainly,
    "spark": _explain_plainly,
    "node": _explain_node,
}
