"""A Hypothesis state machine that holds the engine against the naive model.

Three things must agree after every entry: the model; an engine that is looked at all the time and at random moments
restored from its own snapshot; and a replica that only applies the log. Answers, figures and contents are compared with
the model, snapshots and journals with the replica to the byte.

Rules collect commands; mostly an entry is made of each at once, sometimes of several.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as s
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import Raw, structs

from penstock.engine import Engine, reading
from penstock.engine import commands as c
from penstock.engine.entries import Entry, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.snapshot import begin, restore
from tests.engine.busy import BusyMoment
from tests.engine.driving import START_US, Asked, to_command
from tests.engine.model import LEASED, READY, Queue, Record
from tests.engine.model_tools import FullModel
from tests.engine.recounting import recount

JOBS, SMALL, DEAD, OTHER = "jobs", "small", "dead", "other"
NAMES = (JOBS, SMALL, DEAD, OTHER, "")
EVERYTHING = 1_000_000

names = s.sampled_from((JOBS, JOBS, JOBS, JOBS, SMALL, SMALL, DEAD, OTHER, ""))
any_names = names | s.just("absent")
keys = s.sampled_from((0, 0, 0, 1, 1, -1, 2, 3, -2, c.INT64_MIN, c.INT64_MAX))
payloads = s.sampled_from((b"", b"a", b"bb", b"ccc", b"dddd"))
delays_ms = s.sampled_from((0, 0, 5, 20, 1000))
leases_ms = s.sampled_from((None, None, 0, 0, 10, 50, 2000))
steps_us = s.sampled_from((1, 1000, 8191, 8192, 8193, 20_000, 30_000, 120_000, 1_100_000, 3_000_000))
long_steps_us = s.sampled_from((60_000_000, 3_600_000_000, 86_400_000_000))
dedup_keys = s.sampled_from((None, "k1", "k2", "k3"))
counts = s.sampled_from((1, 1, 2, 3, 10))
failures = s.sampled_from(("", "why", "größer", "ä" * 600))
at_once = s.sampled_from((True, True, True, False))
key_ranges = s.sampled_from((None, (-1, 1), (0, 3), (1, 0)))
headers = s.sampled_from((c.NO_RAW, c.NO_RAW, Raw(c.encode({"a": "b"})), Raw(c.encode({"long": "x" * 70}))))

options = s.builds(
    c.Options,
    delay_ms=delays_ms,
    expires_ms=s.sampled_from((0, 0, 0, 20, 2000)),
    headers=headers,
    dedup_key=dedup_keys,
    lease_ms=s.sampled_from((0, 0, 0, 30)),
    available_at_us=s.sampled_from((0, 0, 0, 0, 1, START_US + 100_000)),
    expires_at_us=s.sampled_from((0, 0, 0, 0, 0, 1, START_US + 2_000_000)),
    delay_to_tail=s.booleans(),
)
plain_items = s.builds(c.Item, keys, payloads)
rich_items = s.builds(c.Item, keys, payloads, options)
keyed_items = s.builds(c.Item, s.integers(-2, 2), payloads, s.builds(c.Options, dedup_key=dedup_keys))
some_puts = s.lists(s.tuples(names, s.lists(keyed_items | rich_items, max_size=3)), min_size=1, max_size=3)

some_changes: dict[str, s.SearchStrategy[Any]] = {
    "size_max": s.sampled_from((None, None, 0, 2, 4)),
    "payload_bytes_max": s.sampled_from((None, 2)),
    "lease_ms": s.sampled_from((0, 25, 60_000)),
    "deliveries_max": s.integers(0, 3),
    "dead_letter": s.sampled_from((None, DEAD, DEAD, OTHER, JOBS, "nowhere", "not a name")),
    "expires_ms": s.sampled_from((0, 0, 15, 900)),
    "dead_letter_expired": s.booleans(),
    "dedup_window_ms": s.sampled_from((0, 30, 5000)),
    "dedup_keys_max": s.integers(1, 3),
}
changes = s.fixed_dictionaries({}, optional=some_changes).map(lambda said: c.QueueChanges(**said))
new_settings = s.builds(
    c.QueueSettings,
    implementation=s.sampled_from((c.H4, c.H4, c.QA, 3)),
    size_max=s.sampled_from((None, 1, 3)),
    key_range=s.sampled_from((None, (-2, 2), (1, 0))),
    descending=s.booleans(),
    lease_ms=s.sampled_from((0, 40, 60_000)),
    deliveries_max=s.integers(0, 2),
    dead_letter=s.sampled_from((None, DEAD, JOBS, "later")),
    expires_ms=s.sampled_from((0, 0, 200)),
    dedup_window_ms=s.sampled_from((0, 40, 600_000)),
    dedup_keys_max=s.sampled_from((1, 2, 100_000)),
)

managing = s.one_of(
    s.builds(c.Purge, any_names),
    s.builds(c.Pause, any_names, s.sampled_from((True, False, False))),
    s.builds(c.CreateQueue, s.sampled_from((OTHER, "later", "nowhere", "bad name")), new_settings, s.booleans()),
    s.builds(c.ChangeQueue, any_names, changes),
    s.builds(c.DeleteQueue, s.sampled_from((OTHER, OTHER, "later", "nowhere", DEAD, ""))),
)
redriving = s.builds(
    c.Redrive,
    s.sampled_from((DEAD, DEAD, JOBS, "absent")),
    s.sampled_from((None, None, JOBS, SMALL, OTHER, "absent")),
    key_ranges,
    reason=s.sampled_from((0, 0, 0, 1, 7)),
    count_max=s.integers(0, 2),
    rate_per_s=s.sampled_from((0, 0, 5, 20)),
    new_key=s.sampled_from((None, None, 1)),
)
small_numbers = s.integers(0, 1)
attempts = s.lists(s.tuples(small_numbers, small_numbers), max_size=2)
staging = s.one_of(
    s.builds(
        c.Stage, s.just("q"), s.integers(0, 2), small_numbers, small_numbers, small_numbers, some_puts, s.booleans()
    ),
    s.builds(
        c.Publish,
        s.just("q"),
        s.integers(0, 2),
        s.lists(s.tuples(small_numbers, small_numbers), max_size=2),
        s.integers(0, 2),
        s.booleans(),
    ),
    s.builds(c.Abort, s.just("q"), s.integers(0, 2)),
)
topics = s.one_of(
    s.builds(
        c.Broadcast,
        s.just(3),
        s.just(b"tag\xff"),
        payloads,
        s.sampled_from(("", "x", "y")),
        s.just("t"),
        s.sampled_from((0, 0, START_US + 2_000_000)),
    ),
    s.builds(c.Bind, s.sampled_from(("b1", "b2", "")), s.sampled_from(("", "x")), s.just(""), names, s.just(70)),
    s.builds(c.Bind, s.just("b1"), s.just(""), s.sampled_from(("", "t")), names, s.just(70), s.booleans()),
    s.builds(c.Unbind, s.sampled_from(("b1", "b2"))),
)


class EngineMachine(RuleBasedStateMachine):
    """Random commands and time, on the model and on both engines."""

    def __init__(self) -> None:
        super().__init__()
        self.model = FullModel()
        self.engine, self.replica = Engine(), Engine()
        self.rows: list[bytes] = []
        self.replica_rows: list[bytes] = []
        self.index, self.term, self.now_us = -1, 0, START_US
        self.pending: list[Asked] = []
        self.said: list[Asked] = []
        self.requests = 0
        self.new_term()

    # --- entries

    def ask(self, args: Any, at_once: bool = True, connection: int = 0, producer: int = 0) -> None:
        """Propose a command, and with ``at_once`` make an entry of all that were proposed."""
        owner = self.term << 32 | connection if connection else 0
        asked = Asked(args, owner, producer=producer, request=self.requests if producer else 0)
        if producer:
            self.requests += 1
            self.said.append(asked)
        self.pending.append(asked)
        if at_once or len(self.pending) == 4:
            self.commit()

    def commit(self) -> None:
        """Apply an entry to all three, and compare."""
        batch, self.pending = self.pending, []
        self.index += 1
        data = encode_entry(Entry(self.now_us, [to_command(asked) for asked in batch]))
        self.applied(data)
        expected = self.model.apply(self.index, self.term, self.now_us, batch)
        for engine, rows in ((self.engine, self.rows), (self.replica, self.replica_rows)):
            entry = decode_entry(data)
            assert entry is not None
            answers = engine.apply(self.index, self.term, entry)
            assert [without_text(answer) for answer in answers] == [without_text(answer) for answer in expected]
            rows += engine.state.rows
            engine.state.rows.clear()
            assert engine.state.memory_by_kind() == recount(engine.state)
        self.compare()

    def applied(self, data: bytes) -> None:
        """For those who want to see each entry in its log form."""

    def compare(self) -> None:
        """Figures, contents and order, queue by queue."""
        state = self.engine.state
        assert set(state.by_name) == set(self.model.queues)
        for view in reading.list_queues(state):
            queue = self.model.queues[view.name]
            if state.trash:
                # What was purged is freed little by little; until then its payloads still count as memory.
                view.payload_bytes = sum(len(record.payload) for record in queue.records.values())
            assert structs.astuple(view) == queue.seen()
            page = reading.browse(state, view.name, None, None, 0, EVERYTHING)
            assert not isinstance(page, Refusal)
            assert [seen(record) for record in page.records] == [
                r.seen(self.model.owner_names) for _, r in sorted(queue.records.items())
            ]
            ready = reading.peek(state, view.name, EVERYTHING)
            assert not isinstance(ready, Refusal)
            assert [record.id for record in ready] == [record.id for record in queue.ordered()]
        assert [structs.astuple(job) for job in reading.list_jobs(state)] == [
            j.seen() for j in self.model.jobs.values()
        ]
        assert [structs.astuple(b) for b in reading.list_bindings(state)] == [
            structs.astuple(binding) for _, binding in sorted(self.model.bindings.items())
        ]

    def teardown(self) -> None:
        """Equal logs give equal snapshots and journals, to the byte."""
        if self.pending:
            self.commit()
        assert list(begin(self.engine)) == list(begin(self.replica))
        assert self.rows == self.replica_rows

    # --- the world

    @initialize(
        deliveries_max=s.sampled_from((2, 1, 3, 0)),
        descending=s.booleans(),
        lease_ms=s.sampled_from((60_000, 30, 0)),
        expires_ms=s.sampled_from((0, 0, 900)),
        items=s.lists(plain_items | rich_items, min_size=2, max_size=6),
        seed=s.integers(0, 2**32 - 1),
    )
    def furnish(
        self, deliveries_max: int, descending: bool, lease_ms: int, expires_ms: int, items: list[c.Item], seed: int
    ) -> None:
        """The queues to begin with: one with everything, one with narrow limits, one for dead letters."""
        jobs = c.QueueSettings(
            descending=descending,
            deliveries_max=deliveries_max,
            dead_letter=DEAD,
            lease_ms=lease_ms,
            expires_ms=expires_ms,
            dedup_window_ms=3000,
        )
        small = c.QueueSettings(c.QA, size_max=3, payload_bytes_max=3, key_range=(-2, 2), dedup_keys_max=2)
        for name, made in (
            (JOBS, jobs),
            (SMALL, small),
            (DEAD, c.QueueSettings(size_max=2)),
            (OTHER, c.QueueSettings()),
        ):
            self.ask(c.CreateQueue(name, made), at_once=name == OTHER)
        self.ask(c.Put(JOBS, items))
        if seed:
            BusyMoment(self, seed).run()

    def new_term(self) -> None:
        """Another leader."""
        if self.pending:
            self.commit()
        self.term += 1
        self.ask(c.NewTerm(1, rules=c.RULES))

    @rule(step_us=steps_us, tick=s.booleans())
    def time_passes(self, step_us: int, tick: bool) -> None:
        self.now_us += step_us
        if tick:
            self.ask(c.Tick())

    @rule(event=s.sampled_from(("restart", "restart", "term", "long")), long_step_us=long_steps_us)
    def something_rare(self, event: str, long_step_us: int) -> None:
        if event == "restart":
            self.engine = restore(begin(self.engine))
            assert self.engine.state.memory_by_kind() == recount(self.engine.state)
            self.compare()
        elif event == "term":
            self.new_term()
        else:
            self.now_us += long_step_us

    @rule(seed=s.integers(0, 2**32 - 1))
    def a_busy_moment(self, seed: int) -> None:
        BusyMoment(self, seed).run()

    @precondition(lambda self: self.replica.state.trash)
    @rule()
    def sweep_the_replica(self) -> None:
        self.replica.sweep()
        assert self.replica.state.memory_by_kind() == recount(self.replica.state)

    @precondition(lambda self: self.said)
    @rule(which=s.integers(0, 100), now=at_once)
    def a_producer_repeats_itself(self, which: int, now: bool) -> None:
        self.pending.append(self.said[-1 - which % min(3, len(self.said))])
        if now:
            self.commit()

    # --- put

    @rule(name=any_names, items=s.lists(plain_items, min_size=1, max_size=4), producer=s.sampled_from((0, 0, 5)))
    def put_plain(self, name: str, items: list[c.Item], producer: int) -> None:
        self.ask(c.Put(name, items), producer=producer)

    @rule(name=any_names, items=s.lists(rich_items, min_size=1, max_size=3), now=at_once)
    def put_rich(self, name: str, items: list[c.Item], now: bool) -> None:
        self.ask(c.Put(name, items, create=name == OTHER), now)

    @rule(name=s.sampled_from((JOBS, SMALL)), items=s.lists(keyed_items, min_size=1, max_size=3))
    def put_keyed(self, name: str, items: list[c.Item]) -> None:
        self.ask(c.Put(name, items))

    @rule(puts=some_puts, producer=s.sampled_from((0, 6)))
    def put_many(self, puts: list[tuple[str, list[c.Item]]], producer: int) -> None:
        self.ask(c.PutMany(puts), producer=producer)

    # --- take, and what ends a lease

    @rule(
        name=any_names, count=counts, lease_ms=leases_ms, connection=s.integers(1, 2), to_tail=s.booleans(), now=at_once
    )
    def take(self, name: str, count: int, lease_ms: int | None, connection: int, to_tail: bool, now: bool) -> None:
        self.ask(c.Take(self.busy(name), count, lease_ms, 0, to_tail), now, connection)

    @rule(name=names, count=counts, producer=s.sampled_from((0, 5)))
    def take_many(self, name: str, count: int, producer: int) -> None:
        self.ask(c.Take(self.busy(name), 2 * count), connection=1, producer=producer)

    @rule(name=names, count=counts)
    def take_for_good(self, name: str, count: int) -> None:
        self.ask(c.Take(name, count, final=True))

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), now=at_once)
    def ack(self, data: s.DataObject, now: bool) -> None:
        self.ask(c.Ack(*self.some_handles(data)), now)

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), count=counts, lease_ms=leases_ms, producer=s.sampled_from((0, 5)))
    def ack_and_take(self, data: s.DataObject, count: int, lease_ms: int | None, producer: int) -> None:
        name, handles = self.some_handles(data)
        self.ask(c.AckTake(name, handles, count, lease_ms), connection=1, producer=producer)

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), delay_ms=delays_ms, now=at_once, failure=failures)
    def nack(self, data: s.DataObject, delay_ms: int, now: bool, failure: str) -> None:
        self.ask(c.Return(*self.some_handles(data), c.NACK, delay_ms, 0, failure), now)

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), how=s.sampled_from((c.RELEASE, c.UNSENT)), delay_ms=delays_ms, reason=s.sampled_from((0, 5)))
    def release(self, data: s.DataObject, how: int, delay_ms: int, reason: int) -> None:
        self.ask(c.Return(*self.some_handles(data), how, delay_ms, reason))

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), lease_ms=s.sampled_from((1, 30, 5000)))
    def extend(self, data: s.DataObject, lease_ms: int) -> None:
        self.ask(c.Extend(*self.some_handles(data), lease_ms))

    @precondition(lambda self: self.any_leased())
    @rule(data=s.data(), failure=failures)
    def bury_what_is_held(self, data: s.DataObject, failure: str) -> None:
        self.ask(c.Bury(*self.some_handles(data), failure))

    @precondition(lambda self: self.any_leased())
    @rule(how=s.integers(c.NACK, c.UNSENT), take_again=s.booleans())
    def give_all_back(self, how: int, take_again: bool) -> None:
        for name, queue in list(self.model.queues.items()):
            handles = [(record.id, record.lease.token) for record in queue.in_state(LEASED) if record.lease]
            if handles:
                self.ask(c.Return(name, handles, how), at_once=False)
                if take_again:
                    self.ask(c.Take(name, 10), at_once=False)
        if self.pending:
            self.commit()

    @rule(connection=s.integers(1, 2), name=s.sampled_from(("worker-7", "größer")))
    def a_connection_is_named(self, connection: int, name: str) -> None:
        self.ask(c.NameOwner(self.term << 32 | connection, name), connection=connection)

    @precondition(lambda self: self.any_leased())
    @rule(connection=s.integers(1, 2), now=at_once)
    def a_connection_ends(self, connection: int, now: bool) -> None:
        self.ask(c.OwnerGone(self.term << 32 | connection), now)

    # --- operators

    @rule(data=s.data(), count=s.sampled_from((0, 1, 5)))
    def kick(self, data: s.DataObject, count: int) -> None:
        name, ids = self.some_ids(data)
        self.ask(c.Kick(name, ids, count))

    @rule(data=s.data(), key=s.none() | keys, delay_ms=s.none() | delays_ms)
    def edit(self, data: s.DataObject, key: int | None, delay_ms: int | None) -> None:
        name, ids = self.some_ids(data)
        self.ask(c.Edit(name, ids[0] if ids else 1, key, delay_ms))

    @rule(
        data=s.data(),
        what=s.sampled_from(("bury", "bury", "delete", "done", "move", "move")),
        to=any_names,
        now=at_once,
    )
    def operate(self, data: s.DataObject, what: str, to: str, now: bool) -> None:
        name, ids = self.some_ids(data)
        args = {
            "bury": c.Bury(name, [(record_id, 0) for record_id in ids]),
            "delete": c.Delete(name, ids),
            "done": c.Delete(name, ids, True, 0 if now else 65536),
            "move": c.Move(name, ids, to),
        }
        self.ask(args[what], now)

    @rule(args=redriving, cancel=s.sampled_from((False, False, True)))
    def redrive(self, args: c.Redrive, cancel: bool) -> None:
        self.ask(c.CancelJob(max(self.model.jobs, default=5)) if cancel else args)

    @rule(args=managing, now=at_once)
    def manage(self, args: Any, now: bool) -> None:
        self.ask(args, now)

    @rule(args=staging)
    def stage(self, args: Any) -> None:
        if isinstance(args, c.Publish) and len(args.attempts) < 2:  # mostly what is there to be published
            args.attempts = [name[2:] for name in self.model.staged if name[1] == args.batch][:1] or args.attempts
        self.ask(args)

    @rule(args=topics)
    def topic(self, args: Any) -> None:
        self.ask(args)

    # --- what to name

    def some_handles(self, data: s.DataObject) -> tuple[str, list[tuple[int, int]]]:
        """Leases of one queue, now and then with one that is lost, doubled or never was."""
        name, records = self.some_records(data, lambda record: record.lease is not None)
        chosen = data.draw(s.lists(s.sampled_from(records), max_size=4)) if records else []
        handles = [(record.id, record.lease.token if record.lease else 0) for record in chosen]
        if data.draw(s.integers(0, 4)) == 0:
            handles += [(1, 7), (99, self.index << 16)] + [(i, token + 1) for i, token in handles[:1]]
        return name, handles

    def some_ids(self, data: s.DataObject) -> tuple[str, list[int]]:
        """Records of one queue in any state, now and then one that is not there."""
        name, records = self.some_records(data, lambda record: True)
        return name, data.draw(s.lists(s.sampled_from([*(record.id for record in records), 99]), max_size=4))

    def any_leased(self) -> bool:
        return any(record.lease for queue in self.model.queues.values() for record in queue.records.values())

    def busy(self, name: str) -> str:
        """This queue, or if it has nothing ready one that has."""
        with_some = [other for other, queue in self.model.queues.items() if queue.in_state(READY) and not queue.paused]
        return name if name in with_some or not with_some else with_some[0]

    def some_records(self, data: s.DataObject, wanted: Any) -> tuple[str, list[Record]]:
        def chosen(queue: Queue) -> list[Record]:
            return [record for _, record in sorted(queue.records.items()) if wanted(record)]

        with_some = [name for name, queue in self.model.queues.items() if chosen(queue)]
        name = data.draw(s.sampled_from(with_some or [JOBS]))
        return name, chosen(self.model.queues[name]) if name in self.model.queues else []


def without_text(answer: Any) -> Any:
    """An answer without what is only there for people to read."""
    if isinstance(answer, Refusal):
        return answer.code, answer.figures
    return answer


def seen(record: Any) -> tuple[Any, ...]:
    """A ``RecordView`` as plain values."""
    *values, origin, lease_ms, failure, holder = structs.astuple(record)
    return (*values, None if origin is None else structs.astuple(origin), lease_ms, failure, holder)


def kinds_of(rows: list[bytes]) -> Counter[int]:
    """How often each kind of event is in a journal; byte 16 of a row is its kind."""
    return Counter(row[16] for row in rows)
