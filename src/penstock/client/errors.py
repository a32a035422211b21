"""What a call of the client can raise.

    PenstockError
     ├─ Refused                 a node said no, and nothing changed (detail, figures; position of the record)
     │   ├─ the queue:     NoSuchQueue, QueueExists, BadQueueName, BadSettings, SettingFixed, DefaultQueue,
     │   │                 DeadLetterCycle, TooManyQueues
     │   ├─ the record:    KeyOutOfRange (minimum, maximum), NoSuchRecord, LeaseLost, WrongState
     │   ├─ Limited        a limit is reached (limit): QueueFull, PayloadTooLarge, DedupFull,
     │   │                 HeadersTooLarge, TooManyLeases
     │   ├─ the rest:      BadCommand, NoSuchJob, NoSuchBinding, BatchNotStaged, StageFull, BatchIncomplete,
     │   │                 RequestReused
     │   └─ the node:      MemoryFull, StagingFull, DiskFull, NotLeader (leader), Stopping, BadRequest, TooManyInFlight,
     │                   HistoryGone (first_index), AnswerTooLarge (size_bytes, limit_bytes)
     ├─ OutcomeUnknown          the command may or may not have been done (operation, request)
     ├─ ConnectionLost          no node could be reached, and the request was not done (endpoints)
     ├─ HandshakeRefused        the peer does not speak our protocol, or not our version (endpoint, reason)
     ├─ Timeout                 a read was not answered within the client's limit (limit_seconds)
     ├─ ClientClosed            the client was closed
     ├─ BadAnswer               a node answered what this version cannot read (operation)
     ├─ RequestTooLarge         the request does not fit into a frame (size_bytes, limit_bytes)
     ├─ FrameTooLarge           the answer is longer than this client reads (size_bytes, limit_bytes)
     └─ BadUrl                  the address cannot be understood (url, reason)

Every error has a stable number, ``code``, and a stable name, ``name``. Numbers below 200 are the node's and the
engine's; those from 200 on are this package's own.
"""

from __future__ import annotations

from typing import ClassVar

from penstock.engine import errors as codes
from penstock.engine.errors import NAMES, Refusal


class PenstockError(Exception):
    """Anything that the client raises of its own accord."""

    code: int = 200
    name: str = "PENSTOCK_ERROR"


