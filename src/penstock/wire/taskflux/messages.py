"""The messages of a TaskFlux conversation as typed values, the dialects, and the limits.

What belongs here: what is said, in terms that hold for every dialect. How it looks in bytes is told by commands.py
(requests), responses.py (replies) and packets.py (the handshake and the packets around them).

Queue names are raw bytes, as they came: a name may be invalid, and the door answers that with Error 1 on a connection
that lives on (see fields.valid_queue_name). Error codes are always seed 000's numbers, whatever number the dialect
puts on the wire.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

NATIVE_MAJOR: Final = 0x50454E53
"""The major version in a Bootstrap Request that asks for Penstock's own protocol ("PENS")."""

VERSION_MAJOR: Final = 1
"""The major version of the TaskFlux protocol that is spoken here."""

VERSION_MINOR: Final = 0
"""The minor version of the TaskFlux protocol that is spoken here."""

NO_LIMIT: Final = -1
"""The value of a limit in Create Queue that means "none"."""

AUTHORIZATION_NONE: Final = ord("N")
"""The only authorization method: no credentials."""


class Dialect(enum.Enum):
    """Which of the related protocols a connection speaks. A listener is SEED000 or CSHARP, others show themselves."""

    SEED000 = "seed000"
    CSHARP = "csharp"
    SEED001 = "seed001"
    SEED001_DATA = "seed001-datapackets"

    @property
    def length_framed(self) -> bool:
        """True for the older protocol: bodies carry a length, names are Strings, and nothing is acknowledged."""
        return self is Dialect.SEED001 or self is Dialect.SEED001_DATA


class NeedData(enum.Enum):
    """Type of NEED_DATA, an enumeration of one so that type checkers can narrow on `is NEED_DATA`."""

    NEED_DATA = "need-data"


NEED_DATA: Final = NeedData.NEED_DATA
"""What next_event() answers while the bytes received so far do not hold another whole packet."""


class Limits(msgspec.Struct, frozen=True):
    """Upper bounds that are checked before any memory is taken for a field."""

    payload_bytes_max: int = 16 * 1024 * 1024
    """Payload of one record."""
    name_bytes_max: int = 4096
    """Queue name in String form; above 255 it is an invalid name, above this a broken protocol."""
    text_bytes_max: int = 64 * 1024
    """Reason, detail, address or policy text in a reply."""
    reply_bytes_max: int = 32 * 1024 * 1024
    """List or Cluster Metadata reply as a whole."""
    queues_max: int = 1_000_000
    """Queues in one List reply."""
    policies_max: int = 64
    """Policies of one queue in a List reply."""
    addresses_max: int = 1024
    """Nodes in a Cluster Metadata reply."""


class ErrorCode(enum.IntEnum):
    """Error codes with seed 000's numbers. 4 is reserved: a key out of range is answered by KeyRangeViolation."""

    UNKNOWN = 0
    INVALID_QUEUE_NAME = 1
    QUEUE_MISSING = 2
    QUEUE_EXISTS = 3
    KEY_OUT_OF_RANGE = 4
    INVALID_KEY_RANGE = 5
    INVALID_QUEUE_SIZE_MAX = 6
    INVALID_PAYLOAD_BYTES_MAX = 7
    KEY_RANGE_MISSING = 8
    UNKNOWN_IMPLEMENTATION = 9


# --- client to server ---------------------------------------------------------------------------------------


class AuthorizationRequest(msgspec.Struct, gc=False):
    """First packet of a client. Answer with AuthorizationResponse."""

    method: int = AUTHORIZATION_NONE


class BootstrapRequest(msgspec.Struct, gc=False):
    """Second packet of a client: the version it speaks. Answer with BootstrapResponse."""

    major: int = VERSION_MAJOR
    minor: int = VERSION_MINOR
    patch: int = 0


class UnsupportedVersion(msgspec.Struct, gc=False):
    """Event in place of BootstrapRequest: refuse with `BootstrapResponse(False, reason)` and close."""

    major: int
    minor: int
    patch: int
    reason: str


class NativeRequested(msgspec.Struct, gc=False):
    """Event in place of BootstrapRequest: the client asks for Penstock's own protocol; go on with `trailing_data`."""

    minor: int
    patch: int


class Enqueue(msgspec.Struct, gc=False):
    """Put a record into a queue."""

    queue: bytes
    key: int
    payload: bytes


class Dequeue(msgspec.Struct, gc=False):
    """Take the record with the smallest key; wait up to `timeout_ms` if there is none (0: do not wait)."""

    queue: bytes
    timeout_ms: int = 0


class Count(msgspec.Struct, gc=False):
    """Ask how many records a queue holds."""

    queue: bytes


class CreateQueue(msgspec.Struct, gc=False):
    """Create a queue. All values are as they came and may be invalid; the door judges them."""

    queue: bytes
    implementation: int = 0
    queue_size_max: int = NO_LIMIT
    payload_bytes_max: int = NO_LIMIT
    key_range: tuple[int, int] | None = None


