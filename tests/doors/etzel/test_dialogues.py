"""The dialogues recorded from the original server, those that any server must repeat and those that ours should.

Frames are compared key by key and in the order of their keys; `error_count`, which the original never sends, is left
out where a recording has none. Waits are steps of the served node's clock. D01 differs in one thing: a message that had
been fetched when the node was killed is still leased afterwards, and comes back at its deadline.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.doors.conftest import AdvancedLoop
from tests.doors.etzel.support import VECTORS, Client, EtzelServer

DIALOGUES = {each["id"]: each for each in VECTORS["scenarios"] if each["kind"] in ("must", "recommended")}
RESTARTS = "D01"


class Served(Protocol):
    """A node that a dialogue is held with."""

    port: int

    def advance(self, seconds: float) -> None: ...


class ServedProcess:
    """A node in a process of its own, that can be killed and started again; its clock goes on from where it was."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._ahead_s = 0.0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.doors.etzel.served", str(self._data_dir)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def advance(self, seconds: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        self._ahead_s += seconds

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self._start()
        if self._ahead_s:
            ahead_s, self._ahead_s = self._ahead_s, 0.0
            self.advance(ahead_s)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One node for all dialogues: each has a queue of its own."""
    server = EtzelServer(AdvancedLoop())
    server.start()
    yield server
    server.stop()


class Dialogue:
    """Holds a recorded dialogue with a node."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._clients: dict[str, Client] = {}
        self._uids: dict[str, str] = {}

    def hold(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            getattr(self, f"_{step['op']}")(step)
        for client in self._clients.values():
            client.hears_nothing()
            client.socket.close()

    def _open(self, step: dict[str, Any]) -> None:
        self._clients[step["conn"]] = Client(self._served.port)

    def _send(self, step: dict[str, Any]) -> None:
        text = step["text"] if "text" in step else json.dumps(self._with_uids(step["json"]))
        self._clients[step["conn"]].send_frame(text.encode())

    def _with_uids(self, message: dict[str, Any]) -> dict[str, Any]:
        return {key: self._uids.get(value, value) if key == "uid" else value for key, value in message.items()}

    def _recv(self, step: dict[str, Any]) -> None:
        heard = self._clients[step["conn"]].hear()
        allowed = [self._expected(each, heard) for each in step.get("json_any", [step["json"]])]
        if all("error_count" not in each for each in allowed):
            heard.pop("error_count", None)
            assert list(heard) in [list(each) for each in allowed], "the keys come in this order"
        assert heard in allowed, step

    def _expected(self, recorded: dict[str, Any], heard: dict[str, Any]) -> dict[str, Any]:
        expected = dict(recorded)
        if expected.get("err") == "$any":
            expected["err"] = heard.get("err")
        uid = expected.get("uid", "")
        if uid.startswith("$") and uid not in self._uids and "uid" in heard:
            assert heard["uid"] not in self._uids.values(), "a uid names one message"
            self._uids[uid] = heard["uid"]
        return self._with_uids(expected)

    def _wait(self, step: dict[str, Any]) -> None:
        self._served.advance(step["s"])

    def _close(self, step: dict[str, Any]) -> None:
        assert self._clients.pop(step["conn"]).close() == step.get("peer_code", 1000)

    def _note(self, step: dict[str, Any]) -> None:
        """For people."""

    def _restart(self, step: dict[str, Any]) -> None:
        assert isinstance(self._served, ServedProcess)
        assert step["signal"] == "SIGKILL"
        self._served.restart()
        self._served.advance(2)  # the original took so long, and the next wait of the recording counts on it
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()


@pytest.mark.parametrize("name", [name for name in DIALOGUES if name != RESTARTS])
def test_dialogue(name: str, served: Served) -> None:
    Dialogue(served).hold(DIALOGUES[name]["steps"])


def test_dialogue_over_a_kill(tmp_path: Path) -> None:
    steps = DIALOGUES[RESTARTS]["steps"]
    at = next(number for number, step in enumerate(steps) if step["op"] == "restart") + 1
    # After the restart: open; FET, fetched; FET, unfetched; FET, nomsg; wait; FET, delayed. Ours: fetched comes last.
    opened, early, later = steps[at : at + 1], steps[at + 1 : at + 3], steps[at + 3 :]
    assert early[1]["json"]["msg"] == "m-fetched"
    served = ServedProcess(tmp_path)
    try:
        Dialogue(served).hold([*steps[:at], *opened, *later, {"op": "wait", "s": 50}, *early])
    finally:
        served.kill()


def test_the_recordings_are_all_held() -> None:
    assert len(DIALOGUES) == 21
    assert sum(each["kind"] == "recommended" for each in DIALOGUES.values()) == 6
