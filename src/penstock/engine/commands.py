"""The commands that a log holds, and their encoding.

A command is a MessagePack array; the same bytes travel in a native frame, stand in the log, and are read again at
replay, so there is one decoder per operation and nothing is encoded twice. Trailing fields may be left out where a
default stands here. Durations are in milliseconds, points in time in microseconds of the leader's wall clock.

To change a command: add fields at its end, with a default that means what the absence meant. Never reuse a number.
Fields too many are refused: skipping them would depend on how deep they are nested, and so on the reader.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
RULES: Final = 3
"""The rules by which this engine carries out commands. The leader's ``NewTerm`` brings the number into the log, so an
entry is always replayed by the rules under which it was committed: a later limit never changes an old answer.

    0   before rules had numbers
    1   groups without records are refused; limits on staged parts and batches, on topics, and on the bindings that
        match one message; the end of leases and of staged attempts counts against the work of an entry
    2   headers are limited and count in the size of an answer; answers kept for producers are limited by their bytes
    3   the journal says which connection ended, and the text of the failure of a record that is moved
"""
RULES_OF_BYTES: Final = 2
RULES_OF_NAMES: Final = 3
RECORDS_PER_COMMAND_MAX: Final = 10_000
"""No command touches more records than this in one apply."""
RECORDS_PER_TAKE_MAX: Final = 1_000
BYTES_PER_ANSWER_MAX: Final = 8 * 1024 * 1024
"""An answer holds no more payload and headers than this, but at least one record: a take or a page ends there."""
HEADERS_BYTES_MAX: Final = 64 * 1024
"""The longest headers of one record, in their encoded form."""
FAILURE_BYTES_MAX: Final = 1024
"""The longest text of a failure, in bytes of UTF-8."""
DURATION_MS_MAX: Final = 100 * 366 * 86_400_000
"""A hundred years: what a delay, lease or expiry may last at most."""

Key = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Duration = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]
Moment = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Name = Annotated[str, Meta(max_length=255)]
Failure = Annotated[str, Meta(max_length=FAILURE_BYTES_MAX)]
"""What failed and why, for people."""
Ids = Annotated[list[Natural], Meta(max_length=RECORDS_PER_COMMAND_MAX)]
Handles = Annotated[list[tuple[Natural, Natural]], Meta(max_length=RECORDS_PER_COMMAND_MAX)]
"""Leases, each as (record id, fencing token)."""

NO_RAW: Final = Raw(b"\xc0")
"""Nil: a value that can be encoded again, as staged records are."""


class Options(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """What may be said of a record beyond its key and payload."""

    delay_ms: Duration = 0
    expires_ms: Duration = 0
    """How long the record may wait for its end, from now; 0 takes the queue's default."""
    headers: Raw = NO_RAW
    """A MessagePack map of strings to strings, kept as it came; empty or nil when there is none."""
    dedup_key: Annotated[str, Meta(max_length=255)] | None = None
    lease_ms: Duration = 0
    """The lease that takes of this record get; 0 takes what the take asks for, or the queue's default."""
    available_at_us: Moment = 0
    """A scheduled time; the later of this and ``delay_ms`` holds."""
    expires_at_us: Moment = 0
    """An expiry as a point in time; the earlier of this and ``expires_ms`` holds."""
    delay_to_tail: bool = False
    """When its delay ends, the record draws a new place behind all others of its key."""


