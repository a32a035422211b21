"""The TaskFlux door: existing TaskFlux clients, in every dialect, and the way in to our own protocol.

``connection`` leads the conversation: what may come when, and what it waits for. ``translation`` turns the engine's
answers into the protocol's words, and the protocol's parameters into the engine's.
"""

from __future__ import annotations

from penstock.doors.taskflux.connection import Addresses, TaskFluxConnection

__all__ = ["Addresses", "TaskFluxConnection"]
