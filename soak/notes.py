"""The client's own file: what it sent, and what was acknowledged to it. It survives the node, so it is never synced.

A note is written *before* what it announces is sent, and *after* what it confirms was received; so the order of the
notes of all connections is one in which things can have happened.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_NOTE: Final = struct.Struct("<cBHIqI")

PUTS_SENT: Final = b"S"
"""Messages from `number` on, `value` of them, are about to be sent."""
PUT: Final = b"P"
"""A put was acknowledged."""
PUT_REFUSED: Final = b"R"
"""A put was refused with code `value`."""
TAKEN: Final = b"T"
"""A record was received under a lease that is bound to the connection; `value` is its count of deliveries."""
TAKEN_FOR_A_TIME: Final = b"t"
"""A record was received under a lease with a deadline."""
ACK_SENT: Final = b"a"
"""A record is about to be acknowledged; in this note and its answer, `value` is 1 if its lease is bound."""
ACKED: Final = b"A"
ACK_LOST: Final = b"x"
"""An acknowledgement was answered: the lease is lost."""
RETURN_SENT: Final = b"n"
RETURNED: Final = b"N"
RETURN_LOST: Final = b"y"
CLOSING: Final = b"C"
"""The connection is about to be closed by its client."""
LIFE_ENDED: Final = b"E"
"""The node was killed, and all connections have noticed."""


class Note(NamedTuple):
    """One line of the file."""

    kind: bytes
    worker: int
    producer: int
    number: int
    id: int
    value: int


class Notebook:
    """The file, written by all connections."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._read_to = 0
        self._end = 0

    def write(self, notes: Sequence[tuple[bytes, int, int, int, int, int]]) -> None:
        """Add notes, in one piece."""
        data = b"".join([_NOTE.pack(*note) for note in notes])
        with self._lock:
            self._file.write(data)
            self._end += len(data)

    def unread(self) -> Iterator[Note]:
        """The notes since the last time, read back from the file."""
        with self._lock:
            end = self._end
        with self._path.open("rb") as reading:
            while self._read_to < end:
                reading.seek(self._read_to)
                data = reading.read(min(end - self._read_to, _NOTE.size * 50_000))
                self._read_to += len(data)
                yield from map(Note._make, _NOTE.iter_unpack(data))

    def forget_read(self) -> None:
        """Drop what was read, while nobody writes: a long run must not fill the disk."""
        assert self._read_to == self._end, "something was not read yet"
        self._file.truncate(0)
        self._read_to = self._end = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