class Item(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """One record to be put. Options stand apart so that a plain record is told from others by one test."""

    key: Key
    payload: bytes
    options: Options | None = None


Items = Annotated[list[Item], Meta(max_length=RECORDS_PER_COMMAND_MAX)]
Puts = Annotated[list[tuple[Name, Items]], Meta(max_length=RECORDS_PER_COMMAND_MAX)]
"""Records for several queues, in groups. A longer list cannot be read, also at replay: a log of an earlier version may
hold one, but then most of its groups are empty, and carrying it out took minutes."""

H4: Final = 1
QA: Final = 2


class QueueSettings(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """All that can be said of a queue when it is made. ``None`` and 0 mean: no limit, not set."""

    implementation: int = H4
    size_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Ready, delayed and leased records together never exceed this."""
    payload_bytes_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    key_range: tuple[Key, Key] | None = None
    """Keys allowed, both ends included; QA needs it."""
    descending: bool = False
    """Greatest key first."""
    lease_ms: Duration = 60_000
    deliveries_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    """A record that comes back after this many deliveries is dead-lettered; 0: never."""
    dead_letter: Name | None = None
    """Where dead letters go; without one they are buried in place."""
    expires_ms: Duration = 0
    dead_letter_expired: bool = False
    """Expired records go to the dead-letter queue too, instead of being dropped with an event."""
    dedup_window_ms: Duration = 600_000
    dedup_keys_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000


class QueueChanges(Struct, gc=False, forbid_unknown_fields=True):
    """New values for the settings of a queue that may change; what is left out stays."""

    size_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None = UNSET
    payload_bytes_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType | None = UNSET
    lease_ms: Duration | UnsetType = UNSET
    deliveries_max: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType = UNSET
    dead_letter: Name | UnsetType | None = UNSET
    expires_ms: Duration | UnsetType = UNSET
    dead_letter_expired: bool | UnsetType = UNSET
    dedup_window_ms: Duration | UnsetType = UNSET
    dedup_keys_max: Annotated[int, Meta(ge=1, le=10_000_000)] | UnsetType = UNSET


class NewTerm(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """The first command of a term: leases bound to connections of earlier terms are released.

    It carries the leader's own limits into the log, because whatever decides an answer must be the same on all nodes.
    """

    leader: int
    payload_bytes_max: Natural = INT64_MAX
    queues_max: Natural = INT64_MAX
    rules: Natural = 0
    """The leader's ``RULES``."""
    staged_ms: Natural = 24 * 3_600_000
    """How long what is staged from now on is kept."""


class Tick(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Nothing but the entry's time: lets timers fire when there is no traffic.

    With ``wall_us`` it also says what the leader's wall clock shows at the entry's stamp. Points in time that clients
    give are wall-clock times; the engine turns them into log time by this difference.
    """

    wall_us: Natural = 0
    """0: unchanged since the last one."""


class OwnerGone(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A connection ended: the leases bound to it are released."""

    owner: Natural


class NameOwner(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A connection has a name: who works, for people."""

    owner: Natural
    name: Name


class CreateQueue(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Make a queue; with ``if_absent`` an equal one that is there already will do."""

    name: Name
    settings: QueueSettings
    if_absent: bool = False


class ChangeQueue(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Change settings of a queue."""

    name: Name
    changes: QueueChanges


class DeleteQueue(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Delete a queue with all it holds."""

    name: Name


class Put(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Put records, each judged by itself."""

    queue: Name
    items: Items
    create: bool = False
    """Make the queue with default settings if it is missing."""


class PutMany(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Put records into one or several queues, all or none."""

    puts: Puts


class Take(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Lease the first records of a queue."""

    queue: Name
    count: Annotated[int, Meta(ge=1, le=RECORDS_PER_TAKE_MAX)] = 1
    lease_ms: Duration | None = None
    """0 binds the lease to the connection instead of a deadline; None takes the record's or the queue's length."""
    wait_ms: Duration = 0
    """How long the node lets the request wait for a record; the engine does not look at it."""
    to_tail: bool = False
    """If the lease times out, the record draws a new place behind all others of its key."""
    final: bool = False
    """Taken is done: the records end at once, without a lease."""


class Ack(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """End leased records: their work is done."""

    queue: Name
    handles: Handles


class AckTake(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """End leased records and take the next ones, in one command."""

    queue: Name
    handles: Handles
    count: Annotated[int, Meta(ge=1, le=RECORDS_PER_TAKE_MAX)] = 1
    lease_ms: Duration | None = None
    wait_ms: Duration = 0


NACK: Final = 1
RELEASE: Final = 2
UNSENT: Final = 3
"""How a record comes back: its work failed, it was given back unharmed, it never reached the client."""


class Return(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Give leased records back."""

    queue: Name
    handles: Handles
    how: Annotated[int, Meta(ge=NACK, le=UNSENT)] = NACK
    delay_ms: Duration = 0
    reason: Annotated[int, Meta(ge=0, le=255)] = 0
    """Why a release happened, one of ``journal.REASONS``; 0 takes the reason that ``how`` implies."""
    failure: Failure = ""
    """What failed and why; only a nack has it."""


class Extend(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Give leases a new deadline, counted from now."""

    queue: Name
    handles: Handles
    lease_ms: Annotated[int, Meta(ge=1, le=DURATION_MS_MAX)]


class Bury(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Set records aside: by their holder, or by an operator (token 0) in any state."""

    queue: Name
    handles: Handles
    failure: Failure = ""
    """What failed and why; empty: what is known of an earlier failure stays."""


class Kick(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Make buried or delayed records ready: those named, or the first ``count`` buried ones."""

    queue: Name
    ids: Ids = []
    count: Annotated[int, Meta(ge=0, le=RECORDS_PER_COMMAND_MAX)] = 0


class Edit(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Change the key or the delay of a waiting (ready or delayed) record."""

    queue: Name
    id: Natural
    key: Key | None = None
    delay_ms: Duration | None = None


class Delete(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """End records in any state, held or not. With ``done`` their work is done: they count as acknowledged.

    ``uid`` alone names the queue, whatever ``queue`` says; so a later queue with the same name is never meant.
    """

    queue: Name
    ids: Ids
    done: bool = False
    uid: Natural = 0


class Move(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Move waiting or buried records to another queue; they begin anew there with their origin noted."""

    queue: Name
    ids: Ids
    target: Name


class Redrive(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Move the records of a queue that match, step by step, to a queue or back to where each came from."""

    queue: Name
    target: Name | None = None
    """None: to its origin, for each record that has one."""
    key_range: tuple[Key, Key] | None = None
    reason: Annotated[int, Meta(ge=0, le=255)] = 0
    """Only dead letters with this reason; 0: any."""
    count_max: Natural = 0
    rate_per_s: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    new_key: Key | None = None


class CancelJob(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Stop a redrive that is under way."""

    job: Natural


class Purge(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """End all ready and delayed records of a queue."""

    queue: Name


class Pause(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Stop or resume takes on a queue."""

    queue: Name
    paused: bool


class Stage(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Records of one part of one attempt at one partition of a writer's batch; invisible until published."""

    query: Name
    batch: Natural
    partition: Natural
    attempt: Natural
    part: Natural
    """Numbers the stages of an attempt from 0, so that a repeat is recognised."""
    puts: Puts
    is_last: bool = False
    """The batch will be published as the last one of its query, which then needs no place among those remembered."""


class Publish(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Make the named attempts of a batch visible, once; older batches and other attempts are dropped."""

    query: Name
    batch: Natural
    attempts: Annotated[list[tuple[Natural, Natural]], Meta(max_length=RECORDS_PER_COMMAND_MAX)]
    """(partition, attempt) pairs."""
    records: Natural = 0
    """How many records they must have; 0 if the writer does not say."""
    is_last: bool = False
    """No batch of this query comes after this one: it is published, and the query forgotten."""


class Abort(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Drop what is staged for a batch."""

    query: Name
    batch: Natural


class Broadcast(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A topic message: handed to live subscribers, and copied into the queues bound to it."""

    channel: Annotated[int, Meta(ge=0, le=255)]
    tag: bytes
    body: bytes
    spec: str = ""
    type: str = ""
    expires_at_us: Moment = 0


class Bind(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Copy topic messages of a spec and type (empty: any) into a queue from now on."""

    name: Name
    spec: Annotated[str, Meta(max_length=1024)]
    type: Annotated[str, Meta(max_length=1024)]
    queue: Name
    timeout_ms: Duration = 3_600_000
    paused: bool = False


class Unbind(Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Forget a binding; its queue stays."""

    name: Name


NEW_TERM: Final = 1
TICK: Final = 2
OWNER_GONE: Final = 3
CREATE_QUEUE: Final = 4
CHANGE_QUEUE: Final = 5
DELETE_QUEUE: Final = 6
PUT: Final = 7
PUT_MANY: Final = 8
TAKE: Final = 9
ACK: Final = 10
ACK_TAKE: Final = 11
RETURN: Final = 12
EXTEND: Final = 13
BURY: Final = 14
KICK: Final = 15
EDIT: Final = 16
DELETE: Final = 17
MOVE: Final = 18
REDRIVE: Final = 19
CANCEL_JOB: Final = 20
PURGE: Final = 21
PAUSE: Final = 22
STAGE: Final = 23
PUBLISH: Final = 24
ABORT: Final = 25
BROADCAST: Final = 26
BIND: Final = 27
UNBIND: Final = 28
NAME_OWNER: Final = 29

TYPES: Final[dict[int, type[Any]]] = {
    NEW_TERM: NewTerm,
    TICK: Tick,
    OWNER_GONE: OwnerGone,
    CREATE_QUEUE: CreateQueue,
    CHANGE_QUEUE: ChangeQueue,
    DELETE_QUEUE: DeleteQueue,
    PUT: Put,
    PUT_MANY: PutMany,
    TAKE: Take,
    ACK: Ack,
    ACK_TAKE: AckTake,
    RETURN: Return,
    EXTEND: Extend,
    BURY: Bury,
    KICK: Kick,
    EDIT: Edit,
    DELETE: Delete,
    MOVE: Move,
    REDRIVE: Redrive,
    CANCEL_JOB: CancelJob,
    PURGE: Purge,
    PAUSE: Pause,
    STAGE: Stage,
    PUBLISH: Publish,
    ABORT: Abort,
    BROADCAST: Broadcast,
    BIND: Bind,
    UNBIND: Unbind,
    NAME_OWNER: NameOwner,
}
"""Each operation's number and the type of its command."""

OPS: Final[dict[type[Any], int]] = {kind: op for op, kind in TYPES.items()}
DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    op: msgspec.msgpack.Decoder(kind) for op, kind in TYPES.items()
}
INTERNAL_OPS: Final = frozenset({NEW_TERM, TICK, OWNER_GONE, NAME_OWNER})
"""Operations that only the leader itself may propose."""

encode: Final = msgspec.msgpack.Encoder().encode
"""Encode a command (or any value of ours) as MessagePack."""
