"""Between the engine's words and those of the TaskFlux protocol.

What belongs here: which reply says what the engine answered, and which settings a Create Queue asks for. No state, no
connection.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.errors import Refusal
from penstock.engine.records import READY
from penstock.engine.state import State
from penstock.wire.taskflux import Dialect, ErrorCode
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.responses import POLICY_KEY_RANGE, POLICY_PAYLOAD_BYTES_MAX, POLICY_QUEUE_SIZE_MAX

_INT32_MAX: Final = 2**31 - 1
_DEFAULT_CODE: Final = 0
"""What a Create Queue says to get the implementation that the server thinks best."""

_ERROR_CODES: Final[dict[int, ErrorCode]] = {
    e.NO_SUCH_QUEUE: ErrorCode.QUEUE_MISSING,
    e.QUEUE_EXISTS: ErrorCode.QUEUE_EXISTS,
    e.BAD_QUEUE_NAME: ErrorCode.INVALID_QUEUE_NAME,
    e.DEFAULT_QUEUE: ErrorCode.INVALID_QUEUE_NAME,
}
"""The protocol's number for each refusal that has one; all others are "unknown", with a text."""

_NODE_LIMITS: Final = frozenset({e.MEMORY_FULL, e.DISK_FULL})
BAD_NAME: Final = "a queue's name has at most 255 characters, each between ! and ~"


def bad_name(dialect: Dialect) -> m.ParameterError:
    """The reply to a command whose queue name cannot be one."""
    return parameter_error(ErrorCode.INVALID_QUEUE_NAME, BAD_NAME, dialect)


def parameter_error(code: ErrorCode, details: str, dialect: Dialect) -> m.ParameterError:
    """The reply to a command that is wrong in itself."""
    return m.ParameterError(code, _details(code, details, dialect))


def _details(code: int, details: str, dialect: Dialect) -> str:
    """The text beside a code. The original says nothing where the number says all, and its older program says its own
    text, which the codec knows; seed 000's clients get ours."""
    return details if dialect is Dialect.SEED000 or code == ErrorCode.UNKNOWN else ""


def judge_create(event: m.CreateQueue, dialect: Dialect) -> m.ParameterError | None:
    """What is wrong with the parameters of a Create Queue besides its name, if anything."""
    if event.key_range is not None and event.key_range[0] > event.key_range[1]:
        low, high = event.key_range
        return parameter_error(ErrorCode.INVALID_KEY_RANGE, f"the key range {low}..{high} is empty", dialect)
    if event.queue_size_max < m.NO_LIMIT:
        details = f"the queue size {event.queue_size_max} is below -1, which means none"
        return parameter_error(ErrorCode.INVALID_QUEUE_SIZE_MAX, details, dialect)
    if event.payload_bytes_max < m.NO_LIMIT:
        details = f"the payload size {event.payload_bytes_max} is below -1, which means none"
        return parameter_error(ErrorCode.INVALID_PAYLOAD_BYTES_MAX, details, dialect)
    # Seed 000 lets the server choose by code 0; the original program does not know that code.
    known = (c.H4, c.QA) if dialect is Dialect.CSHARP else (_DEFAULT_CODE, c.H4, c.QA)
    if event.implementation not in known:
        details = f"there is no queue implementation {event.implementation}"
        return parameter_error(ErrorCode.UNKNOWN_IMPLEMENTATION, details, dialect)
    if event.implementation == c.QA and event.key_range is None:
        return parameter_error(ErrorCode.KEY_RANGE_MISSING, "implementation 2 needs a key range", dialect)
    return None


def settings_of(event: m.CreateQueue) -> c.QueueSettings:
    """The queue that a Create Queue asks for, once it was judged right."""
    return c.QueueSettings(
        implementation=c.QA if event.implementation == c.QA else c.H4,
        size_max=None if event.queue_size_max == m.NO_LIMIT else event.queue_size_max,
        payload_bytes_max=None if event.payload_bytes_max == m.NO_LIMIT else event.payload_bytes_max,
        key_range=event.key_range,
    )


def count_of(st: State, queue: str, dialect: Dialect) -> m.Reply:
    """How many records of a queue are ready."""
    found = st.by_name.get(queue)
    if found is None:
        code = ErrorCode.QUEUE_MISSING
        return m.ErrorResult(code, _details(code, f"there is no queue {queue!r}", dialect))
    return m.CountResult(min(found.counts[READY], _INT32_MAX))


def list_of(st: State) -> m.ListResult:
    """All queues in the order of their creation, with their ready records and their policies."""
    return m.ListResult(
        [
            m.QueueInfo(queue.name.encode(), min(queue.counts[READY], _INT32_MAX), policies_of(queue.settings))
            for _, queue in sorted(st.by_uid.items())
        ]
    )


def policies_of(settings: c.QueueSettings) -> dict[str, str]:
    """The policies that are set, as texts, in the order of the original."""
    policies: dict[str, str] = {}
    if settings.size_max is not None:
        policies[POLICY_QUEUE_SIZE_MAX] = str(settings.size_max)
    if settings.payload_bytes_max is not None:
        policies[POLICY_PAYLOAD_BYTES_MAX] = str(settings.payload_bytes_max)
    if settings.key_range is not None:
        low, high = settings.key_range
        policies[POLICY_KEY_RANGE] = f"{low} {high}"
    return policies


def violation_of(st: State, queue: str, code: int, figure: int) -> m.Reply:
    """The reply to a put that was not accepted: an exception of its ``PutAnswer``."""
    if code == e.QUEUE_FULL:
        return m.QueueSizeViolation(figure)
    if code == e.PAYLOAD_TOO_LARGE:
        return m.PayloadSizeViolation(figure)
    if code == e.KEY_OUT_OF_RANGE:
        found = st.by_name.get(queue)
        # The range of a queue never changes, but the queue may be gone by now, or be another one.
        if found is not None and found.settings.key_range is not None:
            return m.KeyRangeViolation(*found.settings.key_range)
        return m.GenericViolation("the key is outside the queue's range")
    return m.GenericViolation(f"the queue did not accept the record: {Refusal(code).name}")


def refusal_of(op: int, refusal: Refusal, dialect: Dialect) -> m.Reply:
    """The reply to a command that was refused, by the engine or by the node."""
    code = refusal.code
    if code == e.NOT_LEADER:
        return not_leader(refusal.figures[0] if refusal.figures else -1)
    if code in _NODE_LIMITS and op == c.PUT:
        return m.GenericViolation(refusal.detail)
    if code == e.NO_SUCH_QUEUE and op == c.RETURN:
        return m.Ok()  # the queue is gone with all it held: there is nothing left to give back to
    if code == e.DEFAULT_QUEUE:
        # No code of the protocol says this, so the text has to, in every dialect.
        return m.ErrorResult(ErrorCode.INVALID_QUEUE_NAME, refusal.detail)
    number = _ERROR_CODES.get(code, ErrorCode.UNKNOWN)
    # An outcome that is unknown is an error of unknown kind whose text says so. The connection stays: it can ask.
    return m.ErrorResult(number, _details(number, refusal.detail or refusal.name, dialect))


def not_leader(leader_id: int) -> m.NotLeader:
    """The reply of a node that does not lead; a negative id says that no leader is known."""
    return m.NotLeader(leader_id if leader_id >= 0 else None)
