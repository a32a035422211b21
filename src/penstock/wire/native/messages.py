"""The requests and replies of the native protocol.

Requests below 64 are the engine's commands, their bodies encoded as ``engine.commands`` says: they go into the log as
they came. The others stand here: reads (from 64) and what concerns the connection itself (from 96).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from penstock.engine import answers
from penstock.engine.commands import RECORDS_PER_TAKE_MAX, TYPES, Duration, Key, Name, Natural
from penstock.engine.views import BindingView, EventView, JobView, Page, QueueView, RecordView, StagedView

MAJOR: Final = 0x50454E53
"""The major version, "PENS", that asks for this protocol in a Bootstrap request."""
MINOR: Final = 1
"""The version of this protocol."""

# Status of a reply.
ANSWER: Final = 0
REFUSED: Final = 1
PUSH: Final = 2

LIST_QUEUES: Final = 64
SHOW_QUEUE: Final = 65
PEEK: Final = 66
BROWSE: Final = 67
GET: Final = 68
HISTORY: Final = 69
LIST_JOBS: Final = 70
LIST_BINDINGS: Final = 71
STATUS: Final = 72
LATEST: Final = 73
READ_JOURNAL: Final = 74
READ_ENTRIES: Final = 75
QUEUE_NAMES: Final = 76
FIND_TIME: Final = 77
CUT_JOURNAL: Final = 78
SNAPSHOT: Final = 79
READ_SNAPSHOT: Final = 80
LIST_STAGED: Final = 81

HELLO: Final = 96
SUBSCRIBE: Final = 97
UNSUBSCRIBE: Final = 98
PING: Final = 99


PIECE_BYTES_MAX: Final = 16 * 1024 * 1024
ENTRIES_PER_READ_MAX: Final = 1_000
SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of one connection."""
CUTS_MAX: Final = 10_000
"""So many ranges at most in one answer."""


class ListQueues(Struct, array_like=True, gc=False):
    """All queues with their figures, in the order in which they were made."""


class ShowQueue(Struct, array_like=True, gc=False):
    """One queue with its figures."""

    queue: Name


class Peek(Struct, array_like=True, gc=False):
    """The records that would be taken next, untouched."""

    queue: Name
    count: Annotated[int, Meta(ge=1, le=RECORDS_PER_TAKE_MAX)] = 1


class Browse(Struct, array_like=True, gc=False):
    """Records in the order of their ids, from a cursor on. A page may be empty though more follow: go on until 0."""

    queue: Name
    state: Annotated[int, Meta(ge=0, le=3)] | None = None
    key_range: tuple[Key, Key] | None = None
    cursor: Natural = 0
    count: Annotated[int, Meta(ge=1, le=RECORDS_PER_TAKE_MAX)] = 100


class Get(Struct, array_like=True, gc=False):
    """One record by its id, in whatever state."""

    queue: Name
    id: Natural


class History(Struct, array_like=True, gc=False):
    """The life of one message, from the journal; also after it ended, as far back as the journal is kept."""

    queue: Name
    id: Natural


class ListJobs(Struct, array_like=True, gc=False):
    """Redrives under way, and those that ended lately."""


class ListBindings(Struct, array_like=True, gc=False):
    """The bindings of topic messages to queues."""


class ListStaged(Struct, array_like=True, gc=False):
    """The batches that are staged and not published."""


class Status(Struct, array_like=True, gc=False):
    """The node's own figures."""


class Latest(Struct, array_like=True, gc=False):
    """How far the history reaches. Waits up to ``wait_ms`` for an entry after ``after`` to be applied."""

    after: int = -1
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


class ReadJournal(Struct, array_like=True, gc=False):
    """A piece of the history from an entry on, raw: events, and the log that they refer to.

    It ends at ``last_index`` or earlier: with its segment, or where it would grow beyond ``bytes_max``; at least one
    entry is given. With ``in_parts``, a piece that is longer than one answer comes in several: the request for the next
    part repeats ``first_index``, has the piece's ``last_index``, and says how many bytes of each the client has.
    """

    first_index: Natural
    last_index: Natural
    bytes_max: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX
    with_log: bool = True
    in_parts: bool = False
    blocks_from: Natural = 0
    log_from: Natural = 0


