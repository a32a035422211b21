"""`python -m soak` as it is typed: a short run, its summary and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from soak.__main__ import summary
from soak.process import ROOT
from soak.run import Run, soak


def test_a_short_run_says_that_all_is_well() -> None:
    command = [sys.executable, "-m", "soak", "--seconds", "4", "--seed", "1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "nothing acknowledged was lost" in result.stdout
    assert "killed " in result.stdout
    directory = result.stdout.splitlines()[0].partition("files in ")[2]
    assert directory
    assert not Path(directory).exists()


def test_a_run_that_loses_something_ends_with_it_in_the_summary(tmp_path: Path) -> None:
    told: list[str] = []

    def watch(run: Run, doing: str) -> None:
        told.append(doing)

    run = soak(tmp_path, 1, 30, watch, fault={"site": "log.write", "after": 400, "errno": 0})
    assert run.violations
    assert run.took_s < 30, "the first violation ends the run"
    assert "VIOLATIONS" in summary(run)
    assert {"starting", "under load", "done"} <= set(told)


@pytest.mark.parametrize("seconds", ["0", "-1", "10000000", "x"])
def test_a_time_that_cannot_be_is_a_usage_error(seconds: str) -> None:
    command = [sys.executable, "-m", "soak", "--seconds", seconds]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == 2
