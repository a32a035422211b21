"""Histories for the tests of the data source: made by the real engine and the real store, with every kind of event.

Log time is made up, so that leases run out and delays end without waiting, and a history is the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock.client.events import read_events
from penstock.client.history import HistoryReader
from penstock.engine import commands as c
from penstock.engine.answers import Answer, PutAnswer, Taken
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.journal import (
    BROADCAST,
    DOOR_ETZEL,
    DOOR_NATIVE,
    DOORS,
    KINDS,
    OWNER_NAMED,
    PUT,
    REASONS,
    ROW_BYTES,
)
from penstock.engine.machine import Engine
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from penstock.testing import OTHER_DOORS_CLOSED, TestServer
from penstock.wire.monique.bodies import Body, encode_body
from penstock.wire.monique.tags import Dialect
from penstock.wire.native.messages import CODES

BEGIN_US = 1_767_225_600_000_000
"""2026-01-01."""
SEGMENT_BYTES = 8192
NO_QUEUE_KINDS = (
    *("broadcast", "unbound", "staged", "published", "aborted"),
    *("new term", "owner gone", "owner named", "unreadable"),
)
UNTIL_KINDS = ("put", "returned", "edited", "taken", "extended")
CLUSTER = bytes(range(16))


class OnDisk(TestServer):
    """A server with a data directory, whose log has many short segments."""

    def __init__(self, data_dir: Path, port: int = 0, **storage: int) -> None:
        chosen = {"segment_bytes": SEGMENT_BYTES, "reserve_bytes": 0, **storage}
        super().__init__(
            Settings(
                data_dir=str(data_dir),
                taskflux=TaskfluxSettings(port=port),
                storage=StorageSettings(**chosen),
                **OTHER_DOORS_CLOSED,
            ),
            in_memory=False,
        )

    @property
    def endpoint(self) -> str:
        """The option of that name."""
        return f"{self.host}:{self.port}"


class Making:
    """A data directory that grows by commands."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.engine = Engine()
        self.stamp_us = BEGIN_US

    def do(self, *commands: Any, door: int = DOOR_NATIVE, owner: int = 1 << 32 | 7, after_us: int = 1_000_000) -> Any:
        """Apply commands as one entry; the answer of the last."""
        made = [
            each if isinstance(each, Command) else Command(CODES[type(each)], door, owner, 0, 0, c.encode(each), None)
            for each in commands
        ]
        return self._apply(made, after_us)[-1]

    def _apply(self, commands: list[Command], after_us: int) -> list[Answer]:
        self.stamp_us += after_us
        data = encode_entry(Entry(self.stamp_us, commands))
        entry = decode_entry(data)
        assert entry is not None
        st = self.engine.state
        index = st.index + 1
        self.store.append([(index, 1, data)])
        answers = self.engine.apply(index, 1, entry)
        self.store.journal_append(index, b"".join(st.rows), len(data))
        for leftovers in (st.rows, st.woken, st.broadcasts):
            leftovers.clear()
        self.store.sync()
        return answers


@contextmanager
def making(data_dir: Path, *, cluster: bytes = CLUSTER, segment_bytes: int = SEGMENT_BYTES) -> Iterator[Making]:
    """A new data directory, to be filled."""
    settings = StoreSettings(segment_bytes=segment_bytes, reserve_bytes=0)
    store, _ = Store.open(data_dir, row_bytes=ROW_BYTES, new_cluster_id=cluster, node_id=0, settings=settings)
    try:
        made = Making(store)
        made.do(c.NewTerm(0))
        yield made
    finally:
        store.close()


def options(**given: Any) -> c.Options:
    """An item's options, its headers packed."""
    headers = given.pop("headers", None)
    return c.Options(**given) if headers is None else c.Options(**given, headers=msgspec.Raw(c.encode(headers)))


def a_bit_of_everything(made: Making) -> None:
    """Every kind of event, some of them in several ways."""
    _lives(made)
    _failures(made)
    _operations(made)
    _batches(made)
    _topics(made)
    _the_rest(made)


def _take(made: Making, queue: str, count: int = 1, lease_ms: int | None = None) -> list[tuple[int, int]]:
    taken = made.do(c.Take(queue, count, lease_ms))
    assert isinstance(taken, Taken)
    assert len(taken.records) == count
    return [(record.id, taken.token) for record in taken.records]


