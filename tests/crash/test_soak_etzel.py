"""`python -m soak --etzel-minute`, with a shorter timeout: it sees a good node pass, and a bad one fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import __main__ as soak_main
from soak.etzel import Story, etzel_minute


def test_what_was_not_acknowledged_comes_back_at_its_time_from_both_nodes(tmp_path: Path) -> None:
    said: list[str] = []
    assert etzel_minute(tmp_path, said.append, timeout_s=5) == []
    assert [line for line in said if "the node is killed" in line] == ["killed: the node is killed"]
    assert len([line for line in said if ": woken 5." in line or ": woken 6." in line]) == 2, said


def test_a_timeout_that_the_node_does_not_take_is_seen(tmp_path: Path) -> None:
    violations = etzel_minute(tmp_path, lambda line: None, timeout_s=1)
    assert any("PUB: {'cmd': 'nok', 'err': 'BAD_TIMEOUT'}" in each for each in violations)


@pytest.mark.parametrize(
    ("after_s", "is_right"), [(59.0, False), (59.9, True), (60.0, True), (61.5, True), (63, False)]
)
def test_too_early_and_too_late_are_violations(after_s: float, is_right: bool) -> None:
    story = Story("node", lambda line: None, 60)
    story.came_back(after_s)
    assert (story.violations == []) == is_right


@pytest.mark.parametrize("violations", [[], ["steady: lost"]])
def test_the_exit_code_and_the_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], violations: list[str]
) -> None:
    monkeypatch.setattr(soak_main, "etzel_minute", lambda directory, say: violations)
    assert soak_main.main(["--etzel-minute"]) == (1 if violations else 0)
    said = capsys.readouterr().out
    directory = Path(said.splitlines()[0].partition("files in ")[2])
    assert directory.exists() == bool(violations)
    assert ("VIOLATIONS (1):\nsteady: lost" in said) == bool(violations)
    if violations:
        directory.rmdir()
