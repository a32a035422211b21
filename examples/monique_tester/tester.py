"""Talks to a WebSocket gateway of MoniQue from the command line, and shows every frame in words and in hex.

It needs websockets and msgspec, and nothing of Penstock. Commands are read from standard input, one per line, so that a
person or a program can give them. Run a node (`make run`) and examples/calculator/calculator.py, then:

    python examples/monique_tester/tester.py
    > subscribe * *
    > push example_calculator config JSON calculator.json
    > quit
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import inspect
import secrets
import shlex
import string
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

HELP = """\
help                             this list
ping                             is the gateway there?
subscribe SPEC TYPE ...          receive what has this spec and type; * stands for any
unsubscribe SPEC TYPE ...        take that very pair back
push SPEC TYPE ENCODING FILE     publish a message with the file's text as its data;
                                 TYPE: config, result, error or data; ENCODING: JSON or MessagePack (packed from JSON)
wait TYPE [SECONDS]              wait for a message of this type that answers the last push (10 seconds)
quit                             end, as the end of input does
for instance: push example_calculator config JSON calculator.json"""
ANSWER_WAIT_S = 10.0
ANSWERS = ("pong", "subscribed", "unsubscribed", "pushed_to_mq")


class Mistake(Exception):
    """A command that cannot be carried out; the text says why."""


class Tester:
    """One connection to a gateway, and what is known about it."""

    def __init__(self, connection: ClientConnection, given: argparse.Namespace) -> None:
        self._connection = connection
        self._creator: str = given.creator
        self._legacy: bool = given.legacy
        self._hex: bool = given.hex
        self._unanswered = 0
        self._last_pushed_id = ""
        self._answered_by: set[str] = set()
        """Types of messages that came as answers to the last push."""
        self._changed = asyncio.Condition()
        self._commands: dict[str, Callable[..., Awaitable[None]]] = {
            "help": self.help,
            "ping": self.ping,
            "subscribe": self.subscribe,
            "unsubscribe": self.unsubscribe,
            "push": self.push,
            "wait": self.wait,
        }

    # Commands.

    async def execute(self, line: str) -> bool:
        """Carry out one line; False if it was the last."""
        try:
            name, *words = shlex.split(line, comments=True) or [""]
        except ValueError as error:
            raise Mistake(f"cannot be read: {error}") from None
        if name in ("quit", "exit"):
            return False
        if name:
            command = self._commands.get(name)
            if command is None:
                raise Mistake(f"unknown command {name!r}; 'help' lists all")
            try:
                inspect.signature(command).bind(*words)
            except TypeError as error:
                raise Mistake(f"{error}; 'help' tells how it is used") from None
            await command(*words)
        return True

    async def help(self) -> None:
        """List all commands."""
        print(HELP)

    async def ping(self) -> None:
        """Ask for a sign of life; the number is the time in nanoseconds."""
        await self._send("ping", time.time_ns())

    async def subscribe(self, *words: str) -> None:
        """Ask for messages."""
        await self._send("subscribe", patterns(words))

    async def unsubscribe(self, *words: str) -> None:
        """Ask for no more of them."""
        await self._send("unsubscribe", patterns(words))

    async def push(self, spec: str, type: str, encoding: str, file: str) -> None:
        """Publish a message."""
        created_at_ms = time.time_ns() // 1_000_000
        own_id = self._new_id(created_at_ms, spec)
        form: Callable[[str], str | bytes] = str.encode if self._legacy else str
        message = {
            "created_at": created_at_ms,
            "creator": self._creator,
            "data": read_data(file, encoding),
            "encoding": encoding,
            "expires_at": 0,
            "id": form(own_id),
            "pid": form(""),
            "spec": spec,
            "type": type,
        }
        tag = f"{type}:{spec}:{own_id}::{self._creator}"
        self._last_pushed_id = own_id
        self._answered_by.clear()
        await self._send("push_to_mq", {"message": msgspec.msgpack.encode(message), "tag": form(tag)})

    async def wait(self, type: str, seconds: str = str(ANSWER_WAIT_S)) -> None:
        """Wait for the answer to the last push."""
        try:
            await self._wait_until(lambda: type in self._answered_by, float(seconds))
        except TimeoutError:
            raise Mistake(f"no {type} with the pid {self._last_pushed_id!r} came in {seconds} s") from None
        except ValueError:
            raise Mistake(f"{seconds!r} is not a number of seconds") from None

    async def finish(self) -> None:
        """Wait until every request is answered."""
        try:
            await self._wait_until(lambda: self._unanswered <= 0, ANSWER_WAIT_S)
        except TimeoutError:
            raise Mistake(f"{self._unanswered} requests were not answered") from None

    def _new_id(self, created_at_ms: int, spec: str) -> str:
        if self._legacy:
            digest = hashlib.sha1(f"{self._creator}:{created_at_ms}:{spec}".encode(), usedforsecurity=False).digest()
            return base64.b64encode(digest).decode()
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))

    # Frames.

    async def _send(self, command: str, data: Any) -> None:
        frame = msgspec.msgpack.encode({"command": command, "data": data})
        self._show("→", frame)
        self._unanswered += 1
        await self._connection.send(frame)

    async def receive(self) -> None:
        """Show all that comes, until the gateway closes the connection."""
        # As bytes whatever kind of frame it is: the first gateway sends packed messages as text.
        while True:
            frame = await self._connection.recv(decode=False)
            found = self._show("←", frame)
            async with self._changed:
                if found.get("command") in ANSWERS or "error" in found:
                    self._unanswered -= 1
                elif found.get("command") == "pushed_from_mq":
                    fields = tag_text(found["data"]["tag"]).split(":")
                    if fields[3] == self._last_pushed_id:
                        self._answered_by.add(fields[0])
                self._changed.notify_all()

    async def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    def _show(self, arrow: str, frame: bytes) -> dict[str, Any]:
        try:
            found = msgspec.msgpack.decode(frame, type=dict[str, Any])
            lines = describe(found)
        except (ValueError, KeyError, TypeError) as error:
            found, lines = {}, [f"what is not understood: {error}"]
        print(f"{arrow} {lines[0]}")
        for line in lines[1:]:
            print(f"    {line}")
        if self._hex:
            print(f"    {frame.hex(' ')}")
        sys.stdout.flush()
        return found


def patterns(words: tuple[str, ...]) -> list[dict[str, str]]:
    """Pairs of spec and type."""
    if not words or len(words) % 2:
        raise Mistake("needs a spec and a type, or several such pairs")
    return [{"spec": words[at], "type": words[at + 1]} for at in range(0, len(words), 2)]


def read_data(file: str, encoding: str) -> bytes:
    """A file's text as the data of a message. It is looked for here, then beside this program."""
    for path in (Path(file), Path(__file__).parent / file):
        if path.is_file():
            break
    else:
        raise Mistake(f"there is no file {file!r}")
    try:
        data = path.read_bytes()
        return msgspec.msgpack.encode(msgspec.json.decode(data)) if encoding == "MessagePack" else data
    except (OSError, msgspec.DecodeError) as error:
        raise Mistake(f"{file!r} cannot be used: {error}") from None


