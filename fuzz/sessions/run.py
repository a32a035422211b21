"""Sessions until enough inputs were sent; then the node must be well, stop, start again and still be well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from fuzz.sessions.clients import AT_A_TIME, play
from fuzz.sessions.health import check_health, wait_until_alone
from fuzz.sessions.scripts import make_script
from fuzz.sessions.serving import NodeFailed, ServedNode

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""What the node may need: its limit is a quarter of this."""
_CHECK_EVERY: Final = 2_000


def fuzz_sessions(directory: Path, inputs: int, seed: int, progress: Callable[[int], None] = lambda _sent: None) -> int:
    """Play random sessions against a node with files in ``directory``; returns how many inputs were sent.

    Raises ``NodeFailed`` or ``Unhealthy`` if the node does not bear it.
    """
    with ServedNode(directory) as node:
        sent = asyncio.run(_play_many(node, inputs, seed, progress))
        node.check()
        asyncio.run(wait_until_alone(node.url))
        asyncio.run(check_health(node.url))
        node.check()
        node.stop()
    with ServedNode(directory) as node:
        asyncio.run(check_health(node.url))
        node.check()
        node.stop()
    return sent


async def _play_many(node: ServedNode, inputs: int, seed: int, progress: Callable[[int], None]) -> int:
    random = Random(f"{seed} sessions")
    sent = checked = 0
    playing: set[asyncio.Task[int]] = set()
    try:
        while sent < inputs:
            while len(playing) < AT_A_TIME:
                script = make_script(Random(random.getrandbits(64)))
                playing.add(asyncio.create_task(play(script, node.ports[script.door])))
            done, playing = await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
            sent += sum(task.result() for task in done)
            progress(sent)
            if sent - checked >= _CHECK_EVERY:
                checked = sent
                node.check()
                if (needed := node.memory_bytes()) > MEMORY_BYTES_MAX:
                    raise NodeFailed(f"the node needs {needed:,} bytes of memory", node.errors())
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    return sent