def _lives(made: Making) -> None:
    made.do(c.CreateQueue("jobs", c.QueueSettings()), c.CreateQueue("letters", c.QueueSettings()))
    made.do(c.CreateQueue("gone", c.QueueSettings()))
    made.do(c.Put("jobs", [c.Item(number % 3 - 1, b"payload %d" % number * (number % 5 + 1)) for number in range(20)]))
    made.do(c.Put("jobs", [c.Item(5, b"")]), c.Put("jobs", [c.Item(6, b"with", options(headers={"a": "1", "ü": ""}))]))
    made.do(c.Put("jobs", [c.Item(5, b"once", options(dedup_key="k")), c.Item(5, b"twice", options(dedup_key="k"))]))
    made.do(c.Put("jobs", [c.Item(7, b"later", options(delay_ms=500)), c.Item(7, b"short", options(expires_ms=1_500))]))
    made.do(c.Tick())
    handles = _take(made, "jobs", 4)
    made.do(c.Ack("jobs", handles[:2]), c.Extend("jobs", handles[2:], 90_000))
    made.do(
        c.Return("jobs", handles[2:3], c.NACK, 0, 0, "größer als erlaubt"),
        c.Return("jobs", handles[3:], c.RELEASE, 2_000),
        door=DOOR_ETZEL,
    )
    made.do(c.Tick(), after_us=2_500_000)
    made.do(c.Take("jobs", final=True))


def _failures(made: Making) -> None:
    made.do(c.CreateQueue("strict", c.QueueSettings(deliveries_max=1, dead_letter="letters")))
    made.do(c.Put("strict", [c.Item(1, b"poison %d" % number) for number in range(3)]))
    handles = _take(made, "strict", 2, 3_000)
    made.do(c.Return("strict", handles[:1], c.NACK, 0, 0, "boom"), c.NameOwner(77, "worker größer"))
    made.do(c.Tick(), after_us=5_000_000)
    (unsent,) = _take(made, "strict")
    made.do(c.Return("strict", [unsent], c.UNSENT))
    _take(made, "strict", lease_ms=0)
    made.do(c.OwnerGone(1 << 32 | 7))


def _operations(made: Making) -> None:
    answer = made.do(c.Put("jobs", [c.Item(9, b"operated on %d" % number) for number in range(8)]))
    assert isinstance(answer, PutAnswer)
    first = answer.first
    made.do(c.Bury("jobs", [(first, 0), (first + 1, 0)], "set aside"))
    made.do(c.Kick("jobs", [first]), c.Edit("jobs", first + 2, key=-4), c.Edit("jobs", first + 3, delay_ms=60_000))
    made.do(c.Delete("jobs", [first + 4]), c.Move("jobs", [first + 5], "letters"))
    made.do(c.Redrive("letters", "jobs", new_key=11))
    made.do(c.Tick())
    made.do(c.Pause("jobs", True), c.ChangeQueue("jobs", c.QueueChanges(lease_ms=30_000)), c.Pause("jobs", False))


def _batches(made: Making) -> None:
    """Publications bring payloads of older entries, also out of the order in which these lie in the log."""
    for partition in (1, 0):
        for part in range(2):
            items = [c.Item(3, b"staged %d %d %d " % (partition, part, number) * 9) for number in range(30)]
            items.append(c.Item(3, b"", options(headers={"part": str(part)})))
            made.do(c.Stage("query", 1, partition, 4, part, [("jobs", items)]))
    made.do(c.Publish("query", 1, [(0, 4), (1, 4)]))
    made.do(c.Tick())
    made.do(c.Stage("query", 2, 0, 0, 0, [("jobs", [c.Item(3, b"dropped")])]))
    made.do(c.Abort("query", 2))


def body(number: int, dialect: Dialect = Dialect.CURRENT, **given: Any) -> Body:
    """A message of MoniQue."""
    fields: dict[str, Any] = {
        "type": "config",
        "spec": "calc",
        "id": f"id{number}",
        "pid": "",
        "creator": "tester",
        "created_at_ms": 1_767_225_600_123,
        "expires_at_ms": 0,
        "encoding": "JSON",
        "data": b"[%d]" % number,
        "dialect": dialect,
    }
    return Body(**fields | given)


