"""A naive model of the engine: what the charter says, in the plainest form that can be read.

Queues are dictionaries of records; whatever has an order is sorted when it is needed; whatever may be due is looked for
at every entry. Nothing is fast, nothing is shared with ``penstock.engine`` but the shapes of commands and answers, and
no rule is written twice. What operators, writers and topics do stands in ``model_tools``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import UNSET, structs

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.errors import Refusal

READY, DELAYED, LEASED, BURIED = range(4)
BY_NACK, BY_RELEASE, BY_UNSENT, BY_DISCONNECT = 1, 2, 3, 4
BY_REDRIVE = 11
BY_NEW_TERM, BY_TIMEOUT, BY_EXPIRY, BY_OPERATOR, BY_HOLDER = 6, 7, 8, 9, 10
DAY_US = 86_400_000_000

# Timers that are due at the same time fire in this order; what is put off to the next entry counts as due at 0.
LEASE_ENDS, DELAY_ENDS, EXPIRY, KEYS_FORGOTTEN, STAGE_ENDS, OWNER_RELEASED, JOB_STEP = range(7)


@dataclass
class Lease:
    """Who holds a record, and until when (0: as long as the connection lives)."""

    token: int
    owner: int
    until_us: int
    granted: int
    to_tail: bool


@dataclass
class Record:
    """A message, with all that can be said of one."""

    id: int
    key: int
    payload: bytes
    place: int
    published_us: int
    state: int = READY
    deliveries: int = 0
    failures: int = 0
    releases: int = 0
    timeouts: int = 0
    available_at_us: int = 0
    expires_at_us: int = 0
    lease_ms: int = 0
    headers: bytes = b""
    failure: str = ""
    dedup_key: str | None = None
    delay_to_tail: bool = False
    reason: int = 0
    origin: tuple[Any, ...] | None = None
    lease: Lease | None = None

    def seen(self, names: dict[int, str]) -> tuple[Any, ...]:
        """What a browser sees, in the order of the fields of a ``RecordView``; ``names`` are those of connections."""
        until_us, token, owner = (self.lease.until_us, self.lease.token, self.lease.owner) if self.lease else (0, 0, 0)
        return (
            *(self.id, self.key, self.payload, self.state, self.place, self.published_us),
            *(self.deliveries, self.failures, self.releases, self.timeouts, self.available_at_us, self.expires_at_us),
            *(until_us, token, owner, self.headers, self.dedup_key, self.reason, self.origin, self.lease_ms),
            *(self.failure, names.get(owner, "")),
        )


@dataclass
class Queue:
    """A queue: records by id, and what is counted."""

    uid: int
    name: str
    settings: c.QueueSettings
    paused: bool = False
    records: dict[int, Record] = field(default_factory=dict)
    last_id: int = 0
    last_place: int = 0
    keys: list[tuple[int, str, int]] = field(default_factory=list)
    """(until when, deduplication key, record id), oldest first."""
    put: int = 0
    delivered: int = 0
    acked: int = 0
    returned: int = 0
    expired: int = 0
    dead_lettered: int = 0
    ended_otherwise: int = 0

    def in_state(self, *states: int) -> list[Record]:
        return [record for _, record in sorted(self.records.items()) if record.state in states]

    def ordered(self) -> list[Record]:
        """The ready records in the order of service."""
        sign = -1 if self.settings.descending else 1
        return sorted(self.in_state(READY), key=lambda record: (sign * record.key, record.place))

    def occupied(self) -> int:
        return len(self.in_state(READY, DELAYED, LEASED))

    def new_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def new_place(self) -> int:
        self.last_place += 1
        return self.last_place

    def held(self, record_id: int, token: int) -> Record | None:
        record = self.records.get(record_id)
        return record if record and record.lease and record.lease.token == token else None

    def seen(self) -> tuple[Any, ...]:
        """What a browser sees, in the order of the fields of a ``QueueView``."""
        waiting = self.in_state(READY, DELAYED)
        return (
            *(self.name, self.uid, self.settings, self.paused),
            *(len(self.in_state(state)) for state in (READY, DELAYED, LEASED, BURIED)),
            *(sum(len(r.payload) for r in self.records.values()), waiting[0].published_us if waiting else 0),
            *(self.put, self.delivered, self.acked, self.returned, self.expired),
            *(self.dead_lettered, self.ended_otherwise, len(self.keys)),
        )


@dataclass
class Producer:
    """What a producer was told; a take is remembered by (queue, token, ids, acked) and looked up again."""

    heard_us: int
    told: dict[int, Any] = field(default_factory=dict)


class Model:
    """The state that a log builds."""

    def __init__(self) -> None:
        self.now_us = self.term = self.position = self.owner = 0
        self.queues: dict[str, Queue] = {"": Queue(0, "", c.QueueSettings())}
        self.producers: dict[int, Producer] = {}
        self.owner_names: dict[int, str] = {}
        self.next_entry: list[tuple[int, ...]] = []
        """Timers that wait for nothing but the next entry."""

    # --- an entry

    def apply(self, index: int, term: int, stamp_us: int, batch: list[Any]) -> list[a.Answer]:
        """Apply an entry: first the timers, then the commands (``args``, ``owner``, ``producer``, ``request``)."""
        self.term, self.now_us = term, max(self.now_us, stamp_us)
        self.fire()
        silent = [number for number, known in self.producers.items() if known.heard_us + DAY_US <= self.now_us]
        for number in silent:
            del self.producers[number]
        answers = []
        for n, asked in enumerate(batch):
            self.position, self.owner = index << 16 | n, asked.owner
            answers.append(self.once(asked) if asked.producer else self.run(asked.args))
        return answers

    def run(self, args: Any) -> Any:
        """Carry out a command by the method of its name."""
        return getattr(self, "on_" + type(args).__name__)(args)

    def once(self, asked: Any) -> Any:
        producer = self.producers.setdefault(asked.producer, Producer(self.now_us))
        producer.heard_us = self.now_us
        if asked.request in producer.told:
            return self.told_again(producer.told[asked.request])
        answer = kept = self.run(asked.args)
        if isinstance(answer, a.Taken):
            kept = (answer, None) if answer.records else None
        elif isinstance(answer, a.AckTaken):
            kept = (answer.taken, answer.acked)
        if kept is not None:
            producer.told[asked.request] = kept
        return answer

    def told_again(self, kept: Any) -> Any:
        if not isinstance(kept, tuple):
            return kept
        before, acked = kept
        queue = next((queue for queue in self.queues.values() if queue.uid == before.queue_uid), None)
        held = [record for each in before.records if queue and (record := queue.held(each.id, before.token))]
        taken = a.Taken(before.token, [self.delivery(record) for record in held], before.queue_uid)
        return taken if acked is None else a.AckTaken(acked, taken)

    # --- time

    def passed(self, due_us: int) -> bool:
        """Timers are never early, and at most a bucket of 8192 µs late: one fires once its bucket is over."""
        return due_us // 8192 < self.now_us // 8192

    def fire(self) -> None:
        due: list[tuple[int, ...]] = [(0, *timer) for timer in self.next_entry]
        self.next_entry = []
        for queue in self.queues.values():
            for record in queue.records.values():
                if record.lease and record.lease.until_us:
                    due.append((record.lease.until_us, LEASE_ENDS, queue.uid, record.lease.granted, record.id))
                if record.state == DELAYED:
                    due.append((record.available_at_us, DELAY_ENDS, queue.uid, record.id))
                if record.expires_at_us and record.state in (READY, DELAYED):
                    due.append((record.expires_at_us, EXPIRY, queue.uid, record.id))
            if queue.keys:
                due.append((queue.keys[0][0], KEYS_FORGOTTEN, queue.uid))
        due += self.timers_of_tools()
        for due_us, kind, *name in sorted(due):
            if self.passed(due_us):
                self.fire_one(due_us, kind, name)

    def timers_of_tools(self) -> list[tuple[int, ...]]:
        return []

    def fire_one(self, due_us: int, kind: int, name: list[int]) -> None:
        if kind == OWNER_RELEASED:
            self.release_owner(name[0], BY_NEW_TERM)
            return
        queue = next((queue for queue in self.queues.values() if queue.uid == name[0]), None)
        if queue is None:
            return
        if kind == KEYS_FORGOTTEN:
            # Keys are forgotten in the order in which they came, even if a shorter window was set meanwhile.
            while queue.keys and queue.keys[0][0] <= self.now_us:
                del queue.keys[0]
            return
        record = queue.records.get(name[-1])
        if record is None:
            return
        if kind == LEASE_ENDS and record.lease and record.lease.until_us == due_us:
            if record.lease.to_tail:
                record.place = queue.new_place()
            record.timeouts += 1
            self.come_back(queue, record, BY_TIMEOUT)
        elif kind == DELAY_ENDS and record.state == DELAYED and record.available_at_us == due_us:
            record.state, record.available_at_us = READY, 0
            if record.delay_to_tail:
                record.place = queue.new_place()
        elif kind == EXPIRY and record.state in (READY, DELAYED) and record.expires_at_us == due_us:
            self.expire(queue, record)

    def release_owner(self, owner: int, reason: int) -> int:
        bound = [
            (queue.uid, record.lease.granted, record.id, queue, record)
            for queue in self.queues.values()
            for record in queue.records.values()
            if record.lease and record.lease.owner == owner and not record.lease.until_us
        ]
        for *_, queue, record in sorted(bound, key=lambda each: each[:3]):
            record.releases += 1
            self.come_back(queue, record, reason)
        return len(bound)

    # --- what becomes of a record

    def come_back(self, queue: Queue, record: Record, reason: int, delay_ms: int = 0) -> None:
        queue.returned += 1
        record.lease, record.state, record.available_at_us = None, READY, 0
        if delay_ms:
            record.state, record.available_at_us = DELAYED, self.now_us + delay_ms * 1000
            record.delay_to_tail = False
        if 0 < record.expires_at_us <= self.now_us:
            self.expire(queue, record)
        elif queue.settings.deliveries_max and record.deliveries >= queue.settings.deliveries_max:
            self.dead_letter(queue, record, reason)

    def expire(self, queue: Queue, record: Record) -> None:
        if queue.settings.dead_letter_expired:
            self.dead_letter(queue, record, BY_EXPIRY)
        else:
            queue.expired += 1
            del queue.records[record.id]

    def dead_letter(self, queue: Queue, record: Record, reason: int) -> None:
        name = queue.settings.dead_letter
        if name is None or name not in self.queues:
            self.set_aside(record, reason)
        else:
            queue.dead_lettered += 1
            self.transfer(queue, record, self.queues[name], reason)

    def set_aside(self, record: Record, reason: int) -> None:
        record.state, record.lease, record.available_at_us, record.reason = BURIED, None, 0, reason

    def transfer(self, source: Queue, record: Record, target: Queue, reason: int, key: int | None = None) -> None:
        tried = (record.deliveries, record.failures, record.releases, record.timeouts)
        origin = (source.name, source.uid, record.id, record.published_us, self.now_us, *tried, reason)
        expires_ms = target.settings.expires_ms
        copy = Record(
            target.new_id(),
            record.key if key is None else key,
            record.payload,
            target.new_place(),
            self.now_us,
            expires_at_us=self.now_us + expires_ms * 1000 if expires_ms else 0,
            lease_ms=record.lease_ms,
            headers=record.headers,
            failure="" if reason == BY_REDRIVE else record.failure,
            reason=reason,
            origin=origin,
        )
        del source.records[record.id]
        target.records[copy.id] = copy
        target.put += 1

    # --- queues

    def missing(self, name: str, *figures: int) -> Refusal:
        return Refusal(e.NO_SUCH_QUEUE, name, figures)

    def on_NewTerm(self, args: c.NewTerm) -> Any:
        leases = [record.lease for queue in self.queues.values() for record in queue.records.values() if record.lease]
        self.owner_names = {owner: name for owner, name in self.owner_names.items() if owner >> 32 >= self.term}
        bound = {lease.owner for lease in leases if not lease.until_us and lease.owner >> 32 < self.term}
        self.next_entry += [(OWNER_RELEASED, owner) for owner in bound]
        return a.Done()

    def on_Tick(self, args: c.Tick) -> Any:
        return a.Done()

    def on_NameOwner(self, args: c.NameOwner) -> Any:
        self.owner_names[args.owner] = args.name
        return a.Done(1)

    def on_OwnerGone(self, args: c.OwnerGone) -> Any:
        self.owner_names.pop(args.owner, None)
        return a.Done(self.release_owner(args.owner, BY_DISCONNECT))

    def on_CreateQueue(self, args: c.CreateQueue) -> Any:
        present = self.queues.get(args.name)
        if present is not None:
            if args.if_absent and present.settings == args.settings:
                return a.Created(present.uid, False)
            return Refusal(e.QUEUE_EXISTS) if _is_name(args.name) else Refusal(e.BAD_QUEUE_NAME)
        refusal = self.make(args.name, args.settings)
        return refusal or a.Created(self.queues[args.name].uid, True)

    def make(self, name: str, settings: c.QueueSettings) -> Refusal | None:
        if not _is_name(name):
            return Refusal(e.BAD_QUEUE_NAME)
        refusal = self.against(name, settings)
        if refusal is None:
            self.queues[name] = Queue(self.position, name, settings)
        return refusal

    def against(self, name: str, settings: c.QueueSettings) -> Refusal | None:
        """What speaks against these settings."""
        low, high = settings.key_range or (0, 0)
        ranged = settings.key_range is not None
        if (
            settings.implementation not in (c.H4, c.QA)
            or low > high
            or (settings.implementation == c.QA and not ranged)
        ):
            return Refusal(e.BAD_SETTINGS)
        if settings.dead_letter is not None and not _is_name(settings.dead_letter):
            return Refusal(e.BAD_QUEUE_NAME)
        seen, target = [name], settings.dead_letter
        while target is not None:
            if target in seen:
                return Refusal(e.DEAD_LETTER_CYCLE)
            seen.append(target)
            target = self.queues[target].settings.dead_letter if target in self.queues else None
        return None

    def on_ChangeQueue(self, args: c.ChangeQueue) -> Any:
        queue = self.queues.get(args.name)
        if queue is None:
            return self.missing(args.name)
        changes = {name: value for name, value in structs.asdict(args.changes).items() if value is not UNSET}
        settings = structs.replace(queue.settings, **changes)
        refusal = self.against(args.name, settings)
        if refusal is None:
            queue.settings = settings
        return refusal or a.Done(len(changes))

    def on_DeleteQueue(self, args: c.DeleteQueue) -> Any:
        if args.name not in self.queues:
            return self.missing(args.name)
        if args.name == "":
            return Refusal(e.DEFAULT_QUEUE)
        return a.Done(len(self.queues.pop(args.name).records))

    def on_Purge(self, args: c.Purge) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        waiting = queue.in_state(READY, DELAYED)
        for record in waiting:
            del queue.records[record.id]
        queue.ended_otherwise += len(waiting)
        return a.Done(len(waiting))

    def on_Pause(self, args: c.Pause) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        changed = queue.paused != args.paused
        queue.paused = args.paused
        return a.Done(int(changed))

    # --- put

    def on_Put(self, args: c.Put) -> Any:
        if args.queue not in self.queues:
            refusal = self.make(args.queue, c.QueueSettings()) if args.create else self.missing(args.queue)
            if refusal is not None:
                return refusal
        queue = self.queues[args.queue]
        first, exceptions = queue.last_id + 1, []
        for position, item in enumerate(args.items):
            code, figures = self.judge(queue, item)
            if code < 0:
                self.place(queue, item)
            else:
                figure = 0 if code == e.KEY_OUT_OF_RANGE else figures[0]
                exceptions.append((position, code, figure))
        return a.PutAnswer(first, len(args.items) - len(exceptions), exceptions, queue.uid)

    def judge(self, queue: Queue, item: c.Item) -> tuple[int, tuple[int, ...]]:
        """-1, or why not: 0 is a duplicate, which is recognised before any policy is asked."""
        key = item.options.dedup_key if item.options else None
        known = [record_id for _, name, record_id in queue.keys if key is not None and name == key]
        if known:
            return 0, (known[0],)
        long_headers = item.options is not None and len(bytes(item.options.headers)) > c.HEADERS_BYTES_MAX
        return self.policies(queue, item.key, item.payload, key, long_headers)

    def policies(
        self, queue: Queue, key: int, payload: bytes, dedup_key: str | None, long_headers: bool = False
    ) -> tuple[int, tuple[int, ...]]:
        limits = queue.settings
        if limits.size_max is not None and queue.occupied() + 1 > limits.size_max:
            return e.QUEUE_FULL, (limits.size_max,)
        if limits.key_range is not None and not limits.key_range[0] <= key <= limits.key_range[1]:
            return e.KEY_OUT_OF_RANGE, limits.key_range
        if limits.payload_bytes_max is not None and len(payload) > limits.payload_bytes_max:
            return e.PAYLOAD_TOO_LARGE, (limits.payload_bytes_max,)
        if long_headers:
            return e.HEADERS_TOO_LARGE, (c.HEADERS_BYTES_MAX,)
        if dedup_key is not None and limits.dedup_window_ms and len(queue.keys) + 1 > limits.dedup_keys_max:
            return e.DEDUP_FULL, (limits.dedup_keys_max,)
        return -1, ()

    def place(self, queue: Queue, item: c.Item) -> None:
        said = item.options or c.Options()
        available_us = max(said.available_at_us, self.now_us + said.delay_ms * 1000)
        expires_ms = said.expires_ms or (queue.settings.expires_ms if not said.expires_at_us else 0)
        expiries = [said.expires_at_us] if said.expires_at_us else []
        if expires_ms:
            expiries.append(self.now_us + expires_ms * 1000)
        later = available_us > self.now_us
        headers = bytes(said.headers)
        record = Record(
            queue.new_id(),
            item.key,
            item.payload,
            queue.new_place(),
            self.now_us,
            DELAYED if later else READY,
            available_at_us=available_us if later else 0,
            expires_at_us=min(expiries, default=0),
            lease_ms=said.lease_ms,
            headers=b"" if headers == c.encode(None) else headers,
            dedup_key=said.dedup_key,
            delay_to_tail=said.delay_to_tail,
        )
        queue.records[record.id] = record
        queue.put += 1
        if said.dedup_key is not None and queue.settings.dedup_window_ms:
            until_us = self.now_us + queue.settings.dedup_window_ms * 1000
            queue.keys.append((until_us, said.dedup_key, record.id))

    def on_PutMany(self, args: c.PutMany) -> Any:
        """Try on a copy; keep the copy only if nothing was refused."""
        if not all(items for _, items in args.puts):
            return Refusal(e.BAD_COMMAND)
        position, puts = 0, []
        before = {name: replace(q, records=dict(q.records), keys=list(q.keys)) for name, q in self.queues.items()}
        for name, items in args.puts:
            if name not in self.queues:
                self.queues = before
                return self.missing(name, position)
            queue = self.queues[name]
            first, exceptions = queue.last_id + 1, []
            for number, item in enumerate(items):
                code, figures = self.judge(queue, item)
                if code > 0:
                    self.queues = before
                    return Refusal(code, "", (*figures, position))
                if code == 0:
                    exceptions.append((number, 0, figures[0]))
                else:
                    self.place(queue, item)
                position += 1
            puts.append(a.PutAnswer(first, len(items) - len(exceptions), exceptions, queue.uid))
        return a.PutManyAnswer(puts)

    # --- take and what ends a lease

    def delivery(self, record: Record) -> a.Delivery:
        until_us = record.lease.until_us if record.lease else 0
        return a.Delivery(
            *(record.id, record.key, record.payload, record.deliveries, record.published_us),
            record.headers,
            until_us,
            record.failure,
        )

    def on_Take(self, args: c.Take) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        taken = self.lease(queue, args.count, args.lease_ms, args.to_tail)
        if args.final:
            for delivery in taken.records:
                del queue.records[delivery.id]
                delivery.lease_until_us = 0
            queue.acked += len(taken.records)
        return taken

    def lease(self, queue: Queue, count: int, lease_ms: int | None, to_tail: bool) -> a.Taken:
        records = [] if queue.paused else queue.ordered()[:count]
        for record in records:
            length_ms = record.lease_ms or queue.settings.lease_ms if lease_ms is None else lease_ms
            until_us = self.now_us + length_ms * 1000 if length_ms else 0
            record.state = LEASED
            record.deliveries += 1
            record.lease = Lease(self.position, self.owner, until_us, self.position, to_tail)
            if not until_us and self.owner >> 32 < self.term:
                self.next_entry.append((OWNER_RELEASED, self.owner))  # a connection of a leader that is gone
        queue.delivered += len(records)
        return a.Taken(self.position, [self.delivery(record) for record in records], queue.uid)

    def on_Ack(self, args: c.Ack) -> Any:
        queue = self.queues.get(args.queue)
        return self.missing(args.queue) if queue is None else self.acknowledge(queue, args.handles)

    def acknowledge(self, queue: Queue, handles: list[tuple[int, int]]) -> a.Handled:
        lost = []
        for position, (record_id, token) in enumerate(handles):
            if queue.held(record_id, token):
                del queue.records[record_id]
            else:
                lost.append(position)
        queue.acked += len(handles) - len(lost)
        return a.Handled(len(handles) - len(lost), lost)

    def on_AckTake(self, args: c.AckTake) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        acked = self.acknowledge(queue, args.handles)
        return a.AckTaken(acked, self.lease(queue, args.count, args.lease_ms, False))

    def on_Return(self, args: c.Return) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        if len(args.failure.encode()) > 1024 or (args.failure and args.how != c.NACK):
            return Refusal(e.BAD_COMMAND)
        lost = []
        for position, (record_id, token) in enumerate(args.handles):
            record = queue.held(record_id, token)
            if record is None:
                lost.append(position)
                continue
            record.failures += args.how == c.NACK
            if args.how == c.NACK:
                record.failure = args.failure
            record.releases += args.how == c.RELEASE
            record.deliveries -= args.how == c.UNSENT
            reason = {c.NACK: BY_NACK, c.RELEASE: BY_RELEASE, c.UNSENT: BY_UNSENT}[args.how]
            self.come_back(queue, record, args.reason or reason, args.delay_ms)
        return a.Handled(len(args.handles) - len(lost), lost)

    def on_Extend(self, args: c.Extend) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        lost = []
        for position, (record_id, token) in enumerate(args.handles):
            record = queue.held(record_id, token)
            if record is None or record.lease is None:
                lost.append(position)
            elif record.lease.until_us:  # a bound lease has no deadline to move
                record.lease.until_us = self.now_us + args.lease_ms * 1000
                record.lease.granted = self.position
        return a.Handled(len(args.handles) - len(lost), lost)


def _is_name(name: str) -> bool:
    return len(name) <= 255 and all("!" <= character <= "~" for character in name)
