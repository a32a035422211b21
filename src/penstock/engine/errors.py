"""Why a command was not carried out.

The engine never raises for what a client asks: ``apply`` is total. It answers with a ``Refusal`` that carries one of
these stable codes, the text for people, and the figures that a door needs to say it in its own protocol. Codes below
100 come from the engine and are part of the replicated state machine; codes from 100 on are the node's own
(``NODE_CODES``) and never stand in a log.

    Refusal
     ├─ the queue:    NO_SUCH_QUEUE, QUEUE_EXISTS, BAD_QUEUE_NAME, BAD_SETTINGS, SETTING_FIXED, DEFAULT_QUEUE,
     │                DEAD_LETTER_CYCLE, TOO_MANY_QUEUES
     ├─ the policies: QUEUE_FULL (limit), PAYLOAD_TOO_LARGE (limit), KEY_OUT_OF_RANGE (min, max), DEDUP_FULL (limit),
     │                HEADERS_TOO_LARGE (limit)
     ├─ the record:   NO_SUCH_RECORD, LEASE_LOST, WRONG_STATE, TOO_MANY_LEASES (limit)
     ├─ the rest:     BAD_COMMAND, NO_SUCH_JOB, NO_SUCH_BINDING, BATCH_NOT_STAGED,
     │                STAGE_FULL (limit), BATCH_INCOMPLETE (staged, announced), REQUEST_REUSED
     └─ the node:     MEMORY_FULL, DISK_FULL, NOT_LEADER (leader id), OUTCOME_UNKNOWN, STOPPING, BAD_REQUEST,
                      TOO_MANY_IN_FLIGHT, HISTORY_GONE (first index), ANSWER_TOO_LARGE (bytes, limit)
"""

from __future__ import annotations

from typing import Final

import msgspec

NO_SUCH_QUEUE: Final = 1
QUEUE_EXISTS: Final = 2
BAD_QUEUE_NAME: Final = 3
BAD_SETTINGS: Final = 4
SETTING_FIXED: Final = 5
DEFAULT_QUEUE: Final = 6
DEAD_LETTER_CYCLE: Final = 7
TOO_MANY_QUEUES: Final = 8

QUEUE_FULL: Final = 10
PAYLOAD_TOO_LARGE: Final = 11
KEY_OUT_OF_RANGE: Final = 12
DEDUP_FULL: Final = 13
HEADERS_TOO_LARGE: Final = 14

NO_SUCH_RECORD: Final = 20
LEASE_LOST: Final = 21
WRONG_STATE: Final = 22
TOO_MANY_LEASES: Final = 23

BAD_COMMAND: Final = 30
NO_SUCH_JOB: Final = 31
NO_SUCH_BINDING: Final = 32
BATCH_NOT_STAGED: Final = 33
STAGE_FULL: Final = 34
BATCH_INCOMPLETE: Final = 35
REQUEST_REUSED: Final = 36

MEMORY_FULL: Final = 100
DISK_FULL: Final = 101
NOT_LEADER: Final = 102
OUTCOME_UNKNOWN: Final = 103
STOPPING: Final = 104
BAD_REQUEST: Final = 105
TOO_MANY_IN_FLIGHT: Final = 106
HISTORY_GONE: Final = 107
ANSWER_TOO_LARGE: Final = 108
STAGING_FULL: Final = 109

NAMES: Final[dict[int, str]] = {
    value: name for name, value in list(globals().items()) if name.isupper() and isinstance(value, int)
}
"""Each code's stable name, as clients and logs spell it."""

NODE_CODES: Final = frozenset(code for code in NAMES if code >= 100)


class Refusal(msgspec.Struct, array_like=True, gc=False):
    """An answer that says why a command was not carried out, and changed nothing."""

    code: int
    detail: str = ""
    figures: tuple[int, ...] = ()
    """What the code promises: a limit, a range, a leader's id; for an atomic batch also the offender's position."""

    @property
    def name(self) -> str:
        """The code's stable name."""
        return NAMES.get(self.code, f"CODE_{self.code}")
