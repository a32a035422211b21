"""The journal's rows: what applying the log yields, one row of fixed width per event.

Rows are the source of every message's history: for people, for live figures, for Spark. They are derived from the log,
equal on all nodes to the byte. A payload is not repeated: a row says where it lies, as an offset into the bytes of the
entry ``payload_index``. (Any place in the entry that holds the same bytes will do; the encoder looks for the first.)

    index UInt64, n UInt32, item UInt32     names the event: entry, command in it, event of that command
    kind, door, reason Byte, Byte 0
    deliveries UInt32
    time_us Int64, owner UInt64, queue UInt64 (its uid), record UInt64 (its id), key Int64
    value Int64                             by kind, see KINDS
    other_queue UInt64, other_record UInt64 the other end of a move, or the duplicate's first
    payload_index UInt64, payload_offset UInt32, payload_bytes UInt32, headers_offset UInt32, headers_bytes UInt32
"""

from __future__ import annotations

from struct import Struct
from typing import Final

ROW: Final = Struct("<QIIBBBxIqQQQqqQQQIIII")
ROW_BYTES: Final = ROW.size

QUEUE_CREATED: Final = 1
QUEUE_CHANGED: Final = 2
QUEUE_DELETED: Final = 3
QUEUE_PURGED: Final = 4
QUEUE_PAUSED: Final = 5
QUEUE_RESUMED: Final = 6
PUT: Final = 10
DUPLICATE: Final = 11
AVAILABLE: Final = 12
TAKEN: Final = 13
ACKED: Final = 14
RETURNED: Final = 15
EXTENDED: Final = 16
BURIED: Final = 17
KICKED: Final = 18
EDITED: Final = 19
EXPIRED: Final = 20
DEAD_LETTERED: Final = 21
DELETED: Final = 22
MOVED_OUT: Final = 23
MOVED_IN: Final = 24
BROADCAST: Final = 30
BOUND: Final = 31
UNBOUND: Final = 32
STAGED: Final = 33
PUBLISHED: Final = 34
ABORTED: Final = 35
NEW_TERM: Final = 40
OWNER_GONE: Final = 41
OWNER_NAMED: Final = 42
UNREADABLE: Final = 50

KINDS: Final[dict[int, tuple[str, str]]] = {
    QUEUE_CREATED: ("queue created", "payload: the name"),
    QUEUE_CHANGED: ("queue changed", ""),
    QUEUE_DELETED: ("queue deleted", "payload: the name; value: the last record id, ends every record up to it"),
    QUEUE_PURGED: ("queue purged", "value: the last place; ends every ready and delayed record up to it"),
    QUEUE_PAUSED: ("queue paused", ""),
    QUEUE_RESUMED: ("queue resumed", ""),
    PUT: ("put", "value: when it becomes available, 0 at once"),
    DUPLICATE: ("duplicate", "other record: the first put with that key"),
    AVAILABLE: ("available", "its delay ended"),
    TAKEN: ("taken", "value: the lease's deadline, 0 bound to the connection"),
    ACKED: ("acked", ""),
    RETURNED: ("returned", "value: when it becomes available, 0 at once; payload: the text of the failure"),
    EXTENDED: ("extended", "value: the new deadline"),
    BURIED: ("buried", "payload: the text of the failure"),
    KICKED: ("kicked", ""),
    EDITED: ("edited", "value: when it becomes available, 0 at once"),
    EXPIRED: ("expired", ""),
    DEAD_LETTERED: ("dead-lettered", "other: the record it became; payload: the text of the failure"),
    DELETED: ("deleted", ""),
    MOVED_OUT: ("moved out", "other: the record it became"),
    MOVED_IN: ("moved in", "other: the record it was; payload: the text of its last failure, by rules 3"),
    BROADCAST: ("broadcast", "value: the channel; payload: the body; headers: the tag"),
    BOUND: ("bound", "payload: the binding's name"),
    UNBOUND: ("unbound", "payload: the binding's name"),
    STAGED: ("staged", "value: the batch; key: how many records"),
    PUBLISHED: ("published", "value: the batch; key: how many records"),
    ABORTED: ("aborted", "value: the batch"),
    NEW_TERM: ("new term", "value: the leader"),
    OWNER_GONE: ("owner gone", "owner: the connection that ended, by rules 3"),
    OWNER_NAMED: ("owner named", "payload: the name of the connection that is the owner"),
    UNREADABLE: ("unreadable", "the command could not be decoded and changed nothing"),
}
"""Each kind's name, and what it says beyond the common columns."""

TEXT_KINDS: Final = frozenset({RETURNED, BURIED, DEAD_LETTERED, MOVED_IN})
"""Kinds whose payload is a text for people, and not the payload of a message. It is empty where none was given."""

REASON_NACK: Final = 1
REASON_RELEASE: Final = 2
REASON_UNSENT: Final = 3
REASON_DISCONNECT: Final = 4
REASON_ACK_TIMEOUT: Final = 5
REASON_NEW_TERM: Final = 6
REASON_LEASE_TIMEOUT: Final = 7
REASON_EXPIRED: Final = 8
REASON_OPERATOR: Final = 9
REASON_HOLDER: Final = 10
REASON_REDRIVE: Final = 11
REASON_BINDING: Final = 12

REASONS: Final[dict[int, str]] = {
    0: "",
    REASON_NACK: "nack",
    REASON_RELEASE: "release",
    REASON_UNSENT: "unsent",
    REASON_DISCONNECT: "disconnect",
    REASON_ACK_TIMEOUT: "ack timeout",
    REASON_NEW_TERM: "new term",
    REASON_LEASE_TIMEOUT: "lease timeout",
    REASON_EXPIRED: "expired",
    REASON_OPERATOR: "operator",
    REASON_HOLDER: "holder",
    REASON_REDRIVE: "redrive",
    REASON_BINDING: "binding",
}

DOORS: Final[dict[int, str]] = {
    0: "node",
    1: "taskflux",
    2: "native",
    3: "etzel",
    4: "monique",
    5: "http",
    6: "grpc",
    7: "import",
}
DOOR_NODE: Final = 0
DOOR_TASKFLUX: Final = 1
DOOR_NATIVE: Final = 2
DOOR_ETZEL: Final = 3
DOOR_MONIQUE: Final = 4
DOOR_HTTP: Final = 5
DOOR_GRPC: Final = 6
DOOR_IMPORT: Final = 7