def _topics(made: Making) -> None:
    made.do(c.Bind("copy", "calc", "", "copies"))
    messages = [
        (0, body(1)),
        (2, body(2, Dialect.LEGACY, pid="id1", type="result")),
        (1, body(3, spec="monitoring", type="data", expires_at_ms=1_767_225_700_000)),
        (3, body(4, Dialect.LEGACY)),
    ]
    for channel, message in messages:
        made.do(c.Broadcast(channel, message.tag.encode(), encode_body(message), message.spec, message.type))
    made.do(c.Broadcast(0, b"config:calc:id5::someone", b"not a body"), c.Broadcast(0, b"\xff no tag", b""))
    made.do(c.Unbind("copy"))


def _the_rest(made: Making) -> None:
    made.do(c.Put("gone", [c.Item(1, b"lost with its queue")]), c.Put("", [c.Item(1, b"in the default queue")]))
    made.do(c.DeleteQueue("gone"))
    made.do(Command(CODES[c.Put], DOOR_NATIVE, 0, 0, 0, b"\xc1", None))
    for number in range(60):
        made.do(c.Put("jobs", [c.Item(number, b"filler %d " % number * 20)] * (number % 4 + 1)))
    made.do(c.Purge("jobs"))


def expected_events(reader: HistoryReader, first_index: int, last_index: int) -> list[dict[str, Any]]:
    """The rows of `events` from the reader that goes one row at a time; times are numbers."""
    names = reader.queue_names()
    terms = _terms(reader, first_index, last_index)
    return [_expected(event, names, terms) for event in read_events(reader, first_index, last_index)]


def _terms(reader: HistoryReader, first_index: int, last_index: int) -> dict[int, int]:
    found = {}
    for piece in reader.pieces(first_index, last_index):
        offsets = memoryview(piece.offsets).cast("q").tolist()
        for number, offset in enumerate(offsets[:-1]):
            at = offset - offsets[0]
            found[piece.first_index + number] = int.from_bytes(piece.log[at : at + 4], "little")
    return found


def _expected(event: Any, names: dict[int, str], terms: dict[int, int]) -> dict[str, Any]:
    view = event.view
    kind = KINDS[view.kind][0]
    brings = view.kind in (PUT, BROADCAST)
    is_topic = view.kind == BROADCAST
    headers = msgspec.msgpack.decode(event.headers) if event.headers and view.kind == PUT else None
    return {
        "index": view.index,
        "n": view.n,
        "item": view.item,
        "term": terms[view.index],
        "time": view.time_us,
        "kind": kind,
        "queue": None if kind in NO_QUEUE_KINDS else names.get(view.queue_uid),
        "queue_uid": view.queue_uid,
        "id": view.id,
        "key": view.key,
        "payload": event.payload if brings else None,
        "payload_bytes": len(event.payload) if brings else None,
        "headers": headers,
        "tag": event.headers.decode("utf-8", "replace") if is_topic else None,
        "channel": ("tech" if view.value & 1 else "com") if is_topic else None,
        "door": DOORS[view.door],
        "owner": view.owner,
        "deliveries": view.deliveries,
        "reason": REASONS[view.reason] or None,
        "until": (view.value or None) if kind in UNTIL_KINDS else None,
        "value": view.value,
        "other_queue_uid": view.other_queue_uid,
        "other_id": view.other_id,
        "text": (event.payload.decode() if view.kind == OWNER_NAMED else view.text) or None,
    }


def let_a_node_take_a_snapshot(data_dir: Path) -> None:
    """Work on a data directory until there is a snapshot: what lies before it may go."""
    with OnDisk(data_dir, snapshot_bytes=4096) as server, penstock.connect_sync(server.url) as client:
        while not client.status().snapshot_index > 0:
            client.queue("jobs").put_many([b"x" * 100] * 100)


def lose_a_stretch(data_dir: Path) -> tuple[int, int]:
    """Take the journal of a segment in the middle away, before a snapshot: its events cannot be made again.

    Gives the first and the last entry that are lost. The directory has to have a few segments.
    """
    let_a_node_take_a_snapshot(data_dir)
    layout = Layout(data_dir)
    _, _, lost, following, *_ = layout.sealed_first_indexes()
    layout.sealed_events(lost).unlink()
    return lost, following - 1
