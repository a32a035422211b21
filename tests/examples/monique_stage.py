"""The stage for the examples of MoniQue: a node and a calculator as processes, on free ports, with a config.json."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zmq

from penstock.wire.monique.bodies import Body, decode_body, encode_body

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CALCULATOR = EXAMPLES / "calculator" / "calculator.py"
TESTER = EXAMPLES / "monique_tester" / "tester.py"
LIMIT_S = 30.0
_AGAIN_MS = 50


class Program:
    """A program that runs, and the lines that it says."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def type(self, line: str) -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def until(self, wanted: Callable[[str], bool], limit_s: float = LIMIT_S) -> str:
        """The next line that is wanted. Fails with all that was said if there is none."""
        limit = time.monotonic() + limit_s
        while (left_s := limit - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            if line is None:
                break
            self.said.append(line)
            if wanted(line):
                return line
        raise AssertionError("it did not say so:\n" + "\n".join(self.said))

    def heard(self, wanted: str, limit_s: float) -> bool:
        """Whether it says a line with these words in time."""
        try:
            self.until(lambda line: wanted in line, limit_s)
        except AssertionError:
            return False
        return True

    def end(self) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        """Make sure that it is gone."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


class Stage:
    """A node whose MoniQue door is open, its addresses, and a component of our own to look and meddle with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.json"
        self.ports = write_config(self.config)
        self.gateway = f"ws://127.0.0.1:{self.ports['gateway']}"
        self.programs: list[Program] = []
        """All that were started, in order."""
        self._stack = ExitStack()

    def program(self, *command: str) -> Program:
        """Start a program; it is gone when the stage is left."""
        started = Program([sys.executable, *command], self.folder)
        self._stack.callback(started.close)
        self.programs.append(started)
        return started

    def node(self) -> Program:
        """Start the node, and wait until it is ready."""
        places = ["--data-dir", str(self.folder / "data"), "--taskflux-port", "0", "--no-etzel"]
        node = self.program("-m", "penstock", "serve", *places, "--monique", "--monique-config", str(self.config))
        node.until(lambda line: line.endswith("is ready."))
        return node

    def calculator(self, *options: str) -> Program:
        """Start a calculator. It is on its way, no more: see `await_calculator`."""
        calculator = self.program(str(CALCULATOR), "-f", str(self.config), *options)
        calculator.until(lambda line: line.startswith("calculating"))
        return calculator

    def tester(self, commands: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Let the tester carry out commands from its standard input, to the end."""
        return subprocess.run(
            [sys.executable, str(TESTER), "--gateway", self.gateway, *options],
            input=commands,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.folder,
            check=False,
        )

    def socket(self, kind: int, port: str, topic: bytes = b"") -> zmq.Socket[bytes]:
        """A ZeroMQ socket of a component."""
        made: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self._stack.callback(made.close, 0)
        made.setsockopt(zmq.RCVTIMEO, int(LIMIT_S * 1000))
        if kind == zmq.SUB:
            made.subscribe(topic)
        made.connect(f"tcp://127.0.0.1:{self.ports[port]}")
        return made

    def await_calculator(self) -> None:
        """Push tasks until one is answered: nothing else shows that a ZeroMQ subscription has arrived."""
        results = self.socket(zmq.SUB, "com_out", b"result:example_calculator:")
        push = self.socket(zmq.PUSH, "com_in")
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            push.send_multipart(task("probe", "config", b'{"first":1,"second":1,"action":"+"}'))
            if results.poll(_AGAIN_MS):
                return
        raise AssertionError("no calculator answers")

    def close(self) -> None:
        """End all that was started, the last first."""
        self._stack.close()


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """A stage with a node on it."""
    stage = Stage(folder)
    try:
        stage.node()
        yield stage
    finally:
        stage.close()


def write_config(path: Path) -> dict[str, int]:
    """The calculator's config.json with other ports; what each is for."""
    names = ("com_in", "tech_in", "com_out", "tech_out", "gateway", "controller")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    config: dict[str, Any] = json.loads((EXAMPLES / "calculator" / "config.json").read_text(encoding="utf-8"))
    deploy, params = config["deploy"]["monique"], config["params"]
    del deploy["scheduler-in-logic"], deploy["scheduler-logic-out"]
    deploy["scheduler-in"].update(comport=ports["com_in"], techport=ports["tech_in"])
    deploy["scheduler-out"].update(comport=ports["com_out"], techport=ports["tech_out"])
    deploy["websocket"]["port"] = ports["gateway"]
    params["mq_controller"]["connections"]["example_calculator"] = ports["controller"]
    params["example_calculator"].update(port=ports["controller"], frequency=50)
    path.write_text(json.dumps(config), encoding="utf-8")
    return ports


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def task(id: str, type: str, data: bytes, spec: str = "example_calculator") -> list[bytes]:
    """The two frames of a message of ours."""
    body = Body(type=type, spec=spec, id=id, creator="test", created_at_ms=1, data=data)
    return [body.tag.encode(), encode_body(body)]


def body_of(frames: list[bytes]) -> Body:
    """The body in two frames, whose tag must be the body's."""
    tag, data = frames
    body = decode_body(data)
    assert tag == body.tag.encode()
    return body
