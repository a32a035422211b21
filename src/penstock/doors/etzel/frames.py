"""What the Etzel door says, as whole WebSocket frames. Those that repeat are built once."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from penstock.doors.websocket import server_frame
from penstock.engine import errors as e
from penstock.wire.etzel import Nok, encode_reply, message
from penstock.wire.etzel.replies import (
    Acknowledged,
    Awake,
    NoMessage,
    Published,
    Refused,
    Reply,
    Sleeping,
    Subscribed,
)

AboutQueue: TypeAlias = type[Subscribed] | type[NoMessage] | type[Sleeping] | type[Awake]
"""Replies that say no more than the name of a queue."""

_NOKS: Final[dict[int, Nok]] = {
    **{code: Nok[name] for code, name in e.NAMES.items() if name in Nok.__members__},
    e.NO_SUCH_QUEUE: Nok.Q_NOT_FOUND,
    e.BAD_QUEUE_NAME: Nok.BAD_QNAME,
}
"""How each refusal of the engine and the node is said here: by its own name where Etzel has no word for it."""


def frame_of(reply: Reply) -> bytes:
    """A reply as a frame."""
    return server_frame(encode_reply(reply), text=True)


# Queues are few beside messages; names are short, so even a full cache is small.
@lru_cache(maxsize=4096)
def queue_frame(kind: AboutQueue, qname: str) -> bytes:
    """A reply that names a queue and nothing else."""
    return frame_of(kind(qname))


def message_frame(qname: str, uid: str, error_count: int, payload: bytes) -> bytes:
    """The reply that carries a message."""
    return frame_of(message(qname, uid, error_count, payload))


def acknowledged_frame(uid: str, qname: str) -> bytes:
    """The reply to ACK and DEL."""
    return frame_of(Acknowledged(uid, qname))


def published_frame(uid: str) -> bytes:
    """The reply to a PUB that asked for the uid."""
    return frame_of(Published(uid))


PUBLISHED: Final = frame_of(Published())
_REFUSED: Final[dict[Nok, bytes]] = {nok: frame_of(Refused(nok)) for nok in Nok}


def nok_frame(nok: Nok) -> bytes:
    """The reply to a request that was refused."""
    return _REFUSED[nok]


def refusal_frame(code: int) -> bytes:
    """The reply to a command that the engine or the node refused; what has no word here is a bad request."""
    return _REFUSED[_NOKS.get(code, Nok.BAD_REQUEST)]
