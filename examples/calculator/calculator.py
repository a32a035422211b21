"""A component of MoniQue that calculates: a worker for messages `config:example_calculator`.

It needs pyzmq and msgspec, and nothing of Penstock: it talks to any scheduler of MoniQue, over ZeroMQ.

    PULL or SUB  ◀──  config:example_calculator:<id>:…      {"first": 6, "second": 5.0, "action": "/"}
    PUSH         ──▶  result:example_calculator:…:<id>:…    {"answer": 1.2}
                 ──▶  error:error:…:<id>:…                  {"code": 502, "message": "division by zero"}

Run a node (`make run`), then: python examples/calculator/calculator.py
Of several calculators each one answers every task. With --controller-port they share the tasks: the node is then
started with --monique-config examples/calculator/config.json, which has a controller for this spec.
"""

from __future__ import annotations

import argparse
import asyncio
import operator
import secrets
import signal
import string
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from msgspec import Struct

NAME = SPEC = "example_calculator"
ACTIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
UNREADABLE, INCORRECT_INPUT = 101, 502


class Message(Struct):
    """What stands behind a tag, packed as a map. Older components write both ids in binary, newer ones as text."""

    created_at: int
    creator: str
    data: bytes
    encoding: str
    expires_at: int
    id: Any
    pid: Any
    spec: str
    type: str

    def frames(self) -> list[bytes]:
        """Tag and body, as they travel."""
        tag = ":".join((self.type, self.spec, text(self.id), text(self.pid), self.creator))
        return [tag.encode(), msgspec.msgpack.encode(self)]


class Task(Struct):
    """The data of a task."""

    first: float
    second: float
    action: str


class Failed(Exception):
    """A task that has no result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Place(Struct):
    """Where the scheduler listens."""

    host: str
    comport: int
    techport: int


class Config(Struct):
    """What the calculator needs of config.json."""

    scheduler_in: Place
    scheduler_out: Place
    controller_host: str
    creator: str
    frequency_ms: int
    controller_port: int | None

    @staticmethod
    def read(path: Path) -> Config:
        """Read MoniQue's config.json."""
        found = msgspec.json.decode(path.read_bytes())
        deploy, own = found["deploy"]["monique"], found["params"][NAME]
        return Config(
            scheduler_in=msgspec.convert(deploy["scheduler-in"], Place),
            scheduler_out=msgspec.convert(deploy["scheduler-out"], Place),
            controller_host=deploy.get("controller", {}).get("host", "127.0.0.1"),
            creator=own["creator"],
            frequency_ms=own["frequency"],
            controller_port=own.get("port"),
        )


def text(value: Any) -> str:
    """An id of either form as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def now_ms() -> int:
    """The time as MoniQue writes it."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Forty random letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))


def calculate(data: bytes, encoding: str) -> tuple[str, bytes]:
    """A line that says what was done, and the data of the result, in the encoding of the task."""
    codec: Any = {"JSON": msgspec.json, "MessagePack": msgspec.msgpack}.get(encoding)
    if codec is None:
        raise Failed(UNREADABLE, f"unknown encoding {encoding!r}")
    try:
        task = codec.decode(data, type=Task)
    except msgspec.DecodeError as error:
        raise Failed(UNREADABLE, f"not a task: {error}") from error
    if task.action not in ACTIONS:
        raise Failed(INCORRECT_INPUT, f"unknown action {task.action!r}; known are {' '.join(ACTIONS)}")
    try:
        answer = ACTIONS[task.action](task.first, task.second)
    except ZeroDivisionError:
        raise Failed(INCORRECT_INPUT, "division by zero") from None
    return f"{task.first:g} {task.action} {task.second:g} = {answer:g}", codec.encode({"answer": answer})