def tag_text(tag: str | bytes) -> str:
    """A tag of either form. The older gateway's is binary, and packed twice where it comes from the queue."""
    if isinstance(tag, bytes):
        with suppress(msgspec.DecodeError):
            tag = msgspec.msgpack.decode(tag, type=bytes)
        return tag.decode("utf-8", "replace")
    return tag


def describe(found: dict[str, Any]) -> list[str]:
    """A frame in words: its command, then what it carries."""
    if "error" in found:
        return [f"error: {found['error']}"]
    command, data = found["command"], found["data"]
    if command in ("push_to_mq", "pushed_from_mq"):
        return [f"{command} {tag_text(data['tag'])}", describe_message(data["message"])]
    if command == "pushed_to_mq":
        return [f"{command} {tag_text(data)}"]
    if isinstance(data, list):
        return [" ".join([command, *(f"{each['spec']} {each['type']}" for each in data)])]
    return [f"{command} {data}"]


def describe_message(message: bytes) -> str:
    """What a message carries, as text; encrypted ones are only measured."""
    try:
        body = msgspec.msgpack.decode(message)
        data = body["data"]
        if body["encoding"] == "MessagePack":
            data = msgspec.json.encode(msgspec.msgpack.decode(data))
        return str(data, "utf-8").strip()
    except (ValueError, KeyError, TypeError):
        return f"{len(message)} bytes that cannot be read"


def lines_of_input() -> asyncio.Queue[str | None]:
    """The lines of standard input as they come, then None. A thread reads them: input may be a file, too."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, name="input", daemon=True).start()
    return lines


async def converse(tester: Tester) -> int:
    """Carry out command after command. A program's mistake ends it; a person may try again."""
    person = sys.stdin.isatty()
    lines = lines_of_input()
    going_on = True
    while going_on:
        if person:
            print("> ", end="", flush=True)
        line = await lines.get()
        try:
            if line is None:
                break
            going_on = await tester.execute(line)
        except Mistake as mistake:
            print(f"{(line or '').strip()}: {mistake}", file=sys.stderr)
            if not person:
                return 1
    await tester.finish()
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Talk to a WebSocket gateway of MoniQue.", epilog="Commands: " + HELP)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--gateway", default="ws://127.0.0.1:9160", metavar="URL", help="default: %(default)s")
    parser.add_argument("--creator", default="0000-0000-0000-websocket-tester", metavar="NAME", help="who we are")
    parser.add_argument("--legacy", action="store_true", help="write tags and ids as gateways before 0.1.2.3 want them")
    parser.add_argument("--no-hex", dest="hex", action="store_false", help="words only")
    return parser.parse_args()


async def main() -> int:
    """Connect and converse. Returns the exit code."""
    given = arguments()
    try:
        # The first gateway admits nobody without this cookie.
        connection = await connect(given.gateway, additional_headers={"Cookie": "id=tester"}, compression=None)
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
        print(f"no gateway at {given.gateway}: {error}", file=sys.stderr)
        return 1
    async with connection:
        tester = Tester(connection, given)
        receiving = asyncio.create_task(tester.receive())
        conversing = asyncio.create_task(converse(tester))
        await asyncio.wait([receiving, conversing], return_when=asyncio.FIRST_COMPLETED)
        try:
            if not conversing.done():
                receiving.result()
            return conversing.result()
        except ConnectionClosed as closed:
            print(f"the gateway closed the connection: {closed}", file=sys.stderr)
        except Mistake as mistake:
            print(mistake, file=sys.stderr)
        finally:
            receiving.cancel()
            conversing.cancel()
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
