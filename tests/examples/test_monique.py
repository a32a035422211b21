"""MoniQue's examples as real processes: the walk of tester and calculator, kills, monitoring, the controller."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from penstock.wire.monique.bodies import Body
from tests.examples.monique_stage import EXAMPLES, LIMIT_S, Stage, body_of, staged, task

WALK = """\
help
ping
subscribe * *
push example_calculator config JSON calculator.json
wait result
unsubscribe * *
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A node and a calculator that answers."""
    with staged(tmp_path_factory.mktemp("monique")) as stage:
        stage.calculator()
        stage.await_calculator()
        yield stage


def frames_of(output: str) -> list[tuple[str, list[str]]]:
    """What the tester shows: each frame's first line, and the lines under it."""
    frames: list[tuple[str, list[str]]] = []
    for line in output.splitlines():
        if line.startswith(("→ ", "← ")):
            frames.append((line, []))
        elif line.startswith("    ") and frames:
            frames[-1][1].append(line.strip())
    return frames


@pytest.mark.parametrize("options", [[], ["--legacy"]], ids=["current", "legacy"])
def test_the_tester_pushes_a_task_and_sees_it_come_back_with_its_result(stage: Stage, options: list[str]) -> None:
    """The seed's walk: help, then the push of calculator.json; 6 / 5.0 is 1.2."""
    done = stage.tester(WALK, *options)
    assert done.returncode == 0, done.stderr
    assert "push SPEC TYPE ENCODING FILE" in done.stdout
    frames = frames_of(done.stdout)
    commands = [head.split()[0] + head.split()[1] for head, _ in frames]
    assert sorted(commands) == sorted(
        """
        →ping ←pong →subscribe ←subscribed →push_to_mq ←pushed_to_mq ←pushed_from_mq ←pushed_from_mq
        →unsubscribe ←unsubscribed
        """.split()
    )
    shown = dict(zip(commands, frames, strict=True))
    tag = shown["→push_to_mq"][0].split()[2]
    own_id = tag.split(":")[2]
    assert tag == f"config:example_calculator:{own_id}::0000-0000-0000-websocket-tester"
    assert len(own_id) == (28 if options else 40)
    assert shown["←pushed_to_mq"][0].split()[2] == tag
    echo, result = [frame for frame in frames if frame[0].startswith("← pushed_from_mq")]
    assert echo[0].split()[2] == tag
    assert echo[1][0] == '{"first":6,"second":5.0,"action":"/"}'
    assert result[0].split()[2].startswith("result:example_calculator:")
    assert result[0].split()[2].endswith(f":{own_id}:0000-0000-0000-calculator")
    assert result[1][0] == '{"answer":1.2}'


def test_the_tester_shows_each_frame_in_hex_as_it_travels(stage: Stage) -> None:
    """The bytes of the seed: its subscribe and subscribed, digit by digit."""
    frames = dict(frames_of(stage.tester("subscribe * *\n").stdout))
    seed = "82 a7 63 6f 6d 6d 61 6e 64 {} a4 64 61 74 61 91 82 a4 73 70 65 63 a1 2a a4 74 79 70 65 a1 2a"
    assert frames["→ subscribe * *"] == [seed.format("a9 73 75 62 73 63 72 69 62 65")]
    assert frames["← subscribed * *"] == [seed.format("aa 73 75 62 73 63 72 69 62 65 64")]
    assert dict(frames_of(stage.tester("subscribe * *\n", "--no-hex").stdout))["→ subscribe * *"] == []


def test_a_calculator_answers_in_the_encoding_of_the_task(stage: Stage) -> None:
    walk = (
        "subscribe example_calculator result\npush example_calculator config MessagePack calculator.json\nwait result\n"
    )
    done = stage.tester(walk)
    assert done.returncode == 0, done.stderr
    (result,) = [frame for frame in frames_of(done.stdout) if frame[0].startswith("← pushed_from_mq")]
    assert result[1][0] == '{"answer":1.2}'
    assert "a6 61 6e 73 77 65 72 cb 3f f3 33 33 33 33 33 33" in result[1][1]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ('{"first": 1, "second": 0, "action": "/"}', 502, "division by zero"),
        ('{"first": 1, "second": 2, "action": "^"}', 502, "unknown action"),
        ('{"first": 1}', 101, "missing required field"),
        ("no task at all", 101, "not a task"),
    ],
)
def test_a_task_that_cannot_be_done_is_answered_by_an_error(stage: Stage, data: str, code: int, words: str) -> None:
    (stage.folder / "task.json").write_text(data, encoding="utf-8")
    done = stage.tester("subscribe error error\npush example_calculator config JSON task.json\nwait error\n")
    assert done.returncode == 0, done.stderr
    (error,) = [frame for frame in frames_of(done.stdout) if frame[0].startswith("← pushed_from_mq")]
    found = json.loads(error[1][0])
    assert found["code"] == code
    assert words in found["message"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fly", "unknown command 'fly'"),
        ("push example_calculator config JSON", "missing a required argument"),
        ("push example_calculator config JSON nowhere.json", "there is no file 'nowhere.json'"),
        ("subscribe onlyspec", "needs a spec and a type"),
        ("wait result 0.01", "no result with the pid"),
        ("push 'unfinished", "cannot be read"),
    ],
)
def test_the_tester_says_what_is_wrong_with_a_command(stage: Stage, command: str, words: str) -> None:
    done = stage.tester(command + "\n")
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tester_shows_the_gateways_errors(stage: Stage) -> None:
    """A type that does not exist cannot be delivered; the gateway says so, and the connection lives."""
    done = stage.tester("push example_calculator nonsense JSON calculator.json\nping\n")
    assert done.returncode == 0, done.stderr
    heads = [head.split()[1] for head, _ in frames_of(done.stdout) if head.startswith("←")]
    assert sorted(heads) == ["error:", "pong"]


