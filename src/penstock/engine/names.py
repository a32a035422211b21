"""Queue names: which byte strings may name a queue.

A name has 0 to 255 bytes, each in 33 (``!``) .. 126 (``~``). The empty name is the default queue, which always exists.
"""

from __future__ import annotations

import re

DEFAULT_QUEUE = ""
NAME_BYTES_MAX = 255

_VALID = re.compile(r"[!-~]{0,255}\Z").match


def is_queue_name(name: str) -> bool:
    """Tell whether ``name`` may name a queue."""
    return _VALID(name) is not None
