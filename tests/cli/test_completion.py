"""Completion in the shell: the scripts, the commands, and the queues that the node has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from penstock.client.sync import Client
from penstock.testing import TestServer
from tests.cli.support import Command, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    script = Command()("completion", shell).stdout
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


def test_an_unknown_shell_is_refused() -> None:
    Command()("completion", "tcsh", code=2)


def completed(words: str, url: str = "penstock://127.0.0.1:1") -> list[str]:
    """What bash would offer for the last word."""
    count = len(words.split(" ")) - 1
    env = {
        "_PENSTOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(count),
        "PENSTOCK_URL": url,
    }
    done = run(env=env)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_are_completed() -> None:
    assert completed("penstock ta") == ["take"]
    assert {"put", "peek", "ping"} <= set(completed("penstock p"))
    assert completed("penstock queue pu") == ["purge"]
    assert completed("penstock storage ver") == ["verify"]


def test_options_and_choices_are_completed() -> None:
    assert completed("penstock take q --fol") == ["--follow"]
    assert completed("penstock serve --storage-mode d") == ["durable"]


def test_queues_are_completed_from_the_node(node: TestServer, client: Client, queue: str) -> None:
    assert completed(f"penstock take {queue[:-1]}", node.url).count(queue) == 1


def test_without_a_node_no_queue_is_offered_and_nothing_is_said() -> None:
    assert completed("penstock take x") == []