class DeleteQueue(msgspec.Struct, gc=False):
    """Delete a queue."""

    queue: bytes


class ListQueues(msgspec.Struct, gc=False):
    """Ask for all queues with their sizes and policies."""


class Acknowledge(msgspec.Struct, gc=False):
    """The client confirms: the record it enqueues, or the record it was given."""


class NegativeAcknowledge(msgspec.Struct, gc=False):
    """The client takes back its Enqueue, or gives back the record it was given."""


class ClusterMetadataRequest(msgspec.Struct, gc=False):
    """Ask for the addresses of all nodes and who leads."""


Command: TypeAlias = Enqueue | Dequeue | Count | CreateQueue | DeleteQueue | ListQueues
"""What a Command Request packet can hold."""

Request: TypeAlias = (
    AuthorizationRequest | BootstrapRequest | Command | Acknowledge | NegativeAcknowledge | ClusterMetadataRequest
)
"""What a client can send."""

Event: TypeAlias = Request | UnsupportedVersion | NativeRequested
"""What a ServerConnection can report."""


# --- server to client ---------------------------------------------------------------------------------------


class AuthorizationResponse(msgspec.Struct, gc=False):
    """Answer to AuthorizationRequest; the server closes after a refusal."""

    success: bool = True
    reason: str = ""


class BootstrapResponse(msgspec.Struct, gc=False):
    """Answer to BootstrapRequest; the server closes after a refusal."""

    success: bool = True
    reason: str = ""


class Ok(msgspec.Struct, gc=False):
    """Done, or (after Enqueue) "I have it, now acknowledge". Length-framed dialects say it as EnqueueResult(True)."""


class EnqueueResult(msgspec.Struct, gc=False):
    """Length-framed dialects only: the record was added, or was not because the queue is full."""

    added: bool


class DequeueResult(msgspec.Struct, gc=False):
    """The record that was taken. Only the csharp dialect carries `record_id`; elsewhere it arrives as 0."""

    key: int
    payload: bytes
    record_id: int = 0


class DequeueEmpty(msgspec.Struct, gc=False):
    """There was no record (in time). No acknowledgement follows."""


class CountResult(msgspec.Struct, gc=False):
    """How many records the queue holds."""

    count: int


class QueueInfo(msgspec.Struct, gc=False):
    """One queue in a ListResult. Policies are texts by name; see POLICY_* in responses.py for the names."""

    name: bytes
    count: int
    policies: dict[str, str]


class ListResult(msgspec.Struct, gc=False):
    """All queues in the order of their creation."""

    queues: list[QueueInfo]


class ErrorResult(msgspec.Struct, gc=False):
    """The command failed for a reason of the queue's own logic, found when it was executed."""

    code: int
    details: str = ""


class ParameterError(msgspec.Struct, gc=False):
    """The command's parameters are wrong in themselves. Written as ErrorResult, but in csharp as ErrorPacket."""

    code: int
    details: str = ""


class GenericViolation(msgspec.Struct, gc=False):
    """A policy without a code of its own was violated, or a limit of the node."""

    message: str


class QueueSizeViolation(msgspec.Struct, gc=False):
    """The queue is full. A length-framed connection says it as EnqueueResult(False)."""

    queue_size_max: int


class PayloadSizeViolation(msgspec.Struct, gc=False):
    """The payload is larger than the queue allows."""

    payload_bytes_max: int


class KeyRangeViolation(msgspec.Struct, gc=False):
    """The key lies outside the queue's range."""

    key_min: int
    key_max: int


class NoResult(msgspec.Struct, gc=False):
    """Length-framed dialects only: a response with an empty body."""


class ErrorPacket(msgspec.Struct, gc=False):
    """An error at the level of packets. Length-framed dialects carry no code; there it arrives as 0."""

    code: int
    details: str = ""


class NotLeader(msgspec.Struct, gc=False):
    """This node does not lead. Length-framed dialects write "unknown" as 0, so that node 0 cannot be named there."""

    leader_id: int | None = None


class ClusterMetadata(msgspec.Struct, gc=False):
    """Addresses by node id, the leader if known, and the id of the node that answers."""

    addresses: list[str]
    leader_id: int | None
    node_id: int


PolicyViolation: TypeAlias = GenericViolation | QueueSizeViolation | PayloadSizeViolation | KeyRangeViolation
"""A put that the queue's policies refuse."""

CommandResponse: TypeAlias = (
    DequeueResult | DequeueEmpty | CountResult | ListResult | ErrorResult | PolicyViolation | EnqueueResult | NoResult
)
"""What a Command Response packet can hold."""

Reply: TypeAlias = (
    AuthorizationResponse
    | BootstrapResponse
    | Ok
    | CommandResponse
    | ParameterError
    | ErrorPacket
    | NotLeader
    | ClusterMetadata
)
"""What a server can send. A ParameterError arrives as ErrorResult or as ErrorPacket, as the dialect has it."""
