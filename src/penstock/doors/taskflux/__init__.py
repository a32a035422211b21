"""The TaskFlux door: existing TaskFlux clients, in every dialect, and the way in to our own protocol.

``connection`` leads the conversation: what may come when, and what it waits for. ``translation`` turns the engine's
answers into the protocol's words, and the protocol's parameters into the engine's. ``door`` is what the server opens.
"""

from __future__ import annotations

from penstock.doors.taskflux.connection import Addresses, TaskFluxConnection
from penstock.doors.taskflux.door import TaskFluxDoor

__all__ = ["Addresses", "TaskFluxConnection", "TaskFluxDoor"]