class Refused(PenstockError):
    """A node refused the request; nothing was changed. Codes that this version does not know arrive as this class."""

    by_code: ClassVar[dict[int, type[Refused]]] = {}

    def __init__(self, detail: str = "", figures: tuple[int, ...] = (), *, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.name = NAMES.get(self.code, f"CODE_{self.code}")
        self.detail = detail
        self.figures = figures
        self.position: int | None = None
        """In a request with several records: which of them was refused, counted from 0 over the whole request."""
        super().__init__(f"{self.name}: {detail}" if detail else self.name)

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:
            Refused.by_code[cls.code] = cls

    def _figure(self, index: int) -> int | None:
        return self.figures[index] if index < len(self.figures) else None


class Limited(Refused):
    """A limit is reached."""

    @property
    def limit(self) -> int | None:
        """The limit, where the node told it."""
        return self._figure(0)


class NoSuchQueue(Refused):
    """The queue does not exist."""

    code = codes.NO_SUCH_QUEUE


class QueueExists(Refused):
    """A queue of that name exists already, or exists with other settings."""

    code = codes.QUEUE_EXISTS


class BadQueueName(Refused):
    """A queue's name has 0 to 255 characters between ``!`` and ``~``."""

    code = codes.BAD_QUEUE_NAME


class BadSettings(Refused):
    """The settings of the queue contradict each other or are out of bounds."""

    code = codes.BAD_SETTINGS


class SettingFixed(Refused):
    """This setting cannot change after the queue was made."""

    code = codes.SETTING_FIXED


class DefaultQueue(Refused):
    """The default queue cannot be deleted."""

    code = codes.DEFAULT_QUEUE


class DeadLetterCycle(Refused):
    """Dead letters would come back to the queue they left."""

    code = codes.DEAD_LETTER_CYCLE


class TooManyQueues(Refused):
    """The node holds as many queues as it may."""

    code = codes.TOO_MANY_QUEUES


class QueueFull(Limited):
    """The queue holds as many records as it may."""

    code = codes.QUEUE_FULL


class PayloadTooLarge(Limited):
    """The payload is longer than the queue or the node allows."""

    code = codes.PAYLOAD_TOO_LARGE


class KeyOutOfRange(Refused):
    """The key is outside the range of the queue."""

    code = codes.KEY_OUT_OF_RANGE

    @property
    def minimum(self) -> int | None:
        """The smallest key allowed, where the node told it."""
        return self._figure(0)

    @property
    def maximum(self) -> int | None:
        """The greatest key allowed, where the node told it."""
        return self._figure(1)


class HeadersTooLarge(Limited):
    """The headers of a message are longer than the node allows."""

    code = codes.HEADERS_TOO_LARGE


class DedupFull(Limited):
    """The queue remembers as many deduplication keys as its setting ``dedup_keys_max`` allows."""

    code = codes.DEDUP_FULL


class NoSuchRecord(Refused):
    """The record does not exist, or ended already."""

    code = codes.NO_SUCH_RECORD


class LeaseLost(Refused):
    """The lease ended before: its time ran out, or somebody else holds or ended the record."""

    code = codes.LEASE_LOST


class WrongState(Refused):
    """The record is in a state in which this cannot be done."""

    code = codes.WRONG_STATE


class TooManyLeases(Limited):
    """As many records are leased as may be."""

    code = codes.TOO_MANY_LEASES


class BadCommand(Refused):
    """The engine cannot make sense of the command."""

    code = codes.BAD_COMMAND


class NoSuchJob(Refused):
    """No redrive of that number is under way."""

    code = codes.NO_SUCH_JOB


class NoSuchBinding(Refused):
    """No binding has that name."""

    code = codes.NO_SUCH_BINDING


class BatchNotStaged(Refused):
    """A batch was published of which not every part is staged."""

    code = codes.BATCH_NOT_STAGED


class BatchIncomplete(Refused):
    """Something of a batch is missing: not as many records are staged as were announced (figures: both)."""

    code = codes.BATCH_INCOMPLETE


class RequestReused(Refused):
    """The number of a request was used before for another command of the same producer; nothing was done."""

    code = codes.REQUEST_REUSED


class StageFull(Refused):
    """The cluster remembers as many queries as it may (figures: how many); who says ``is_last`` needs no place."""

    code = codes.STAGE_FULL


class MemoryFull(Refused):
    """The node's memory limit is reached: puts are refused, takes and acks go on."""

    code = codes.MEMORY_FULL


class StagingFull(Refused):
    """What is staged reached its limit (figures: bytes); a batch has to be published or aborted first."""

    code = codes.STAGING_FULL


class DiskFull(Refused):
    """The node's disk is full: puts are refused, takes and acks go on."""

    code = codes.DISK_FULL


class NotLeader(Refused):
    """The node does not lead its cluster."""

    code = codes.NOT_LEADER

    @property
    def leader(self) -> int | None:
        """The number of the node that leads, where it is known."""
        return self._figure(0)


class Stopping(Refused):
    """The node is shutting down."""

    code = codes.STOPPING


class BadRequest(Refused):
    """The node could not read the request."""

    code = codes.BAD_REQUEST


class TooManyInFlight(Refused):
    """The connection has more requests open than the node allows."""

    code = codes.TOO_MANY_IN_FLIGHT


class HistoryGone(Refused):
    """The history begins later: what was asked for has been let go (first_index)."""

    code = codes.HISTORY_GONE

    @property
    def first_index(self) -> int | None:
        """The oldest entry that is kept."""
        return self._figure(0)


class AnswerTooLarge(Refused):
    """The answer is longer than this client said that it reads, so the node did not send it."""

    code = codes.ANSWER_TOO_LARGE

    @property
    def size_bytes(self) -> int | None:
        """The length of the answer."""
        return self._figure(0)

    @property
    def limit_bytes(self) -> int | None:
        """The longest answer that this client reads."""
        return self._figure(1)


class OutcomeUnknown(PenstockError):
    """The command may or may not have been done, and there is no way to tell. Look, or repeat it where that is safe.

    A put with a deduplication key can be repeated: the queue recognises it.
    """

    code = codes.OUTCOME_UNKNOWN
    name = "OUTCOME_UNKNOWN"

    def __init__(self, operation: str, request: int, reason: str) -> None:
        super().__init__(f"the outcome of {operation} (request {request}) is unknown: {reason}")
        self.operation = operation
        self.request = request
        self.reason = reason


class ConnectionLost(PenstockError):
    """No connection to any endpoint; what was asked for was not done."""

    code = 201
    name = "CONNECTION_LOST"

    def __init__(self, endpoints: str, reason: str) -> None:
        super().__init__(f"no connection to {endpoints}: {reason}")
        self.endpoints = endpoints
        self.reason = reason


class HandshakeRefused(PenstockError):
    """The peer refused the handshake, or answered it with something else."""

    code = 202
    name = "HANDSHAKE_REFUSED"

    def __init__(self, reason: str, endpoint: str = "") -> None:
        super().__init__(f"{endpoint} refused the handshake: {reason}" if endpoint else reason)
        self.endpoint = endpoint
        self.reason = reason


class Timeout(PenstockError):
    """A read was not answered in time. Commands raise ``OutcomeUnknown`` instead."""

    code = 203
    name = "TIMEOUT"

    def __init__(self, operation: str, limit_seconds: float) -> None:
        super().__init__(f"{operation} was not answered within {limit_seconds:g} s")
        self.operation = operation
        self.limit_seconds = limit_seconds


class ClientClosed(PenstockError):
    """The client was closed, so nothing more can be asked of it."""

    code = 204
    name = "CLIENT_CLOSED"

    def __init__(self) -> None:
        super().__init__("the client is closed")


class BadAnswer(PenstockError):
    """The node's answer cannot be read: client and node are of versions that do not fit."""

    code = 205
    name = "BAD_ANSWER"

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"the answer to {operation} cannot be read: {reason}")
        self.operation = operation
        self.reason = reason


