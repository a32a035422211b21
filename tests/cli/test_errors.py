"""Exit codes: every error that a command can meet has the one that is documented."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from penstock.cli import errors
from penstock.cli.errors import explain
from penstock.client import errors as client_errors
from penstock.doors.errors import AddressTaken
from penstock.engine.errors import NAMES, OUTCOME_UNKNOWN
from penstock.node.errors import NodeFailed
from penstock.settings.errors import ConfigFileError, SettingsErrorGroup
from penstock.storage.errors import Damaged
from tests.cli.support import Command


@pytest.mark.parametrize("code", [code for code in NAMES if code != OUTCOME_UNKNOWN])
def test_every_refusal_ends_with_4_and_names_its_code(code: int) -> None:
    failure = explain(client_errors.refused_with(code, "the detail"))
    assert failure.exit_code == 4
    assert failure.message == f"the detail ({NAMES[code]})"


def test_a_refusal_without_detail_is_told_by_its_name() -> None:
    assert explain(client_errors.refused_with(client_errors.NoSuchQueue.code)).message == "NO_SUCH_QUEUE"


def test_a_refused_batch_names_the_offender() -> None:
    error = client_errors.refused_with(client_errors.QueueFull.code, "full")
    error.position = 2
    assert explain(error).message == "message 3: full (QUEUE_FULL)"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (client_errors.OutcomeUnknown("Put", 1, "lost"), 5),
        (client_errors.ConnectionLost("host:1", "refused"), 3),
        (client_errors.HandshakeRefused("no"), 3),
        (client_errors.Timeout("Peek", 1.0), 3),
        (client_errors.BadUrl("x", "no"), 2),
        (client_errors.ClientClosed(), 1),
        (client_errors.BadAnswer("Peek", "no"), 1),
        (client_errors.RequestTooLarge("Put", 2, 1), 1),
        (ConfigFileError("x.toml", "cannot be read"), 2),
        (Damaged(Path("raft.log"), "wrong checksum", 7), 1),
        (AddressTaken("taskflux", "taskflux", "127.0.0.1", 1), 1),
        (NodeFailed(OSError("EIO")), 70),
        (PermissionError(13, "Permission denied", "/x"), 1),
        (RuntimeError("?"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    failure = explain(error)
    assert failure.exit_code == code
    assert failure.message


def test_hints_are_for_errors_that_exist() -> None:
    names = {*NAMES.values(), *(getattr(each, "name", "") for each in vars(client_errors).values())}
    assert set(errors._HINTS) <= names


def test_several_mistakes_in_the_settings_stand_on_lines_of_their_own() -> None:
    group = SettingsErrorGroup([ConfigFileError("a", "first"), ConfigFileError("b", "second")])
    assert explain(group).message == "the settings have several mistakes:\n  a: first\n  b: second"


def test_no_node_is_told_with_a_hint_and_ends_with_3() -> None:
    result = Command("penstock://127.0.0.1:1")("queue", "list", code=3)
    assert result.stderr.startswith("penstock: no connection to 127.0.0.1:1: ")
    assert "penstock serve" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_address_that_is_none_ends_with_2() -> None:
    assert "penstock://127.0.0.1:2602" in Command()("ping", "--url", "http://x", code=2).stderr


def test_the_docstring_lists_every_code() -> None:
    for name in ("FAILED", "USAGE", "NO_CONNECTION", "REFUSED", "OUTCOME_UNKNOWN", "NOTHING", "NODE_FAILED"):
        assert f"\n{getattr(errors, name):<4}" in dedent(errors.__doc__ or ""), name
