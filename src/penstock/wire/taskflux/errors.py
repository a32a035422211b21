"""Errors of the TaskFlux codec.

    TaskFluxError
    ├── ProtocolError                    the peer broke the protocol: close the connection
    │   ├── UnknownMarker                a packet begins with a byte that no packet has
    │   ├── UnexpectedPacket             a known packet at a moment when it is not allowed
    │   ├── UnknownCommand               a command, response or policy body begins with an unknown code
    │   ├── UnknownAuthorizationMethod   the client asks for a way to authenticate that does not exist
    │   ├── NegativeLength               a length or a count below zero
    │   ├── FieldTooLong                 a length or a count above the limit
    │   │   └── PayloadTooLong           the same for the payload of a record
    │   └── MalformedBody                a body ends too early, too late, or holds broken text
    └── UsageError                       our own side asked for something that cannot be said
        ├── NotInDialect                 the message has no form in the connection's dialect
        └── FieldOutOfRange              a value does not fit its field

Every error has a stable `code` and carries its data as attributes. A ProtocolError leaves the connection object dead:
it raises the same error again and takes no more data.
"""

from __future__ import annotations

from typing import ClassVar


class TaskFluxError(Exception):
    """Root of all errors of this codec."""

    code: ClassVar[str] = "taskflux"


class ProtocolError(TaskFluxError):
    """The peer sent bytes that the protocol does not allow; the connection is of no further use."""

    code: ClassVar[str] = "taskflux-protocol"


class UnknownMarker(ProtocolError):
    """A packet begins with a byte that no packet of this side has."""

    code: ClassVar[str] = "taskflux-unknown-marker"

    def __init__(self, marker: int) -> None:
        super().__init__(f"no packet begins with byte 0x{marker:02x}")
        self.marker = marker


class UnexpectedPacket(ProtocolError):
    """A packet that exists came at a moment when the protocol wants another one."""

    code: ClassVar[str] = "taskflux-unexpected-packet"

    def __init__(self, marker: int, expected: str) -> None:
        super().__init__(f"packet 0x{marker:02x} came where {expected} was expected")
        self.marker = marker
        self.expected = expected


class UnknownCommand(ProtocolError):
    """A body begins with a code that does not name any command, response or policy."""

    code: ClassVar[str] = "taskflux-unknown-command"

    def __init__(self, kind: str, value: int) -> None:
        super().__init__(f"unknown {kind} code {value}")
        self.kind = kind
        self.value = value


class UnknownAuthorizationMethod(ProtocolError):
    """The client asks to be authorized in a way that the protocol does not have."""

    code: ClassVar[str] = "taskflux-unknown-authorization"

    def __init__(self, method: int) -> None:
        super().__init__(f"unknown authorization method 0x{method:02x}")
        self.method = method


class NegativeLength(ProtocolError):
    """A length or a count is below zero."""

    code: ClassVar[str] = "taskflux-negative-length"

    def __init__(self, field: str, length: int) -> None:
        super().__init__(f"{field} has the negative length {length}")
        self.field = field
        self.length = length


class FieldTooLong(ProtocolError):
    """A length or a count is above its limit; no memory was taken for it."""

    code: ClassVar[str] = "taskflux-field-too-long"

    def __init__(self, field: str, length: int, length_max: int) -> None:
        super().__init__(f"{field} has the length {length}, the limit is {length_max}")
        self.field = field
        self.length = length
        self.length_max = length_max


class PayloadTooLong(FieldTooLong):
    """The payload of a record is above the limit."""

    code: ClassVar[str] = "taskflux-payload-too-long"

    def __init__(self, length: int, length_max: int) -> None:
        super().__init__("payload", length, length_max)


class MalformedBody(ProtocolError):
    """A body does not have the form that its first byte promises."""

    code: ClassVar[str] = "taskflux-malformed-body"

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at offset {offset})")
        self.reason = reason
        self.offset = offset


class UsageError(TaskFluxError):
    """Our own side asked the codec for something that it cannot say."""

    code: ClassVar[str] = "taskflux-usage"


class NotInDialect(UsageError):
    """A message has no form in the dialect of the connection."""

    code: ClassVar[str] = "taskflux-not-in-dialect"

    def __init__(self, message: str, dialect: str) -> None:
        super().__init__(f"{message} cannot be said in dialect {dialect}")
        self.message = message
        self.dialect = dialect


class FieldOutOfRange(UsageError):
    """A value does not fit the field that it has to go into."""

    code: ClassVar[str] = "taskflux-field-out-of-range"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(f"{message}: {reason}")
        self.message = message
        self.reason = reason
