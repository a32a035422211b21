"""From what came in to commands for the log: the rules of MoniQue's scheduler.

    com   the tag is checked, `allow-messages` is asked, the body stays as it is
    tech  the body is read and written anew, and the tag follows from it; a kill puts the error 301 on com before itself

One message is one `Broadcast`; its expiry is taken from the body where that can be read.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from penstock.doors.monique.errors import KillsNobody, MessageTooLong, SpecNotAllowed
from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.journal import DOOR_MONIQUE
from penstock.wire.monique.bodies import (
    Body,
    Monitoring,
    decode_body,
    encode_body,
    killed_body,
    monitoring_body,
    peek_expires_at_ms,
)
from penstock.wire.monique.tags import ID_ALPHABET, ID_LENGTH, Dialect, Tag, legacy_id, parse_tag

COM: Final = 0
TECH: Final = 1
PACKED: Final = 2
"""Added to the channel of a message whose tag came packed, as legacy components send it, and must go out so."""

_KILL: Final = "kill"


def new_id() -> str:
    """A fresh id of the current form."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))


class Rules:
    """What may be published, and as what. All methods raise a MoniqueError for what may not."""

    def __init__(self, allowed_specs: frozenset[str], payload_bytes_max: int) -> None:
        self._allowed_specs = allowed_specs
        self._payload_bytes_max = payload_bytes_max

    def com(self, tag: bytes, body: bytes, owner: int, packed: int = 0) -> Command:
        """A message on the com channel."""
        fields = parse_tag(tag)
        if self._allowed_specs and fields.spec not in self._allowed_specs:
            raise SpecNotAllowed(fields.spec)
        return self._opaque(COM | packed, tag, body, fields, owner)

    def as_it_is(self, channel: int, tag: bytes, body: bytes, owner: int) -> Command:
        """A message to which no rules apply but that its tag is one and its body fits."""
        return self._opaque(channel, tag, body, parse_tag(tag), owner)

    def _opaque(self, channel: int, tag: bytes, body: bytes, fields: Tag, owner: int) -> Command:
        if len(body) > self._payload_bytes_max:
            raise MessageTooLong(len(body), self._payload_bytes_max)
        return _broadcast(channel, tag, body, fields.spec, fields.type, peek_expires_at_ms(body), owner)

    def tech(self, tag: bytes, body: bytes, owner: int, now_ms: int, packed: int = 0) -> list[Command]:
        """What a message on the technical channel becomes, in the order in which it is to be published."""
        if len(body) > self._payload_bytes_max:
            raise MessageTooLong(len(body), self._payload_bytes_max)
        fields = parse_tag(tag)
        read = decode_body(body)
        commands = [_of_body(TECH | packed, read, owner)]
        if fields.spec == _KILL:
            commands.insert(0, _of_body(COM | packed, _killed(read, now_ms), owner))
        return commands

    def alive(self, name: str, creator: str, owner: int, now_ms: int) -> Command:
        """The message by which a part of MoniQue says that it lives."""
        return _of_body(TECH, monitoring_body(Monitoring(now_ms, name, True, ""), id=new_id(), creator=creator), owner)


def _killed(kill: Body, now_ms: int) -> Body:
    """The error that tells everybody that a task was killed, in the dialect of the kill."""
    legacy = kill.dialect is Dialect.LEGACY
    error = killed_body(kill, id=legacy_id(kill.creator, now_ms, "error") if legacy else new_id(), created_at_ms=now_ms)
    if not error.pid:
        raise KillsNobody
    return msgspec.structs.replace(error, dialect=kill.dialect)


def _of_body(channel: int, body: Body, owner: int) -> Command:
    return _broadcast(channel, body.tag.encode(), encode_body(body), body.spec, body.type, body.expires_at_ms, owner)


def _broadcast(channel: int, tag: bytes, body: bytes, spec: str, type: str, expires_at_ms: int, owner: int) -> Command:
    expires_at_us = min(expires_at_ms * 1000, c.INT64_MAX) if expires_at_ms > 0 else 0
    args = c.Broadcast(channel, tag, body, spec, type, expires_at_us)
    return Command(c.BROADCAST, DOOR_MONIQUE, owner, 0, 0, c.encode(args), args)