class RequestTooLarge(PenstockError):
    """The request does not fit into a frame; it was not sent."""

    code = 206
    name = "REQUEST_TOO_LARGE"

    def __init__(self, operation: str, size_bytes: int, limit_bytes: int) -> None:
        limit = f"the node reads frames up to {limit_bytes} (its limits.payload_bytes and 1 MiB, at least 32 MiB)"
        super().__init__(f"{operation} takes a frame of {size_bytes} bytes; {limit}")
        self.operation = operation
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class FrameTooLarge(PenstockError):
    """The node's answer is longer than this client reads, so the connection ended; the request may have been done.

    The client's limit is ``frame_bytes_max`` of ``connect``. What a take leased comes back when its lease ends.
    """

    code = 208
    name = "FRAME_TOO_LARGE"

    def __init__(self, operation: str, size_bytes: int, limit_bytes: int) -> None:
        limit = f"this client reads frames up to {limit_bytes} (frame_bytes_max)"
        super().__init__(f"the answer to {operation} is a frame of {size_bytes} bytes; {limit}")
        self.operation = operation
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class BadUrl(PenstockError, ValueError):
    """The address cannot be understood."""

    code = 207
    name = "BAD_URL"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url!r}: {reason}")
        self.url = url
        self.reason = reason


def refused(refusal: Refusal, *, atomic: bool = False) -> Refused:
    """The error for a node's refusal. In an atomic batch the last figure is the position of the offender."""
    figures = tuple(refusal.figures)
    position = None
    if atomic and figures and refusal.code not in codes.NODE_CODES:
        *rest, position = figures
        figures = tuple(rest)
    error = refused_with(refusal.code, refusal.detail, figures)
    error.position = position
    return error


def refused_with(code: int, detail: str = "", figures: tuple[int, ...] = ()) -> Refused:
    """The error for a code, as the class that users catch."""
    kind = Refused.by_code.get(code)
    return kind(detail, figures) if kind is not None else Refused(detail, figures, code=code)