def test_the_tester_says_when_there_is_no_gateway(stage: Stage) -> None:
    done = stage.tester("ping\n", "--gateway", "ws://127.0.0.1:9")
    assert done.returncode == 1
    assert "no gateway at ws://127.0.0.1:9" in done.stderr


def test_a_calculator_says_that_it_is_alive(stage: Stage) -> None:
    signs = stage.socket(zmq.SUB, "tech_out", b"data:monitoring:")
    # Others may say so, too: the node's own parts do.
    while True:
        body = body_of(signs.recv_multipart())
        found = json.loads(body.data)
        if found["name"] == "example_calculator":
            break
    assert (body.pid, body.creator, body.encoding) == ("", "0000-0000-0000-calculator", "JSON")
    assert found["is_alive"] is True
    assert abs(found["sync_time"] / 1000 - time.time()) < 60


def test_a_killed_task_is_given_up_and_the_calculator_lives(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        calculator = stage.calculator("--work-seconds", "600")
        com, tech = stage.socket(zmq.PUSH, "com_in"), stage.socket(zmq.PUSH, "tech_in")
        answers = stage.socket(zmq.SUB, "com_out", b"")
        limit = time.monotonic() + LIMIT_S
        # Task and kill again and again: a subscription that has not arrived yet misses either. So a task may come more
        # than once, and each must be killed before the calculator takes the next one.
        for names in (("first",), ("first", "second")):
            name = names[-1]
            while time.monotonic() < limit:
                com.send_multipart(task(name, "config", b'{"first":1,"second":1,"action":"+"}'))
                for each in names:
                    tech.send_multipart(task("kill", "config", json.dumps({"task_id": each}).encode(), "kill"))
                if calculator.heard(f"{name}: killed", 0.2):
                    break
            else:
                raise AssertionError("no task was killed:\n" + "\n".join(calculator.said))
        errors: list[Body] = []
        while not any(body.pid == "second" for body in errors):
            body = body_of(answers.recv_multipart())
            assert body.type != "result"
            errors += [body] if body.type == "error" else []
        assert {(body.spec, json.loads(body.data)["code"]) for body in errors} == {("error", 301)}
        assert calculator.end() == 0


def test_calculators_behind_the_controller_share_the_tasks(tmp_path: Path) -> None:
    """Each task is answered once, and by whoever is free: none has to wait behind the one that is busy."""
    with staged(tmp_path) as stage:
        results = stage.socket(zmq.SUB, "com_out", b"result:example_calculator:")
        calculators = [
            stage.calculator("--controller-port"),
            stage.calculator("--controller-port", "--work-seconds", "600"),
        ]
        push = stage.socket(zmq.PUSH, "com_in")
        ids = {f"task-{number}" for number in range(20)}
        for name in sorted(ids):
            push.send_multipart(task(name, "config", b'{"first":6,"second":5.0,"action":"/"}'))
        answered = [body_of(results.recv_multipart()).pid for _ in range(len(ids) - 1)]
        assert len(set(answered)) == len(ids) - 1
        # The slow one holds the last; when it goes away, the other gets it.
        calculators[1].process.kill()
        answered.append(body_of(results.recv_multipart()).pid)
        assert set(answered) == ids
        assert calculators[0].end() == 0


def test_a_config_that_cannot_be_used_is_named(stage: Stage) -> None:
    (stage.folder / "broken.json").write_text('{"deploy": {}}', encoding="utf-8")
    calculator = stage.program(str(EXAMPLES / "calculator" / "calculator.py"), "-f", "broken.json")
    calculator.until(lambda line: "broken.json cannot be used: KeyError('monique')" in line)
    assert calculator.process.wait(LIMIT_S) == 2
