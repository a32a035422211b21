"""How tests drive an engine: commands as calls, time as a value that the test advances.

Every entry goes through its log form: it is encoded, kept in ``log``, decoded and only then applied, so that what is
tested is what a replay would do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw

from penstock.engine import Engine, reading
from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.entries import Command, Entry, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.snapshot import begin, restore
from penstock.engine.views import QueueView, RecordView

START_US = 1_700_000_000_000_000
BUCKET_US = 8192
"""A timer fires when the bucket of this length that it is due in has wholly passed."""

Wanted = TypeVar("Wanted")
Handles = list[tuple[int, int]]


@dataclass(frozen=True)
class Event:
    """A row of the journal, unpacked."""

    index: int
    n: int
    item: int
    kind: int
    door: int
    reason: int
    deliveries: int
    time_us: int
    owner: int
    queue: int
    record: int
    key: int
    value: int
    other_queue: int
    other_record: int
    payload_index: int
    payload_offset: int
    payload_bytes: int
    headers_offset: int
    headers_bytes: int

    @property
    def name(self) -> str:
        """What happened, in words."""
        return j.KINDS[self.kind][0]


class Asked(NamedTuple):
    """A command and who asks for it."""

    args: Any
    owner: int = 0
    door: int = j.DOOR_NATIVE
    producer: int = 0
    request: int = 0


def to_command(asked: Asked) -> Command:
    """A command on its way into the log."""
    op = c.OPS[type(asked.args)]
    return Command(op, asked.door, asked.owner, asked.producer, asked.request, c.encode(asked.args), asked.args)


def item(key: int = 0, payload: bytes = b"", headers: dict[str, str] | None = None, **options: Any) -> c.Item:
    """One record to be put; a plain one where no option is given."""
    if headers is not None:
        options["headers"] = Raw(c.encode(headers))
    return c.Item(key, payload, c.Options(**options) if options else None)


def handles(taken: a.Taken) -> Handles:
    """What to acknowledge a take with."""
    return [(record.id, taken.token) for record in taken.records]


def expect(kind: type[Wanted], answer: Any) -> Wanted:
    """The answer, which must be of this kind."""
    assert isinstance(answer, kind), f"{kind.__name__} was expected, not {answer!r}"
    return answer


class Drive:
    """An engine, its log, and the clock that its entries are stamped with."""

    def __init__(self, rules: int = c.RULES) -> None:
        self.engine = Engine()
        self.rules = rules
        self.log: list[tuple[int, bytes]] = []
        self.rows: list[bytes] = []
        self.now_us = START_US
        self.term = 0
        self.new_term()

    # --- entries and time

    def apply(self, *batch: Asked) -> list[a.Answer]:
        """One entry with these commands."""
        data = encode_entry(Entry(self.now_us, [to_command(asked) for asked in batch]))
        return self.apply_bytes(data)

    def apply_bytes(self, data: bytes) -> list[a.Answer]:
        """One entry in its log form."""
        index = len(self.log)
        self.log.append((self.term, data))
        answers = self.engine.apply(index, self.term, decode_entry(data))
        self.rows += self.engine.state.rows
        self.engine.state.rows.clear()
        return answers

    def do(self, args: Any, owner: int = 0, **who: int) -> Any:
        """One entry with one command; its answer."""
        return self.apply(Asked(args, owner, **who))[0]

    def new_term(self) -> None:
        """Another leader, or the same one after a restart, begins its term."""
        self.term += 1
        self.do(c.NewTerm(1, rules=self.rules), door=j.DOOR_NODE)

    def tick(self) -> None:
        """An entry that brings nothing but its time."""
        self.do(c.Tick(), door=j.DOOR_NODE)

    def wait(self, ms: int) -> None:
        """Let time pass, and a little more so that timers due by then have fired."""
        self.now_us += ms * 1000 + BUCKET_US
        self.tick()

    def restart(self) -> None:
        """Go on with an engine that is restored from a snapshot of this one."""
        self.engine = restore(self.snapshot())

    def snapshot(self) -> list[bytes]:
        """The state at this index, in blocks."""
        return list(begin(self.engine))

    def owner(self, connection: int) -> int:
        """The number of a connection of this term."""
        return self.term << 32 | connection

    # --- commands

    def create(self, name: str, **settings: Any) -> a.Created:
        """Make a queue."""
        return expect(a.Created, self.do(c.CreateQueue(name, c.QueueSettings(**settings))))

    def change(self, name: str, **changes: Any) -> a.Done:
        """Change a queue's settings."""
        return expect(a.Done, self.do(c.ChangeQueue(name, c.QueueChanges(**changes))))

    def put(self, queue: str, key: int = 0, payload: bytes = b"", **options: Any) -> int:
        """Put one record that must be accepted; its id."""
        answer = expect(a.PutAnswer, self.try_put(queue, key, payload, **options))
        assert (answer.count, answer.exceptions) == (1, []), answer
        return answer.first

    def try_put(self, queue: str, key: int = 0, payload: bytes = b"", **options: Any) -> a.PutAnswer | Refusal:
        """Put one record; whatever the answer."""
        answer: a.PutAnswer | Refusal = self.do(c.Put(queue, [item(key, payload, **options)]))
        return answer

    def put_keys(self, queue: str, keys: Iterable[int]) -> a.PutAnswer:
        """Put a record for each key, in one command."""
        return expect(a.PutAnswer, self.do(c.Put(queue, [item(key) for key in keys])))

    def take(self, queue: str, count: int = 1, owner: int = 0, **more: Any) -> a.Taken:
        """Take records."""
        return expect(a.Taken, self.do(c.Take(queue, count, **more), owner))

    def take_ids(self, queue: str, count: int = 1000, **more: Any) -> list[int]:
        """Take records; their ids in the order of service."""
        return [record.id for record in self.take(queue, count, **more).records]

    def ack(self, queue: str, held: Handles) -> a.Handled:
        """End leased records."""
        return expect(a.Handled, self.do(c.Ack(queue, held)))

    def give_back(self, queue: str, held: Handles, how: int = c.NACK, delay_ms: int = 0) -> a.Handled:
        """Nack, release or unsend leased records."""
        return expect(a.Handled, self.do(c.Return(queue, held, how, delay_ms)))

    def bury(self, queue: str, *ids: int) -> a.Handled:
        """Set records aside as an operator."""
        return expect(a.Handled, self.do(c.Bury(queue, [(record_id, 0) for record_id in ids])))

    # --- looking

    def view(self, queue: str) -> QueueView:
        """A queue and its figures."""
        return expect(QueueView, reading.show_queue(self.engine.state, queue))

    def record(self, queue: str, record_id: int) -> RecordView:
        """A living record."""
        return expect(RecordView, reading.get(self.engine.state, queue, record_id))

    def records(self, queue: str) -> list[RecordView]:
        """All living records of a queue, by id."""
        page = reading.browse(self.engine.state, queue, None, None, 0, 1_000_000)
        assert not isinstance(page, Refusal), page
        return page.records

    def ready_ids(self, queue: str) -> list[int]:
        """The ready records in the order in which they would be served."""
        peeked = reading.peek(self.engine.state, queue, 1_000_000)
        assert not isinstance(peeked, Refusal), peeked
        return [record.id for record in peeked]

    def events(self) -> list[Event]:
        """The journal so far."""
        return events_of(self.rows)


def events_of(rows: Iterable[bytes]) -> list[Event]:
    """Rows of the journal, unpacked."""
    return [Event(*j.ROW.unpack(row)) for row in rows]
