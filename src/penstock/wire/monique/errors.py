"""Errors of the MoniQue codecs.

    MoniqueError
    ├── TagError                   201: the tag cannot be delivered
    │   ├── TagNotText             it is not UTF-8
    │   ├── TagMalformed           it has not five fields, or an unknown type
    │   ├── TagTooLong             it is longer than any tag may be
    │   └── FieldHasColon          it cannot even be made: one of its fields has a colon
    ├── BodyError                  101: what is inside the message cannot be read
    │   ├── BodyMalformed          the body is no MessagePack map with the nine keys
    │   └── DataMalformed          the data of a technical message are not the JSON object they should be
    ├── GatewayError               a frame of the WebSocket gateway that is answered with an error; the connection lives
    │   ├── UnknownMessage         no command, or one with wrong fields
    │   ├── NotFromClient          a command that only the server may send
    │   └── TooManyPatterns        more patterns in one request than are allowed
    └── ZmtpError                  a ZMTP connection that cannot go on: close it
        ├── NotZmtp                the first bytes are not the signature of ZMTP
        ├── VersionTooOld          the peer speaks a version below 3
        ├── WrongMechanism         the peer wants a security mechanism other than NULL
        ├── WrongSocketType        the peer's socket cannot be connected to ours
        ├── PeerRefused            the peer sent an ERROR command
        ├── FrameTooLong           a frame, or a whole message, is longer than the limit
        ├── TooManyFrames          a message has more frames than the limit
        ├── FrameMalformed         flags or a command that the protocol does not allow
        ├── UnexpectedFrame        a frame that is right in itself came when it must not
        └── NotReady               our own side wants to send before the handshake is done

Every error has a stable `code` and carries its data as attributes. Tag and body errors have the number that MoniQue
itself gives to them in `number`. A ZmtpError of the peer leaves the connection object dead: it raises the same error
again and takes no more data.
"""

from __future__ import annotations

from typing import ClassVar


class MoniqueError(Exception):
    """Root of all errors of these codecs."""

    code: ClassVar[str] = "monique"


class TagError(MoniqueError):
    """A tag with which no message can be delivered."""

    code: ClassVar[str] = "monique-tag"
    number: ClassVar[int] = 201

    def __init__(self, tag: bytes, text: str) -> None:
        super().__init__(text)
        self.tag = tag


class TagNotText(TagError):
    """The tag is not valid UTF-8."""

    code: ClassVar[str] = "monique-tag-not-text"

    def __init__(self, tag: bytes) -> None:
        super().__init__(tag, "tag is not valid: it is not UTF-8")


class TagMalformed(TagError):
    """The tag is not `type:spec:id:pid:creator` with one of the four types."""

    code: ClassVar[str] = "monique-tag-malformed"

    def __init__(self, tag: bytes) -> None:
        super().__init__(tag, f"tag is not valid: {tag[:100].decode('utf-8', 'replace')!r}")


class TagTooLong(TagError):
    """The tag is longer than the limit."""

    code: ClassVar[str] = "monique-tag-too-long"

    def __init__(self, tag: bytes, limit: int) -> None:
        super().__init__(tag, f"tag is not valid: {len(tag)} bytes are longer than the limit of {limit}")
        self.limit = limit


class FieldHasColon(TagError):
    """A field with a colon in it would make a tag that nobody can take apart."""

    code: ClassVar[str] = "monique-field-has-colon"

    def __init__(self, tag: bytes, field: str, value: str) -> None:
        super().__init__(tag, f"tag is not valid: the {field} {value[:100]!r} has a colon")
        self.field = field
        self.value = value


class BodyError(MoniqueError):
    """The inside of a message that cannot be read. The reason says where it failed."""

    code: ClassVar[str] = "monique-body"
    number: ClassVar[int] = 101

    def __init__(self, reason: str) -> None:
        super().__init__(f"could not unpack message: {reason}")
        self.reason = reason


class BodyMalformed(BodyError):
    """The body is no MessagePack map with the nine keys of a message."""

    code: ClassVar[str] = "monique-body-malformed"


class DataMalformed(BodyError):
    """The data of a monitoring, kill or error message are not the JSON object they should be."""

    code: ClassVar[str] = "monique-data-malformed"