class ReadEntries(Struct, array_like=True, gc=False):
    """Single entries of the log, for events that refer to older ones."""

    indexes: Annotated[list[Natural], Meta(max_length=ENTRIES_PER_READ_MAX)]
    in_parts: bool = False
    """Whether an entry that is longer than one answer may come in several."""
    offset: Natural = 0
    """The bytes of the first of these entries that are there already."""


class QueueNames(Struct, array_like=True, gc=False):
    """The names of all queues by their uids, also of those that were deleted lately."""


class FindTime(Struct, array_like=True, gc=False):
    """The first entry that was stamped at a time or later."""

    time_us: Natural


class CutJournal(Struct, array_like=True, gc=False):
    """Cut some entries into consecutive ranges, each as long as possible within limits of events and bytes.

    A limit of 0 is none. A range has at least one block of the journal, and ends where a block ends.
    """

    first_index: Natural
    last_index: Natural
    rows_max: Natural = 0
    bytes_max: Natural = 0
    count_max: Annotated[int, Meta(ge=0, le=CUTS_MAX)] = 0


class Snapshot(Struct, array_like=True, gc=False):
    """Have a snapshot of the state at an entry or a later one. Waits up to ``wait_ms`` for it to be taken."""

    at_least: Natural = 0
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


class ReadSnapshot(Struct, array_like=True, gc=False):
    """Some bytes of a snapshot."""

    index: Natural
    offset: Natural
    bytes_max: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX


class Hello(Struct, array_like=True, gc=False):
    """Who the client is. With a producer id, commands repeated with the same request number are done once."""

    producer: Natural = 0
    client: Annotated[str, Meta(max_length=255)] = ""
    frame_bytes_max: Natural = 0
    """The longest frame that the client reads; 0 means ``FRAME_BYTES_MAX``, less than 1 MiB is not possible."""


class Subscribe(Struct, array_like=True, gc=False):
    """Push records as they come, while at most ``window`` of them are neither acknowledged nor given back.

    Each push is a frame with status PUSH, the request number of the subscription, and ``Taken`` as its body.
    """

    queue: Name
    window: Annotated[int, Meta(ge=1, le=10_000)] = 100
    lease_ms: Duration | None = None


class Unsubscribe(Struct, array_like=True, gc=False):
    """End a subscription, named by its request number. Records already pushed stay leased."""

    subscription: Natural


class Ping(Struct, array_like=True, gc=False):
    """Answered at once; keeps an idle connection open."""

    waiting: Annotated[list[Natural], Meta(max_length=SUBSCRIPTIONS_MAX)] = []
    """Subscriptions whose consumer waits: places that were left by leases that have ended are filled again."""


class Welcome(Struct, array_like=True, gc=False):
    """What the client should know of the node."""

    version: str
    cluster: str
    node: int
    term: int
    payload_bytes_max: int
    frame_bytes_max: int = 0
    """The longest frame that the node reads; 0 for a node that does not say."""


class NodeStatus(Struct, array_like=True, gc=False):
    """A node's own figures."""

    version: str
    cluster: str
    node: int
    term: int
    leader: int
    applied_index: int
    log_time_us: int
    snapshot_index: int
    mode: str
    connections: int
    records: int
    memory_bytes: int
    memory_bytes_max: int
    disk_full: bool
    uptime_ms: int
    buffer_bytes: int = 0
    """What the buffers of all connections need; part of ``memory_bytes``."""
    connections_max: int = 0
    memory: dict[str, int] = {}
    """What ``memory_bytes`` consists of, by kind; kinds may be added."""


class Reach(Struct, array_like=True, gc=False):
    """How far the history reaches."""

    cluster: str
    first_index: int
    """The oldest entry whose events and bytes are kept."""
    applied_index: int
    """The last entry that was applied; -1 if there is none."""
    log_time_us: int


