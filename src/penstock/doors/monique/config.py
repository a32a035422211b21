"""What follows from MoniQue's own config.json while the node runs: changed connections, and signs of life."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from penstock.doors.monique.publishing import Rules
from penstock.node.node import Node
from penstock.node.requests import NOBODY
from penstock.settings.errors import ConfigFileError
from penstock.settings.monique_config import Heartbeat, MoniqueConfig, read_monique_config

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
"""How often it is looked whether the file has changed; the original reads it once in a minute."""


class ConfigWatch:
    """Sees that a file has changed, and reads it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None

    def look(self) -> MoniqueConfig | None:
        """What the file says, if it has changed since the last look and can be read; else nothing."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen == self._seen:
                return None
            self._seen = seen
            return read_monique_config(self._path)
        except (OSError, ConfigFileError) as problem:
            log.warning("monique: what %s said before goes on to hold: %s", self._path, problem)
            return None


async def beat(node: Node, rules: Rules, heartbeat: Heartbeat) -> None:
    """Say on the technical channel that a part of MoniQue lives, as its own program would, for ever."""
    owner = node.new_owner()
    while True:
        await asyncio.sleep(heartbeat.frequency_ms / 1000)
        node.submit(rules.alive(heartbeat.name, heartbeat.creator, owner, node.clock.wall_us() // 1000), NOBODY, 0)