class GatewayError(MoniqueError):
    """A frame that the gateway answers with an error. The text of the exception is the text of the answer."""

    code: ClassVar[str] = "monique-gateway"


class UnknownMessage(GatewayError):
    """The frame is no command, or one whose fields are wrong; the reason stays on this side."""

    code: ClassVar[str] = "monique-unknown-message"

    def __init__(self, reason: str) -> None:
        super().__init__("unknown message")
        self.reason = reason


class NotFromClient(GatewayError):
    """A client sent a command that only the server may send."""

    code: ClassVar[str] = "monique-not-from-client"

    def __init__(self, command: str) -> None:
        super().__init__(f"<{command}> message could not be sent from the client")
        self.command = command


class TooManyPatterns(GatewayError):
    """One request names more patterns than the gateway takes."""

    code: ClassVar[str] = "monique-too-many-patterns"

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count} patterns are more than the limit of {limit}")
        self.count = count
        self.limit = limit


class ZmtpError(MoniqueError):
    """A ZMTP connection that cannot go on."""

    code: ClassVar[str] = "zmtp"


class NotZmtp(ZmtpError):
    """The peer does not begin with the signature of ZMTP."""

    code: ClassVar[str] = "zmtp-signature"

    def __init__(self, signature: bytes) -> None:
        super().__init__(f"the peer does not speak ZMTP: it began with {signature.hex()}")
        self.signature = signature


class VersionTooOld(ZmtpError):
    """The peer speaks a version of ZMTP below 3."""

    code: ClassVar[str] = "zmtp-version"

    def __init__(self, major: int) -> None:
        super().__init__(f"the peer speaks version {major} of ZMTP, version 3 is needed")
        self.major = major


class WrongMechanism(ZmtpError):
    """The peer asks for another security mechanism than NULL."""

    code: ClassVar[str] = "zmtp-mechanism"

    def __init__(self, mechanism: bytes) -> None:
        super().__init__(f"the mechanism {mechanism.decode('ascii', 'replace')!r} is not NULL")
        self.mechanism = mechanism


class WrongSocketType(ZmtpError):
    """The peer's socket is of a type that cannot talk to ours."""

    code: ClassVar[str] = "zmtp-socket-type"

    def __init__(self, socket_type: bytes, expected: bytes) -> None:
        shown = socket_type.decode("ascii", "replace")
        super().__init__(f"the peer's socket is of type {shown!r}, {expected.decode('ascii')} is needed")
        self.socket_type = socket_type
        self.expected = expected


class PeerRefused(ZmtpError):
    """The peer sent an ERROR command: it will not talk to us."""

    code: ClassVar[str] = "zmtp-refused"

    def __init__(self, reason: bytes) -> None:
        super().__init__(f"the peer refused: {reason.decode('utf-8', 'replace')}")
        self.reason = reason


class FrameTooLong(ZmtpError):
    """A frame, or a message with all its frames, is longer than the limit."""

    code: ClassVar[str] = "zmtp-frame-too-long"

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"{length} bytes are longer than the limit of {limit}")
        self.length = length
        self.limit = limit


class TooManyFrames(ZmtpError):
    """A message has more frames than the limit."""

    code: ClassVar[str] = "zmtp-too-many-frames"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message has more than {limit} frames")
        self.limit = limit


class FrameMalformed(ZmtpError):
    """Flags, or the inside of a command, that the protocol does not allow."""

    code: ClassVar[str] = "zmtp-frame-malformed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnexpectedFrame(ZmtpError):
    """A frame came at a moment, or to a socket, at which it is not allowed."""

    code: ClassVar[str] = "zmtp-unexpected-frame"

    def __init__(self, frame: str, expected: str) -> None:
        super().__init__(f"{frame} came where {expected} was expected")
        self.frame = frame
        self.expected = expected


class NotReady(ZmtpError):
    """Something was to be sent before the peer's READY has come, or that the peer's version does not know."""

    code: ClassVar[str] = "zmtp-not-ready"

    def __init__(self, wanted: str) -> None:
        super().__init__(f"{wanted} cannot be sent now")
        self.wanted = wanted
