"""What must come out: kept from what was asked and what the engine answered, never from the journal.

`Truth.applied` is told of every entry. What the answers do not say (which timers fired, what a publication or a redrive
moved) follows from the rules of the engine's charter, as do the positions of the events. Where an answer contradicts
what is known here, an assertion fails: then the engine or this file is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from msgspec import UNSET, structs

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.errors import Refusal
from tests.engine.driving import Asked
from tests.spark.generated.lives import BURIED, DELAYED, LEASED, READY, Life, Line, Moment
from tests.spark.generated.tasks import Said, TaskTruth

LEASE_ENDS, DELAY_ENDS, EXPIRES, OWNER_ENDS, JOB_STEPS = 0, 1, 2, 5, 6
"""Timers that are due together fire in this order."""
BUCKET_BITS = 13
"""A timer fires once the 8 ms in which it is due have passed."""
TIMERS_PER_ENTRY_MAX = 1_000
REDRIVEN_PER_STEP = 1_000
REDRIVE_STEP_US = 100_000


class Job(NamedTuple):
    """A redrive that is under way."""

    args: c.Redrive
    source: Line
    next_id: int = 0
    moved: int = 0


class Truth:
    """Every message and task so far, and all that decides what happens to them next."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {"": Line(0, "", c.QueueSettings())}
        self.all_lines = [self.lines[""]]
        self.lives: list[Life] = []
        self.tasks = TaskTruth()
        self.events = 0
        self.said: dict[tuple[bytes, bytes], Said] = {}
        """What the senders of topic messages meant, by tag and body."""
        self.copies: dict[bytes, list[Life]] = {}
        """What bindings made of topic messages, by tag."""
        self._at = Moment(-1, 0)
        self._bound: dict[int, dict[Life, None]] = {}
        self._names: dict[int, str] = {}
        self._bindings: dict[str, c.Bind] = {}
        self._staged: dict[tuple[str, int, int, int], dict[int, list[tuple[str, list[c.Item]]]]] = {}
        self._timers: list[tuple[int, tuple[int, ...], int, Any]] = []
        self._soon: list[tuple[tuple[int, ...], Any]] = []
        self._serials = count()
        self._repeats: set[tuple[int, int]] = set()
        self._follow: dict[type[Any], Callable[[Any, Any], None]] = {
            c.NewTerm: self._new_term,
            c.Tick: lambda args, answer: None,
            c.OwnerGone: self._owner_gone,
            c.NameOwner: self._name_owner,
            c.CreateQueue: self._create,
            c.ChangeQueue: self._change,
            c.DeleteQueue: self._delete_queue,
            c.Put: self._put,
            c.PutMany: self._put_many,
            c.Take: self._take,
            c.Ack: self._ack,
            c.AckTake: self._ack_take,
            c.Return: self._return,
            c.Extend: self._extend,
            c.Bury: self._bury,
            c.Kick: self._kick,
            c.Edit: self._edit,
            c.Delete: self._delete,
            c.Move: self._move,
            c.Redrive: self._redrive,
            c.Purge: self._purge,
            c.Pause: lambda args, answer: self._tell(answer.count),
            c.Stage: self._stage,
            c.Publish: self._publish,
            c.Abort: lambda args, answer: self._tell(min(answer.count, 1)),
            c.Broadcast: self._broadcast,
            c.Bind: self._bind,
            c.Unbind: self._unbind,
        }

    def applied(self, index: int, stamp_us: int, asked: Sequence[Asked], answers: Sequence[a.Answer]) -> int:
        """An entry was applied; tells how many events it must have had."""
        at = self._at = Moment(index, stamp_us)
        self._fire_due()
        told = 0
        for n, (request, answer) in enumerate(zip(asked, answers, strict=True)):
            at.n, at.door, at.owner, at.worker = n, request.door, request.owner, self._names.get(request.owner)
            if n:
                told += at.item
                at.item = 0
            if request.producer:
                if (request.producer, request.request) in self._repeats:
                    continue
                self._repeats.add((request.producer, request.request))
            if isinstance(request.args, bytes):
                self._tell()  # what cannot be read is an event of its own
            elif not isinstance(answer, Refusal):
                self._follow[type(request.args)](request.args, answer)
        told += at.item
        self.events += told
        return told

    def totals(self) -> dict[int, dict[str, int]]:
        """What happened to each queue in all, by uid; queues to which nothing did are left out."""
        return {line.uid: _sums(line.totals) for line in self.all_lines if line.totals}

    def queue_names(self) -> dict[int, str]:
        """The names of all queues that ever were, by uid."""
        return {line.uid: line.name for line in self.all_lines}

    def _tell(self, events: int = 1) -> None:
        """Events that concern no single message."""
        self._at.item += events

    @property
    def _position(self) -> int:
        return self._at.index << 16 | self._at.n

    # Time.

    def _set_timer(self, due_us: int, name: tuple[int, ...], what: Any) -> None:
        heappush(self._timers, (due_us, name, next(self._serials), what))

    def _fire_due(self) -> None:
        at = self._at
        for name, what in self._soon:
            self._set_timer(0, name, what)
        self._soon.clear()
        room = TIMERS_PER_ENTRY_MAX
        while self._timers and self._timers[0][0] >> BUCKET_BITS < at.time_us >> BUCKET_BITS:
            assert room > 0, "a generated history never has so many timers due that some must wait"
            due_us, name, _, what = heappop(self._timers)
            room -= self._fire(due_us, name, what)

    def _fire(self, due_us: int, name: tuple[int, ...], what: Any) -> int:
        at = self._at
        if name[0] == LEASE_ENDS:
            over = [life for life in what if life.state == LEASED and (life.serial, life.until_us) == name[2:]]
            for life in sorted(over, key=lambda life: life.id):
                life.timeouts += 1
                self._come_back(life, j.REASON_LEASE_TIMEOUT, 0)
            return len(over)
        if name[0] == DELAY_ENDS and what.state == DELAYED and what.available_us == due_us:
            what.touch(at)
            what.become_ready(at)
            return 1
        if name[0] == EXPIRES and what.state in (READY, DELAYED) and what.expires_us == due_us:
            self._expire(what)
            return 1
        if name[0] == OWNER_ENDS:
            return self._release_bound(name[1], j.REASON_NEW_TERM)
        return self._step_job(name[1], what) if name[0] == JOB_STEPS else 0

    # Beginnings.

    def _begin(self, line: Line, item: c.Item) -> Life:
        at, options = self._at, item.options
        life = self._admit(line, item.key, item.payload, b"")
        default_ms = line.settings.expires_ms
        if options is None:
            life.expires_us = at.time_us + default_ms * 1000 if default_ms else 0
        else:
            headers = bytes(options.headers)
            life.headers = b"" if headers == b"\xc0" else headers
            expires_ms = options.expires_ms or (0 if options.expires_at_us else default_ms)
            ends = [options.expires_at_us, at.time_us + expires_ms * 1000 if expires_ms else 0]
            life.expires_us = min((end for end in ends if end), default=0)
            available_us = max(options.available_at_us, at.time_us + options.delay_ms * 1000)
            if available_us > at.time_us:
                life.first_available_us = None
                life.wait_until(at, available_us)
                self._set_timer(available_us, (DELAY_ENDS, line.uid, life.id), life)
        self._watch_expiry(life)
        life.touch(at)
        return life

    def _admit(self, line: Line, key: int, payload: bytes, headers: bytes) -> Life:
        at = self._at
        life = Life(line, line.next_id, key, payload, headers, at.time_us, at.index, at.door, at.owner)
        life.first_available_us = at.time_us
        line.next_id += 1
        line.open[life.id] = life
        line.totals["arrivals"] += 1
        self.lives.append(life)
        return life

    def _watch_expiry(self, life: Life) -> None:
        if life.expires_us:
            self._set_timer(life.expires_us, (EXPIRES, life.line.uid, life.id), life)

    def _put(self, args: c.Put, answer: a.PutAnswer) -> None:
        if args.queue not in self.lines:
            self._add_line(args.queue, c.QueueSettings(), self._position)
        self._put_into(self.lines[args.queue], args.items, answer)

    def _put_many(self, args: c.PutMany, answer: a.PutManyAnswer) -> None:
        for (name, items), part in zip(args.puts, answer.puts, strict=True):
            self._put_into(self.lines[name], items, part)

    def _put_into(self, line: Line, items: list[c.Item], answer: a.PutAnswer) -> None:
        assert answer.first == line.next_id
        refused = {position: code for position, code, _ in answer.exceptions}
        for position, item in enumerate(items):
            code = refused.get(position, -1)
            if code < 0:
                self._begin(line, item)
            elif code == 0:
                self._tell()  # a duplicate
        assert line.next_id == answer.first + answer.count

    # Leases.

    def _take(self, args: c.Take, answer: a.Taken) -> None:
        at, line = self._at, self.lines[args.queue]
        groups: dict[int, list[Life]] = {}
        for record in answer.records:
            life = line.open[record.id]
            assert life.state == READY
            assert (record.payload, record.headers, record.key) == (life.payload, life.headers, life.key)
            life.deliver(at)
            assert record.deliveries == life.deliveries
            if args.final:
                life.touch(at)
                life.end(at, "acked")
                continue
            life.hold(at, answer.token, record.lease_until_us)
            groups.setdefault(record.lease_until_us, []).append(life)
        for until_us, lives in groups.items():
            if until_us:
                self._set_timer(until_us, (LEASE_ENDS, line.uid, answer.token, until_us), lives)
            else:
                self._bound.setdefault(at.owner, {}).update(dict.fromkeys(lives))

    def _let_go(self, life: Life) -> None:
        if life.state == LEASED and not life.until_us and life.owner_out is not None:
            del self._bound[life.owner_out][life]
        life.let_go(self._at)

    def _end(self, life: Life, outcome: str) -> None:
        self._let_go(life)
        life.end(self._at, outcome)

    def _honoured(self, args: Any, answer: a.Handled) -> list[Life]:
        """The leases that an answer does not call lost."""
        line, lost = self.lines[args.queue], set(answer.lost)
        lives = [line.open[handle[0]] for position, handle in enumerate(args.handles) if position not in lost]
        assert len(lives) == answer.count
        return lives

    def _ack(self, args: c.Ack | c.AckTake, answer: a.Handled) -> None:
        for life in self._honoured(args, answer):
            assert life.state == LEASED
            life.touch(self._at)
            self._end(life, "acked")

    def _ack_take(self, args: c.AckTake, answer: a.AckTaken) -> None:
        self._ack(args, answer.acked)
        self._take(c.Take(args.queue), answer.taken)

    def _return(self, args: c.Return, answer: a.Handled) -> None:
        how = {c.NACK: j.REASON_NACK, c.RELEASE: j.REASON_RELEASE, c.UNSENT: j.REASON_UNSENT}[args.how]
        for life in self._honoured(args, answer):
            if args.how == c.NACK:
                life.failures += 1
                life.failure = args.failure or None
            elif args.how == c.UNSENT:
                life.deliveries -= 1
            else:
                life.releases += 1
            self._come_back(life, args.reason or how, args.delay_ms)

    def _come_back(self, life: Life, reason: int, delay_ms: int) -> None:
        at, settings = self._at, life.line.settings
        self._let_go(life)
        life.touch(at, reason)
        available_us = at.time_us + delay_ms * 1000 if delay_ms else 0
        life.wait_until(at, available_us)
        if available_us:
            self._set_timer(available_us, (DELAY_ENDS, life.line.uid, life.id), life)
        if 0 < life.expires_us <= at.time_us:
            self._expire(life)
        elif 0 < settings.deliveries_max <= life.deliveries:
            self._dead_letter(life, reason)

    def _extend(self, args: c.Extend, answer: a.Handled) -> None:
        at = self._at
        until_us = at.time_us + args.lease_ms * 1000
        lives = [life for life in self._honoured(args, answer) if life.until_us]
        for life in lives:
            life.touch(at)
            life.serial, life.until_us = self._position, until_us
        if lives:
            self._set_timer(until_us, (LEASE_ENDS, lives[0].line.uid, self._position, until_us), lives)

    def _release_bound(self, owner: int, reason: int) -> int:
        lives = sorted(self._bound.get(owner, ()), key=lambda life: (life.line.uid, life.token, life.id))
        for life in lives:
            life.releases += 1
            self._come_back(life, reason, 0)
        return len(lives)

    def _owner_gone(self, args: c.OwnerGone, answer: a.Done) -> None:
        assert self._release_bound(args.owner, j.REASON_DISCONNECT) == answer.count
        had_name = self._names.pop(args.owner, None) is not None
        self._tell(1 if answer.count or had_name else 0)

    def _name_owner(self, args: c.NameOwner, answer: a.Done) -> None:
        self._names[args.owner] = args.name
        self._tell()

    def _new_term(self, args: c.NewTerm, answer: a.Done) -> None:
        self._tell()
        self._names.clear()  # no connection of a generated history outlives a term
        self._soon += [((OWNER_ENDS, owner), None) for owner, lives in sorted(self._bound.items()) if lives]

    # Ends, and what is like one.

    def _expire(self, life: Life) -> None:
        if life.line.settings.dead_letter_expired:
            self._dead_letter(life, j.REASON_EXPIRED)
            return
        life.touch(self._at, j.REASON_EXPIRED)
        self._end(life, "expired")

    def _dead_letter(self, life: Life, reason: int) -> None:
        target = self.lines.get(life.line.settings.dead_letter or "") if life.line.settings.dead_letter else None
        if target is None:
            self._set_aside(life, reason)
        else:
            self._transfer(life, target, reason, "dead-lettered")

    def _set_aside(self, life: Life, reason: int) -> None:
        self._let_go(life)
        life.touch(self._at, reason)
        life.state, life.aside_for, life.available_us = BURIED, reason, 0

    def _transfer(self, life: Life, target: Line, reason: int, outcome: str, key: int | None = None) -> None:
        at = self._at
        life.touch(at, reason)
        life.target = (target.uid, target.next_id)
        self._end(life, outcome)
        copy = self._admit(target, life.key if key is None else key, life.payload, life.headers)
        copy.is_moved, copy.aside_for = True, reason
        copy.origin = (life.line.uid, life.id)
        copy.failure = None if reason == j.REASON_REDRIVE else life.failure
        expires_ms = target.settings.expires_ms
        copy.expires_us = at.time_us + expires_ms * 1000 if expires_ms else 0
        self._watch_expiry(copy)
        copy.touch(at, reason)

    def _bury(self, args: c.Bury, answer: a.Handled) -> None:
        tokens = dict(args.handles)
        for life in self._honoured(args, answer):
            life.failure = args.failure or life.failure
            self._set_aside(life, j.REASON_HOLDER if tokens[life.id] else j.REASON_OPERATOR)

    def _kick(self, args: c.Kick, answer: a.Done) -> None:
        line = self.lines[args.queue]
        buried = sorted(life.id for life in line.open.values() if life.state == BURIED)
        named = dict.fromkeys([*args.ids, *buried[: args.count]])
        lives = [line.open[each] for each in named if each in line.open]
        kicked = [life for life in lives if life.state in (BURIED, DELAYED)]
        for life in kicked:
            if life.state == BURIED:
                self._watch_expiry(life)
            life.touch(self._at)
            life.become_ready(self._at)
            life.aside_for = 0
        assert len(kicked) == answer.count

    def _edit(self, args: c.Edit, answer: a.Done) -> None:
        at, life = self._at, self.lines[args.queue].open[args.id]
        if args.key is not None:
            life.key = args.key
        if args.delay_ms is not None:
            available_us = at.time_us + args.delay_ms * 1000 if args.delay_ms else 0
            life.wait_until(at, available_us)
            if available_us:
                self._set_timer(available_us, (DELAY_ENDS, life.line.uid, life.id), life)
        life.touch(at)

    def _delete(self, args: c.Delete, answer: a.Handled) -> None:
        line, lost = self.lines[args.queue], set(answer.lost)
        for position, each in enumerate(args.ids):
            if position not in lost:
                line.open[each].touch(self._at, 0 if args.done else j.REASON_OPERATOR)
                self._end(line.open[each], "acked" if args.done else "deleted")

    def _move(self, args: c.Move, answer: a.Handled) -> None:
        line, lost = self.lines[args.queue], set(answer.lost)
        for position, each in enumerate(args.ids):
            if position not in lost:
                self._transfer(line.open[each], self.lines[args.target], j.REASON_OPERATOR, "moved")

    def _redrive(self, args: c.Redrive, answer: a.JobStarted) -> None:
        self._soon.append(((JOB_STEPS, answer.job), Job(args, self.lines[args.queue])))

    def _step_job(self, number: int, job: Job) -> int:
        """A redrive does its share; targets in generated histories have no limits that could refuse."""
        args, source = job.args, job.source
        if self.lines.get(source.name) is not source:
            return 0
        room = min(REDRIVEN_PER_STEP, args.count_max - job.moved) if args.count_max else REDRIVEN_PER_STEP
        if args.rate_per_s:
            room = min(room, max(1, args.rate_per_s * REDRIVE_STEP_US // 1_000_000))
        chosen: list[tuple[Life, Line]] = []
        next_id, scanned, more = job.next_id, 0, False
        for life in sorted((life for life in source.open.values() if life.id >= next_id), key=lambda life: life.id):
            if len(chosen) == room:
                more = True
                break
            scanned += 1
            next_id = life.id + 1
            target = self._target_of(life, args)
            if target is not None and life.state != LEASED and _matches(life, args):
                chosen.append((life, target))
        for life, target in chosen:
            self._transfer(life, target, j.REASON_REDRIVE, "moved", args.new_key)
        moved = job.moved + len(chosen)
        if more and not (args.count_max and moved >= args.count_max):
            rest = Job(args, source, next_id, moved)
            if args.rate_per_s:
                wait_us = max(REDRIVE_STEP_US, room * 1_000_000 // args.rate_per_s)
                self._set_timer(self._at.time_us + wait_us, (JOB_STEPS, number), rest)
            else:
                self._soon.append(((JOB_STEPS, number), rest))
        return scanned

    def _target_of(self, life: Life, args: c.Redrive) -> Line | None:
        if args.target is not None:
            return self.lines.get(args.target)
        # To the queue of the name that its origin had then, whatever is called so now.
        names = [line.name for line in self.all_lines if line.uid == life.origin[0]]
        target = self.lines.get(names[0]) if names else None
        return None if target is life.line else target

    # Queues.

    def _add_line(self, name: str, settings: c.QueueSettings, uid: int) -> None:
        self.lines[name] = Line(uid, name, settings)
        self.all_lines.append(self.lines[name])
        self._tell()

    def _create(self, args: c.CreateQueue, answer: a.Created) -> None:
        if answer.created:
            self._add_line(args.name, args.settings, answer.uid)

    def _change(self, args: c.ChangeQueue, answer: a.Done) -> None:
        line = self.lines[args.name]
        changes = {name: getattr(args.changes, name) for name in args.changes.__struct_fields__}
        line.settings = structs.replace(line.settings, **{k: v for k, v in changes.items() if v is not UNSET})
        self._tell()

    def _close_all(self, lives: list[Life], outcome: str) -> None:
        """One event that ends many."""
        for life in lives:
            life.last = (self._at.index, self._at.n, self._at.item)
            self._end(life, outcome)
        self._tell()

    def _delete_queue(self, args: c.DeleteQueue, answer: a.Done) -> None:
        line = self.lines.pop(args.name)
        assert len(line.open) == answer.count
        self._close_all(list(line.open.values()), "queue-deleted")

    def _purge(self, args: c.Purge, answer: a.Done) -> None:
        waiting = [life for life in self.lines[args.queue].open.values() if life.state in (READY, DELAYED)]
        assert len(waiting) == answer.count
        self._close_all(waiting, "purged")

    # Writers and topics.

    def _stage(self, args: c.Stage, answer: a.Done) -> None:
        if answer.count:
            name = (args.query, args.batch, args.partition, args.attempt)
            self._staged.setdefault(name, {})[args.part] = args.puts
            self._tell()

    def _publish(self, args: c.Publish, answer: a.Published) -> None:
        if not answer.fresh:
            return
        self._tell()
        for partition, attempt in sorted(args.attempts):
            for _, puts in sorted(self._staged[args.query, args.batch, partition, attempt].items()):
                for name, items in puts:
                    for item in items if name in self.lines else ():
                        self._begin(self.lines[name], item)

    def _broadcast(self, args: c.Broadcast, answer: a.Done) -> None:
        if not args.channel & 1:
            self.tasks.hear(self._at, self.said[args.tag, args.body])
        self._tell()
        copies = 0
        headers = c.Raw(c.encode({"tag": args.tag.decode("latin-1"), "channel": str(args.channel)}))
        for _, binding in sorted(self._bindings.items()):
            is_meant = binding.spec in ("", args.spec) and binding.type in ("", args.type) and not binding.paused
            if is_meant and binding.queue in self.lines:
                options = c.Options(headers=headers, expires_at_us=args.expires_at_us)
                copy = self._begin(self.lines[binding.queue], c.Item(0, args.body, options))
                self.copies.setdefault(args.tag, []).append(copy)
                copies += 1
        assert copies == answer.count

    def _bind(self, args: c.Bind, answer: a.Done) -> None:
        if args.queue not in self.lines:
            self._add_line(args.queue, c.QueueSettings(), self._position)
        self._bindings[args.name] = args
        self._tell(answer.count)

    def _unbind(self, args: c.Unbind, answer: a.Done) -> None:
        del self._bindings[args.name]
        self._tell()


def _sums(counted: Counter[str]) -> dict[str, int]:
    sums = {name: counted[name] for name in ("arrivals", "deliveries", "redeliveries", "acked", "expired", "moved")}
    sums["dead_lettered"] = counted["dead-lettered"]
    sums["deleted"] = counted["deleted"] + counted["purged"] + counted["queue-deleted"]
    ended = ("acked", "expired", "moved", "dead_lettered", "deleted")
    return sums | {"completions": sum(sums[name] for name in ended)}


def _matches(life: Life, args: c.Redrive) -> bool:
    """Whether a redrive means this message."""
    if args.key_range is not None and not args.key_range[0] <= life.key <= args.key_range[1]:
        return False
    return not args.reason or life.aside_for == args.reason
