"""The command as a whole: quick to start, its list of commands, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock import __version__
from penstock.cli import exchanging, pipeline, storage
from penstock.cli.lazy import Lazy, LazyGroup
from penstock.cli.main import COMMANDS, Root, cli
from tests.cli.support import Command, run

HEAVY = ["asyncio", "rich", "msgspec", "penstock.client", "penstock.engine", "penstock.settings", "penstock.wire"]


def modules_imported_by(*args: str) -> set[str]:
    """What a run of the command imports, by the interpreter's own account."""
    command = [sys.executable, "-X", "importtime", "-m", "penstock", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["storage", "--help"], ["import", "--help"], ["completion", "--help"]]
)
def test_help_starts_quickly_because_it_imports_nothing_heavy(args: list[str]) -> None:
    imported = modules_imported_by(*args)
    assert "penstock.cli.main" in imported
    assert imported.isdisjoint(HEAVY)


def test_the_test_of_imports_bites() -> None:
    """The same measurement sees what a command that needs them does import."""
    assert {"msgspec", "penstock.settings"} <= modules_imported_by("config", "check")


@pytest.mark.parametrize(
    "args", [["put", "--help"], ["take", "--help"], ["queue", "list", "--help"], ["import", "etzel", "--help"]]
)
def test_the_help_of_a_client_command_does_not_load_the_client(args: list[str]) -> None:
    assert modules_imported_by(*args).isdisjoint(["asyncio", "rich", "penstock.client"])


def all_commands() -> Iterator[tuple[LazyGroup, str, Lazy]]:
    groups = (
        (cli, COMMANDS),
        (storage.storage, storage.COMMANDS),
        (pipeline.pipeline, pipeline.COMMANDS),
        (exchanging.import_group, exchanging.IMPORTS),
        (exchanging.export_group, exchanging.EXPORTS),
    )
    for group, sections in groups:
        assert isinstance(group, LazyGroup)
        for commands in sections.values():
            for name, command in commands.items():
                yield group, name, command


@pytest.mark.parametrize(("group", "name", "command"), list(all_commands()), ids=lambda value: str(value)[:20])
def test_every_command_in_the_list_is_there_and_says_the_same_of_itself(
    group: LazyGroup, name: str, command: Lazy
) -> None:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    assert found.name == name
    assert found.help is not None
    paragraph = found.help.strip().partition("\n\n")[0]
    assert " ".join(paragraph.split()).startswith(command.help.rstrip("."))


def test_help_lists_every_command_with_its_line() -> None:
    text = Command()("--help").stdout
    for group, name, command in all_commands():
        if group is cli:
            assert f"  {name}" in text
            assert command.help in text
    assert "Exit codes" in text


def test_the_version_is_told() -> None:
    assert Command()("--version").stdout == f"penstock {__version__}\n"


def test_it_runs_as_a_module_and_as_a_console_script() -> None:
    assert run("--version").stdout == f"penstock {__version__}\n"


def test_an_unknown_command_is_a_usage_error_with_a_hint() -> None:
    result = Command()("taek", code=2)
    assert "Did you mean 'take'?" in result.stderr
    assert "Did you mean" not in Command()("xyzzy", code=2).stderr


def failing_with(error: BaseException) -> Root:
    """The root group with one command, which fails."""

    @click.command()
    def fail() -> None:
        raise error

    group = Root(name="penstock", sections={"": {}}, params=[click.Option(["--debug"], is_flag=True)])
    group.lazy = {"fail": Lazy("", "")}
    group.get_command = lambda ctx, name: fail  # type: ignore[method-assign]
    return group


def test_a_fault_of_the_program_is_one_line_without_a_traceback() -> None:
    result = CliRunner().invoke(failing_with(ZeroDivisionError("oops")), ["fail"])
    assert result.exit_code == 1
    assert result.stderr.startswith("penstock: unexpected ZeroDivisionError: oops; ")
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.stderr


def test_debug_lets_the_error_through() -> None:
    result = CliRunner().invoke(failing_with(ZeroDivisionError("oops")), ["--debug", "fail"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_an_interrupt_ends_with_the_code_that_shells_give_it() -> None:
    assert CliRunner().invoke(failing_with(KeyboardInterrupt()), ["fail"]).exit_code == 130


def test_a_missing_file_is_named() -> None:
    result = CliRunner().invoke(failing_with(FileNotFoundError(2, "No such file", "/x/y")), ["fail"])
    assert (result.exit_code, result.stderr) == (1, "penstock: /x/y: No such file\n")


def test_a_reader_that_left_is_no_error_to_talk_about() -> None:
    result = CliRunner().invoke(failing_with(BrokenPipeError(32, "Broken pipe")), ["fail"])
    assert (result.exit_code, result.stderr) == (1, "")
