"""The Etzel door: JSON over WebSocket (docs/protocols/etzel.md).

``connection`` takes requests and says replies, ``frames`` has the replies as bytes, ``sleepers`` knows who is to be
woken, ``holding`` keeps fetches back from a client that does not read, and ``door`` is what the server opens.
"""

from __future__ import annotations

from penstock.doors.etzel.connection import EtzelConnection
from penstock.doors.etzel.door import EtzelDoor
from penstock.doors.etzel.sleepers import Sleepers

__all__ = ["EtzelConnection", "EtzelDoor", "Sleepers"]
