"""File descriptors: every connection needs one, and so do the files of the log.

A node that has none left cannot open the next file of its log and has to end. So the limit of connections leaves some
for everything else.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

KEPT: Final = 192
"""Descriptors for storage, listeners, ZeroMQ's own sockets, and connections that are about to be refused."""


def connections_allowed(connections_max: int) -> int:
    """How many connections the system's limit of descriptors allows, at most ``connections_max``.

    Raises the limit of this process as far as it may. If that is not enough, a warning names both limits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections_max
    needed = connections_max + KEPT
    if soft < needed and (hard == resource.RLIM_INFINITY or hard > soft):
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as problem:
            log.warning("the limit of file descriptors stays at %d: %s", soft, problem)
    if soft >= needed:
        return connections_max
    allowed = max(soft - KEPT, soft // 4, 1)
    log.warning(
        "limits.connections is %d, but the system allows %d open files: at most %d connections are accepted; "
        "raise the limit with `ulimit -n %d` or LimitNOFILE=%d",
        *(connections_max, soft, allowed, needed, needed),
    )
    return allowed