class JournalPiece(Struct, array_like=True, gc=False):
    """Some entries' events and bytes, as they lie in the files of journal and log (docs/protocols/native.md)."""

    first_index: int
    last_index: int
    blocks: bytes
    """Blocks of the journal, one behind the other; the first and the last may hold events of entries around these."""
    offsets: bytes
    """Where the record of each entry begins, and where the last one ends: Int64, little-endian, from the file's start.
    """
    log: bytes
    """The log from the first of these offsets on. Empty, as the offsets are, if it was not asked for."""
    seed: int = 0
    """What the checksum of each record of the log starts from."""
    blocks_bytes: int = 0
    """The length of all blocks of the piece, where this is only a part of it; 0 with ``log_bytes`` 0: it is whole."""
    log_bytes: int = 0
    """The length of the log of the piece, where this is only a part of it."""
    sums: bytes = b""
    """UInt32, little-endian: the crc32c of each chunk of 64 KiB of the log file that lies wholly in the piece; 0 where
    it is not known."""


class NamedQueue(Struct, array_like=True, gc=False):
    """A queue's number in the history, and its name."""

    uid: int
    name: str


class EntriesRead(Struct, array_like=True, gc=False):
    """Bytes of entries in the order asked for, null for one that is gone; fewer where they would be too many bytes."""

    entries: list[bytes | None]
    entry_bytes: int = 0
    """The length of the first entry, where only a part of it is here; 0: all entries are whole."""


class IndexFound(Struct, array_like=True, gc=False):
    """An entry, one behind the last if there is none."""

    index: int


class Cut(Struct, array_like=True, gc=False):
    """A range of entries: it begins where the one before ended. Events and bytes are those of whole blocks."""

    last_index: int
    rows: int
    bytes: int


class SnapshotTaken(Struct, array_like=True, gc=False):
    """A snapshot that can be read."""

    index: int
    """The entry after which the state was so; -1: it is still being taken, ask again."""
    bytes: int


class SnapshotPiece(Struct, array_like=True, gc=False):
    """Some bytes of a snapshot; none behind its end."""

    data: bytes


REQUESTS: Final[dict[int, type[Any]]] = {
    LIST_QUEUES: ListQueues,
    SHOW_QUEUE: ShowQueue,
    PEEK: Peek,
    BROWSE: Browse,
    GET: Get,
    HISTORY: History,
    LIST_JOBS: ListJobs,
    LIST_BINDINGS: ListBindings,
    STATUS: Status,
    LATEST: Latest,
    READ_JOURNAL: ReadJournal,
    READ_ENTRIES: ReadEntries,
    QUEUE_NAMES: QueueNames,
    FIND_TIME: FindTime,
    CUT_JOURNAL: CutJournal,
    SNAPSHOT: Snapshot,
    READ_SNAPSHOT: ReadSnapshot,
    LIST_STAGED: ListStaged,
    HELLO: Hello,
    SUBSCRIBE: Subscribe,
    UNSUBSCRIBE: Unsubscribe,
    PING: Ping,
}
"""Requests that are no commands, by number."""

CODES: Final[dict[type[Any], int]] = {kind: op for op, kind in (TYPES | REQUESTS).items()}
"""The number of every request, by its type."""

DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    op: msgspec.msgpack.Decoder(kind) for op, kind in REQUESTS.items()
}

ANSWERS: Final[dict[int, Any]] = {
    **{op: answers.TYPES.get(op, answers.Done) for op in TYPES},
    LIST_QUEUES: list[QueueView],
    SHOW_QUEUE: QueueView,
    PEEK: list[RecordView],
    BROWSE: Page,
    GET: RecordView,
    HISTORY: list[EventView],
    LIST_JOBS: list[JobView],
    LIST_BINDINGS: list[BindingView],
    STATUS: NodeStatus,
    LATEST: Reach,
    READ_JOURNAL: JournalPiece,
    READ_ENTRIES: EntriesRead,
    QUEUE_NAMES: list[NamedQueue],
    FIND_TIME: IndexFound,
    CUT_JOURNAL: list[Cut],
    SNAPSHOT: SnapshotTaken,
    READ_SNAPSHOT: SnapshotPiece,
    LIST_STAGED: list[StagedView],
    HELLO: Welcome,
    SUBSCRIBE: answers.Done,
    UNSUBSCRIBE: answers.Done,
    PING: answers.Done,
}
"""The type of the answer to every request, by number."""

ANSWER_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    op: msgspec.msgpack.Decoder(kind) for op, kind in ANSWERS.items()
}
