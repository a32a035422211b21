"""What can be wrong with Etzel's texts and records, and the codes that a client is told.

    EtzelError
    ├── RequestError    (nok, reason)            a request that makes no sense: answered, and the connection lives
    ├── ReplyError      (reason)                 a frame from a server that is no reply
    ├── UidOutOfRange   (queue_uid, record_id)   a message whose numbers are too large for a uid
    └── StoredError     (key, reason)            a stored record that cannot be read or written

`Nok` lists the codes of the reply `nok`. A client of the original ignores every `nok`, so codes may be added.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Nok(StrEnum):
    """Why a request was refused, as it stands in `{"cmd":"nok","err":…}`.

    The first ones are about the request; the later ones, from QUEUE_FULL on, say that a good one cannot be done now.
    """

    Q_NOT_FOUND = "Q_NOT_FOUND"
    BAD_JSON = "BAD_JSON"
    UNKNOWN_CMD = "UNKNOWN_CMD"
    BAD_REQUEST = "BAD_REQUEST"
    BAD_QNAME = "BAD_QNAME"
    BAD_MSG = "BAD_MSG"
    BAD_DELAY = "BAD_DELAY"
    BAD_EXPIRES = "BAD_EXPIRES"
    BAD_TIMEOUT = "BAD_TIMEOUT"
    TOO_MANY_SUBS = "TOO_MANY_SUBS"
    QUEUE_FULL = "QUEUE_FULL"
    KEY_OUT_OF_RANGE = "KEY_OUT_OF_RANGE"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    TOO_MANY_QUEUES = "TOO_MANY_QUEUES"
    TOO_MANY_LEASES = "TOO_MANY_LEASES"
    MEMORY_FULL = "MEMORY_FULL"
    DISK_FULL = "DISK_FULL"
    NOT_LEADER = "NOT_LEADER"
    STOPPING = "STOPPING"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"


class EtzelError(Exception):
    """Root of all errors of this codec."""

    code: ClassVar[str] = "etzel"


class RequestError(EtzelError):
    """A request that cannot be carried out; `nok` is the code to answer it with."""

    code: ClassVar[str] = "etzel-request"

    def __init__(self, nok: Nok, reason: str) -> None:
        super().__init__(f"{nok}: {reason}")
        self.nok = nok
        self.reason = reason


class ReplyError(EtzelError):
    """A frame that is not a reply, or a reply whose payload cannot be read."""

    code: ClassVar[str] = "etzel-reply"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UidOutOfRange(EtzelError):
    """The numbers of a message do not fit into a uid."""

    code: ClassVar[str] = "etzel-uid-out-of-range"

    def __init__(self, queue_uid: int, record_id: int) -> None:
        super().__init__(f"no uid can name record {record_id} of queue {queue_uid}")
        self.queue_uid = queue_uid
        self.record_id = record_id


class StoredError(EtzelError):
    """A stored record that is damaged, or one that the layout has no room for."""

    code: ClassVar[str] = "etzel-stored"

    def __init__(self, key: bytes, reason: str) -> None:
        super().__init__(f"record {key!r}: {reason}")
        self.key = key
        self.reason = reason
