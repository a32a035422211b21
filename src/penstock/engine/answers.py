"""What the engine answers to each command; what is not listed answers ``Done``, and any may be refused.

Answers are MessagePack arrays on the native wire, and in the replicated memory of what each producer was told.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from penstock.engine import commands as c
from penstock.engine.errors import Refusal


class Done(Struct, array_like=True, gc=False):
    """It is done; ``count`` records (or other things) were touched."""

    count: int = 0


class Created(Struct, array_like=True, gc=False):
    """The queue is there; ``created`` is false where an equal one was."""

    uid: int
    created: bool


class PutAnswer(Struct, array_like=True, gc=False):
    """Accepted records have the ids ``first``, ``first + 1``, … in order; ``exceptions`` names the others by position.

    An exception is (position, code, id): code 0 is a duplicate of the record ``id``; else a code of ``errors``.
    """

    first: int
    count: int
    exceptions: list[tuple[int, int, int]] = []
    queue_uid: int = 0
    """The queue that they were put into: by the time of the answer its name may stand for another one."""


class PutManyAnswer(Struct, array_like=True, gc=False):
    """One ``PutAnswer`` per queue of the request, in its order; all records are accepted or duplicates."""

    puts: list[PutAnswer]


class Delivery(Struct, array_like=True, gc=False):
    """A record as a taker gets it."""

    id: int
    key: int
    payload: bytes
    deliveries: int
    published_us: int
    headers: bytes = b""
    lease_until_us: int = 0
    failure: str = ""
    """The text of its last failure."""


class Taken(Struct, array_like=True, gc=False):
    """Records leased under ``token``, in order; none where the queue had none."""

    token: int
    records: list[Delivery]
    queue_uid: int = 0
    """The queue that they are from: by the time of the answer its name may stand for another one."""


class Handled(Struct, array_like=True, gc=False):
    """How many leases were honoured, and the positions of those that are lost."""

    count: int
    lost: list[int] = []


class AckTaken(Struct, array_like=True, gc=False):
    """The answers to both halves of an ack-and-take."""

    acked: Handled
    taken: Taken


class JobStarted(Struct, array_like=True, gc=False):
    """A redrive has begun; ask for its progress by this number."""

    job: int


class Published(Struct, array_like=True, gc=False):
    """The batch is decided; ``fresh`` is false where it had been published before."""

    count: int
    fresh: bool


TYPES: Final[dict[int, type[Any]]] = {
    c.CREATE_QUEUE: Created,
    c.PUT: PutAnswer,
    c.PUT_MANY: PutManyAnswer,
    c.TAKE: Taken,
    c.ACK: Handled,
    c.ACK_TAKE: AckTaken,
    c.RETURN: Handled,
    c.EXTEND: Handled,
    c.BURY: Handled,
    c.MOVE: Handled,
    c.DELETE: Handled,
    c.REDRIVE: JobStarted,
    c.PUBLISH: Published,
}
"""The answer to each operation, where it is not ``Done``."""

Answer = Done | Created | PutAnswer | PutManyAnswer | Taken | Handled | AckTaken | JobStarted | Published | Refusal
