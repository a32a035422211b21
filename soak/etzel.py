"""Redelivery of Etzel's messages by the clock on the wall: `python -m soak --etzel-minute`.

Tests put a clock forward; here the time passes. A message is fetched and not acknowledged, and must come back when its
timeout is over, not before and not late: with the same uid, its delivery counted, and its sleeper woken. What was
acknowledged must not come back, and wakes nobody. Two nodes go through this side by side:

    steady    lives on
    killed    is killed when half of the time is over, and started again
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from soak.process import ROOT, START_S_MAX, ServedFailed

TIMEOUT_S: Final = 60
EARLY_S_MAX: Final = 0.25
"""The lease begins when the fetch is committed, which is a moment before its reply is read."""
LATE_S_MAX: Final = 2.0
"""For a machine that is busy with other things."""
_QUEUE: Final = "minute"
_REPLY_S_MAX: Final = 10.0

Say = Callable[[str], None]
Frame = dict[str, Any]


@dataclass(slots=True)
class Story:
    """What one node was seen to do."""

    name: str
    say: Say
    timeout_s: float
    violations: list[str] = field(default_factory=list)
    back_after_s: float = 0.0

    def tell(self, sentence: str) -> None:
        """Say how far it is."""
        self.say(f"{self.name}: {sentence}")

    def expect(self, what: str, seen: object, wanted: object) -> None:
        """Note it if something is not as it should be."""
        if seen != wanted:
            self.violations.append(f"{self.name}: {what}: {seen!r} instead of {wanted!r}")

    def came_back(self, after_s: float) -> None:
        """Note when the message came back, counted from the reply to its fetch."""
        self.back_after_s = after_s
        self.tell(f"woken {after_s:.3f} s after the fetch")
        if not self.timeout_s - EARLY_S_MAX <= after_s <= self.timeout_s + LATE_S_MAX:
            self.violations.append(f"{self.name}: it came back after {after_s:.3f} s instead of {self.timeout_s:g}")


class Peer:
    """One connection of a client."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def ask(self, cmd: str, **fields: object) -> Frame:
        """Send a request about the queue; the next frame that comes."""
        await self._connection.send(json.dumps({"cmd": cmd, "qname": _QUEUE, **fields}))
        return await self.receive(_REPLY_S_MAX)

    async def receive(self, patience_s: float) -> Frame:
        """The next frame."""
        frame: Frame = json.loads(await asyncio.wait_for(self._connection.recv(), patience_s))
        return frame

    async def is_silent_for(self, duration_s: float) -> bool:
        """Whether nothing comes for so long."""
        try:
            await self.receive(max(0.0, duration_s))
        except TimeoutError:
            return True
        return False


@contextlib.asynccontextmanager
async def serving(data_dir: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A node as users start it, and the address of its Etzel door; killed at the end."""
    doors = ["--taskflux-port", "0", "--etzel", "--etzel-port", "0", "--no-monique"]
    errors_path = data_dir.with_suffix(".errors")
    with errors_path.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", "serve", "--data-dir", str(data_dir), *doors),
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        address = ""
        async with asyncio.timeout(START_S_MAX):
            while not (line := (await process.stdout.readline()).decode()).rstrip().endswith("is ready."):
                if not line:
                    raise ServedFailed("the node ended before it was ready", errors_path.read_text(errors="replace"))
                if line.startswith("etzel "):
                    address = line.split()[1]
        yield process, f"ws://{address}/connect"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def begin(story: Story, peer: Peer) -> tuple[str, float]:
    """Publish two messages, fetch both, acknowledge one; the uid of the other, and when it was fetched."""
    for text in ("acknowledged", "forgotten"):
        story.expect("PUB", await peer.ask("PUB", msg=text, timeout=story.timeout_s), {"cmd": "ok"})
    done = await peer.ask("FET")
    story.expect("the first fetched", done.get("msg"), "acknowledged")
    story.expect("ACK", (await peer.ask("ACK", uid=done.get("uid"))).get("cmd"), "okack")
    fetched = await peer.ask("FET")
    fetched_s = time.monotonic()
    story.expect("the second fetched", (fetched.get("msg"), fetched.get("error_count")), ("forgotten", 0))
    story.tell(f"fetched {fetched.get('uid')} and do not acknowledge it")
    return str(fetched.get("uid")), fetched_s


async def wait_for_return(story: Story, peer: Peer, uid: str, fetched_s: float) -> None:
    """Sleep until woken, look whether it is the same message, and acknowledge it at last."""
    if story.violations:
        return  # there is nothing to wait for
    story.expect("SUB", (await peer.ask("SUB")).get("cmd"), "oksub")
    story.expect("a fetch before its time", (await peer.ask("FET")).get("cmd"), "nomsg")
    story.expect("ISLP", (await peer.ask("ISLP")).get("cmd"), "okslp")
    left_s = fetched_s + story.timeout_s - time.monotonic()
    story.tell(f"asleep, {left_s:.1f} s are left")
    story.expect("the wake-up", await peer.receive(left_s + _REPLY_S_MAX), {"cmd": "awk", "qname": _QUEUE})
    story.came_back(time.monotonic() - fetched_s)
    again = await peer.ask("FET")
    seen = (again.get("msg"), again.get("uid"), again.get("error_count"))
    story.expect("what came back", seen, ("forgotten", uid, 1))
    story.expect("ACK", (await peer.ask("ACK", uid=uid)).get("cmd"), "okack")
    story.expect("a fetch after it all", (await peer.ask("FET")).get("cmd"), "nomsg")
    story.expect("ISLP", (await peer.ask("ISLP")).get("cmd"), "okslp")
    story.expect("silence for a second more", await peer.is_silent_for(1), True)


async def steady(story: Story, directory: Path) -> None:
    """The node lives on, and so does the worker's connection."""
    async with serving(directory / "steady") as (_, url), connect(url, proxy=None) as connection:
        peer = Peer(connection)
        await wait_for_return(story, peer, *await begin(story, peer))


async def killed(story: Story, directory: Path) -> None:
    """The node is killed half-way: its time goes on, and what was fetched comes back neither at once nor late."""
    async with serving(directory / "killed") as (process, url), connect(url, proxy=None) as connection:
        uid, fetched_s = await begin(story, Peer(connection))
        await asyncio.sleep(fetched_s + story.timeout_s / 2 - time.monotonic())
        process.kill()
        await process.wait()
        story.tell("the node is killed")
    async with serving(directory / "killed") as (_, url), connect(url, proxy=None) as connection:
        await wait_for_return(story, Peer(connection), uid, fetched_s)


async def _tell_both(directory: Path, say: Say, timeout_s: float) -> list[Story]:
    stories = [Story("steady", say, timeout_s), Story("killed", say, timeout_s)]
    outcomes = await asyncio.gather(
        *(play(story, directory) for play, story in zip((steady, killed), stories, strict=True)),
        return_exceptions=True,
    )
    for story, outcome in zip(stories, outcomes, strict=True):
        if isinstance(outcome, Exception):
            story.violations.append(f"{story.name}: {type(outcome).__name__}: {outcome}")
        elif outcome is not None:
            raise outcome
    return stories


def etzel_minute(directory: Path, say: Say, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Let the timeout pass in both nodes, with their files in `directory`; what must not be."""
    stories = asyncio.run(_tell_both(directory, say, timeout_s))
    return [violation for story in stories for violation in story.violations]
