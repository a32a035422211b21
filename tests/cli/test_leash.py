"""Commands on a leash: they end with who holds it, whatever they do about it, and their lines are passed on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.leashed import Lines, leashed
from tests.cli.support import PATIENCE_S

LEASH = [sys.executable, "-m", "penstock.cli.leash"]
# A command with a child of its own; both names stand in the file once the child runs.
FAMILY = """
{trap}
sh -c '{trap} echo $$ $PPID >{file}.new; mv {file}.new {file}; while :; do sleep 0.1; done' &
wait; wait
"""


def family(file: Path, *, stubborn: bool = False) -> list[str]:
    return ["sh", "-c", FAMILY.format(file=file, trap='trap "" INT TERM;' if stubborn else "")]


def wait_for(file: Path) -> list[int]:
    """The processes that wrote their names there."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not come"
        time.sleep(0.01)
    return [int(word) for word in file.read_text().split()]


def wait_for_end(processes: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if is_running(process)]:
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        # One that ended and is not yet reaped by its new parent does not count.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_the_command(script: str, code: int) -> None:
    with subprocess.Popen([*LEASH, "5", "sh", "-c", script], stdin=subprocess.PIPE) as leash:
        assert leash.wait(PATIENCE_S) == code


@pytest.mark.parametrize("stubborn", [False, True])
def test_letting_go_ends_the_command_and_its_children(tmp_path: Path, stubborn: bool) -> None:
    command = family(tmp_path / "family", stubborn=stubborn)
    grace = "0.3" if stubborn else str(PATIENCE_S * 10)
    with subprocess.Popen([*LEASH, grace, *command], stdin=subprocess.PIPE) as leash:
        processes = wait_for(tmp_path / "family")
        assert leash.stdin is not None
        leash.stdin.close()
        assert leash.wait(PATIENCE_S) == (137 if stubborn else 130)
        wait_for_end(processes)


def test_killing_the_holder_ends_the_command_and_its_children(tmp_path: Path) -> None:
    file = tmp_path / "family"
    leash = [*LEASH, "0.3", *family(file, stubborn=True)]
    holding = f"import subprocess; subprocess.Popen({leash}, stdin=subprocess.PIPE).wait()"
    with subprocess.Popen([sys.executable, "-c", holding]) as holder:
        processes = wait_for(file)
        holder.kill()
    wait_for_end(processes)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "family"
    stays = f"sh -c 'echo $$ >{file}.new; mv {file}.new {file}; while :; do sleep 0.1; done'"
    script = f"{stays} & until [ -e {file} ]; do sleep 0.01; done"
    with subprocess.Popen([*LEASH, "60", "sh", "-c", script], stdin=subprocess.PIPE) as leash:
        assert leash.wait(PATIENCE_S) == 0
    wait_for_end(wait_for(file))


def test_a_ctrl_c_that_its_starter_ignores_reaches_the_command(tmp_path: Path) -> None:
    """As when a script starts a node in the background."""
    file = tmp_path / "family"
    leash = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *LEASH, str(PATIENCE_S * 10), *family(file)], stdin=subprocess.PIPE
    )
    with leash:
        processes = wait_for(file)
        assert leash.stdin is not None
        leash.stdin.close()
        assert leash.wait(PATIENCE_S) == 130
    wait_for_end(processes)


def run_leashed(script: str, *, columns: int = 0) -> tuple[int, list[str]]:
    async def run() -> int:
        async with leashed(["sh", "-c", script], lines.append, grace_seconds=5, columns=columns) as process:
            return await process.wait()

    lines: list[str] = []
    return asyncio.run(run()), lines


def test_lines_come_from_both_streams_and_the_last_needs_no_end() -> None:
    code, lines = run_leashed("echo one; echo two >&2; printf three; exit 4")
    assert (code, lines) == (4, ["one", "two", "three"])


def test_a_command_can_be_made_to_believe_in_a_terminal() -> None:
    question = "if [ -t 1 ]; then echo yes; else echo no; fi"
    assert run_leashed(question) == (0, ["no"])
    assert run_leashed(question, columns=70) == (0, ["yes"])
    width = "import os; print(os.get_terminal_size(1).columns)"
    assert run_leashed(f"exec {sys.executable} -c '{width}'", columns=70) == (0, ["70"])


def test_leaving_the_context_ends_the_command(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with leashed(family(tmp_path / "family"), lambda line: None, grace_seconds=PATIENCE_S * 10):
            return await asyncio.to_thread(wait_for, tmp_path / "family")

    wait_for_end(asyncio.run(run()))


def test_no_descriptor_is_left_open() -> None:
    run_leashed("exit")
    before = len(os.listdir("/proc/self/fd"))
    run_leashed("exit")
    run_leashed("exit", columns=70)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_progress_bar_is_a_line_for_each_state_without_its_colours() -> None:
    lines: list[str] = []
    cut = Lines(lines.append)
    for piece in (b"\x1b[2K\x1b[32m 1", b"0%\x1b[0m\r 20%\r\r", b"\n100%\n\n", b"d\xc3", b"\xa9j\xe0"):
        cut.feed(piece)
    cut.end()
    assert lines == ["10%", "20%", "100%", "déj\N{REPLACEMENT CHARACTER}"]


def test_a_line_without_end_is_cut() -> None:
    lines: list[str] = []
    cut = Lines(lines.append)
    for _ in range(100):
        cut.feed(b"x" * 1000)
    assert max(map(len, lines)) <= 4096
    assert len(lines) == 20


def test_the_command_has_a_low_priority_its_own_session_and_no_input() -> None:
    script = "import os; print(os.nice(0), os.getsid(0) == os.getpid(), os.read(0, 1))"
    assert run_leashed(f"exec {sys.executable} -c '{script}'") == (0, [f"{min(os.nice(0) + 10, 19)} True b''"])


def test_signals_are_as_the_leash_found_them() -> None:
    """The command must not inherit what the leash does about signals."""
    script = "import signal; print(signal.getsignal(signal.SIGINT) == signal.default_int_handler, "
    script += "signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)"
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    code, lines = run_leashed(f"exec {sys.executable} -c '{script}'")
    assert (code, lines) == (0, ["True True"])
