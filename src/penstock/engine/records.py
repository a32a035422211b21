"""The whole data model of a queue's content.

Records are values: a change makes a new record in the old one's slot. That is what lets a snapshot be written while the
service goes on (``chunks``), and what makes a reference in the order of ready records safe to keep.

None of these structs is tracked by the garbage collector, so none may ever be part of a cycle: a lease names its owner
by number. To change what is kept of a record: add a field at the end of ``Extras`` with a default that means what its
absence meant, and raise ``snapshot.VERSION`` if an older reader would misread it.

    delayed ──delay ends──▶ ready ──take──▶ leased ──ack──▶ (acked)
       ▲                    ▲  │              │
       └──── nack/release ──┼──┼──── return ──┘        ended: acked, expired, dead-lettered, deleted, purged, moved
              with delay    │  └── bury ──▶ buried
                            └──── kick ───────┘
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.engine.views import Origin

READY: Final = 0
DELAYED: Final = 1
LEASED: Final = 2
BURIED: Final = 3
FAILURE_OFFSET_BITS: Final = 32


class Tries(Struct, array_like=True, gc=False):
    """What a record has been through."""

    deliveries: int = 0
    failures: int = 0
    releases: int = 0
    timeouts: int = 0


class Lease(Struct, array_like=True, gc=False):
    """Who holds a record, and until when. Shared by all records of one take."""

    token: int
    """The position of the take: fences off whoever held the record before."""
    serial: int
    """The position of the take or extension that set the deadline: names the lease's group."""
    owner: int
    until_us: int
    """0: bound to its owner's connection, with no deadline."""
    to_tail: bool


class Extras(Struct, array_like=True, gc=False):
    """What only some records have. 0, empty and None mean: not set."""

    available_at_us: int = 0
    expires_at_us: int = 0
    lease_ms: int = 0
    headers: bytes = b""
    dedup_key: str | None = None
    delay_to_tail: bool = False
    reason: int = 0
    """Why it was buried or dead-lettered, one of ``journal.REASONS``."""
    origin: Origin | None = None
    failure: str = ""
    """The text of its last failure. A nack sets it (also to nothing), a bury with a text sets it, a redrive forgets it;
    a dead letter and a record that was moved keep it."""
    shared: int = 0
    """The position of the topic message that this is a copy of, if there are several: copies share payload and headers,
    in memory and in a snapshot."""
    failure_at: int = 0
    """Where the text of the failure lies in the log: the entry, shifted by ``FAILURE_OFFSET_BITS``, and the offset in
    that entry. 0 where this is not known, because rules before 3 did not keep it."""


class Record(Struct, array_like=True, gc=False):
    """A message in a queue."""

    id: int
    key: int
    payload: bytes
    place: int
    """Its rank among records of equal key, drawn from the queue's counter when it is put."""
    published_us: int
    state: int = READY
    tries: Tries | None = None
    """None until the first delivery."""
    lease: Lease | None = None
    extras: Extras | None = None


class Location(Struct, array_like=True, gc=False):
    """Where an item's payload and headers lie in an entry, each as (offset, length)."""

    payload: tuple[int, int]
    headers: tuple[int, int]


def content_bytes(record: Record) -> int:
    """The parts of a record that may be long: what counts in the size of an answer, a page or a snapshot's block."""
    extras = record.extras
    return len(record.payload) + (0 if extras is None else len(extras.headers) + len(extras.failure))


NO_TRIES: Final = Tries()
FIRST_TRY: Final = Tries(1)
NO_EXTRAS: Final = Extras()
