"""Penstock: a durable, replicated priority task queue that speaks the protocols of existing systems.

    import penstock

    with penstock.connect_sync() as client:
        client.queue("emails").put("hello", key=5)

The names of the SDK (``penstock.client``) are found here too; they are loaded when first used, so that programs that
need only a part of the package start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.client import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        client = import_module("penstock.client")
        if name in client.__all__:
            return getattr(client, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