class Calculator:
    """One component: answers one task at a time, says that it is alive, and gives up a task that is killed."""

    def __init__(self, config: Config, controller_port: int | None, work_s: float) -> None:
        self._config = config
        self._work_s = work_s
        context = zmq.asyncio.Context.instance()
        self._results = context.socket(zmq.PUSH)
        self._results.connect(f"tcp://{config.scheduler_in.host}:{config.scheduler_in.comport}")
        self._signs = context.socket(zmq.PUSH)
        self._signs.connect(f"tcp://{config.scheduler_in.host}:{config.scheduler_in.techport}")
        self._kills = context.socket(zmq.SUB)
        self._kills.connect(f"tcp://{config.scheduler_out.host}:{config.scheduler_out.techport}")
        self._kills.subscribe(b"config:kill:")
        if controller_port is not None:
            self._tasks = context.socket(zmq.PULL)
            self._tasks.connect(f"tcp://{config.controller_host}:{controller_port}")
        else:
            self._tasks = context.socket(zmq.SUB)
            self._tasks.connect(f"tcp://{config.scheduler_out.host}:{config.scheduler_out.comport}")
            self._tasks.subscribe(f"config:{SPEC}:".encode())
        self._current_id = ""
        self._working: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take_tasks())
                group.create_task(self._obey_kills())
                group.create_task(self._send_signs_of_life())
        finally:
            if self._working is not None:
                self._working.cancel()
            # What is still to be sent has a second to leave.
            zmq.asyncio.Context.instance().destroy(linger=1000)

    async def _take_tasks(self) -> None:
        while True:
            task = readable(await self._tasks.recv_multipart())
            # A topic is a prefix: some schedulers send what merely begins like it.
            if task is None or (task.type, task.spec) != ("config", SPEC):
                continue
            self._current_id = text(task.id)
            self._working = asyncio.create_task(self._answer(task))
            await asyncio.wait([self._working])
            self._current_id = ""
            if not self._working.cancelled():
                self._working.result()

    async def _answer(self, task: Message) -> None:
        try:
            await asyncio.sleep(self._work_s)
            said, data = calculate(task.data, task.encoding)
            answer = self._message("result", SPEC, data, encoding=task.encoding, parent=task)
        except Failed as failed:
            said = f"error {failed.code}: {failed}"
            data = msgspec.json.encode({"code": failed.code, "message": str(failed)})
            answer = self._message("error", "error", data, parent=task)
        await self._results.send_multipart(answer.frames())
        say(f"{text(task.id)}: {said}")

    async def _obey_kills(self) -> None:
        while True:
            kill = readable(await self._kills.recv_multipart())
            with suppress(msgspec.DecodeError, TypeError, KeyError):
                task_id = msgspec.json.decode(kill.data)["task_id"] if kill is not None else ""
                if task_id and task_id == self._current_id and self._working is not None:
                    # Who waits for this task has been told by the scheduler.
                    self._working.cancel()
                    say(f"{task_id}: killed")

    async def _send_signs_of_life(self) -> None:
        while True:
            await asyncio.sleep(self._config.frequency_ms / 1000)
            data = {"sync_time": now_ms(), "name": NAME, "is_alive": True, "message": ""}
            await self._signs.send_multipart(self._message("data", "monitoring", msgspec.json.encode(data)).frames())

    def _message(
        self, type: str, spec: str, data: bytes, *, encoding: str = "JSON", parent: Message | None = None
    ) -> Message:
        """A message of ours; an answer has its ids in the form of what it answers."""
        own_id = new_id()
        pid = parent.id if parent is not None else ""
        form = own_id.encode() if isinstance(pid, bytes) else own_id
        return Message(now_ms(), self._config.creator, data, encoding, 0, form, pid, spec, type)


def readable(frames: list[bytes]) -> Message | None:
    """The message in two frames; None if it is none, or not for our eyes."""
    try:
        _, body = frames
        return msgspec.msgpack.decode(body, type=Message)
    except (ValueError, msgspec.DecodeError):
        return None


def say(line: str) -> None:
    """Tell who watches."""
    print(line, flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A component of MoniQue that calculates.")
    default = Path(__file__).with_name("config.json")
    parser.add_argument("-f", "--config-file", type=Path, default=default, metavar="PATH", help="MoniQue's config.json")
    parser.add_argument(
        "--controller-port",
        type=int,
        nargs="?",
        const=0,
        metavar="N",
        help="take tasks from the controller, on this port or else on that of config.json",
    )
    parser.add_argument("--work-seconds", type=float, default=0, metavar="S", help="pretend that a task takes so long")
    return parser.parse_args()


async def main() -> int:
    """Work until SIGTERM or Ctrl-C."""
    given = arguments()
    try:
        config = Config.read(given.config_file)
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        print(f"{given.config_file} cannot be used: {error!r}", file=sys.stderr)
        return 2
    controller_port = config.controller_port if given.controller_port == 0 else given.controller_port
    if given.controller_port == 0 and controller_port is None:
        print(f"{given.config_file} has no params.{NAME}.port: name it with --controller-port N", file=sys.stderr)
        return 2
    running = asyncio.create_task(Calculator(config, controller_port, given.work_seconds).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    say(f"calculating for {SPEC}; Ctrl-C ends it")
    with suppress(asyncio.CancelledError):
        await running
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
