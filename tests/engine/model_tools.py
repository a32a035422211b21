"""The other half of the naive model: what operators and tools do to records, staging, topics and redrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.errors import Refusal
from tests.engine.model import (
    BURIED,
    BY_HOLDER,
    BY_OPERATOR,
    BY_REDRIVE,
    DAY_US,
    DELAYED,
    JOB_STEP,
    LEASED,
    READY,
    STAGE_ENDS,
    Model,
    Queue,
    Record,
)


@dataclass
class Staged:
    """What one attempt has staged: the puts of each part."""

    serial: int
    ends_us: int
    parts: dict[int, list[tuple[str, list[c.Item]]]] = field(default_factory=dict)


@dataclass
class Job:
    """A redrive."""

    id: int
    args: c.Redrive
    source_uid: int
    due_us: int = 0
    next_id: int = 0
    moved: int = 0
    skipped: int = 0
    done: bool = False

    def seen(self) -> tuple[Any, ...]:
        """What a browser sees, in the order of the fields of a ``JobView``."""
        return self.id, self.args.queue, self.args.target, self.moved, self.skipped, self.done


class FullModel(Model):
    """The model with everything in it."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.staged: dict[tuple[str, int, int, int], Staged] = {}
        self.published: dict[str, int] = {}
        self.bindings: dict[str, c.Bind] = {}

    def timers_of_tools(self) -> list[tuple[int, ...]]:
        due: list[tuple[int, ...]] = [(staged.ends_us, STAGE_ENDS, staged.serial) for staged in self.staged.values()]
        return due + [(job.due_us, JOB_STEP, job.id) for job in self.jobs.values() if not job.done]

    def fire_one(self, due_us: int, kind: int, name: list[int]) -> None:
        if kind == STAGE_ENDS:
            self.staged = {key: staged for key, staged in self.staged.items() if staged.serial != name[0]}
        elif kind == JOB_STEP:
            self.step(self.jobs[name[0]])
        else:
            super().fire_one(due_us, kind, name)

    # --- single records

    def on_Bury(self, args: c.Bury) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        if len(args.failure.encode()) > 1024:
            return Refusal(e.BAD_COMMAND)
        lost = []
        for position, (record_id, token) in enumerate(args.handles):
            record = queue.held(record_id, token) if token else queue.records.get(record_id)
            if record is None or record.state == BURIED:
                lost.append(position)
            else:
                self.set_aside(record, BY_HOLDER if token else BY_OPERATOR)
                record.failure = args.failure or record.failure
        return a.Handled(len(args.handles) - len(lost), lost)

    def on_Kick(self, args: c.Kick) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        named = [queue.records[i] for i in dict.fromkeys(args.ids) if i in queue.records]
        named += [record for record in queue.in_state(BURIED)[: args.count] if record not in named]
        count, limit = 0, queue.settings.size_max
        for record in named:
            if record.state == BURIED and limit is not None and queue.occupied() + 1 > limit:
                if not count:
                    return Refusal(e.QUEUE_FULL, "", (limit,))
            elif record.state in (BURIED, DELAYED):
                record.state, record.available_at_us, record.reason = READY, 0, 0
                count += 1
        return a.Done(count)

    def on_Edit(self, args: c.Edit) -> Any:
        queue = self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        record = queue.records.get(args.id)
        if record is None:
            return Refusal(e.NO_SUCH_RECORD)
        if record.state not in (READY, DELAYED):
            return Refusal(e.WRONG_STATE)
        allowed = queue.settings.key_range
        if args.key is not None and allowed is not None and not allowed[0] <= args.key <= allowed[1]:
            return Refusal(e.KEY_OUT_OF_RANGE, "", allowed)
        if args.key is not None:
            record.key = args.key
        if args.delay_ms is not None:
            record.state = DELAYED if args.delay_ms else READY
            record.available_at_us = self.now_us + args.delay_ms * 1000 if args.delay_ms else 0
        return a.Done(1)

    def on_Delete(self, args: c.Delete) -> Any:
        by_uid = [queue for queue in self.queues.values() if args.uid == queue.uid and args.uid]
        queue = by_uid[0] if by_uid else self.queues.get(args.queue)
        if queue is None:
            return self.missing(args.queue)
        records = queue.records if args.uid in (0, queue.uid) else {}
        lost = [n for n, i in enumerate(args.ids) if records.pop(i, None) is None]
        if args.done:
            queue.acked += len(args.ids) - len(lost)
        else:
            queue.ended_otherwise += len(args.ids) - len(lost)
        return a.Handled(len(args.ids) - len(lost), lost)

    def on_Move(self, args: c.Move) -> Any:
        queue, target = self.queues.get(args.queue), self.queues.get(args.target)
        if queue is None or target is None:
            return self.missing(args.queue)
        if queue is target:
            return Refusal(e.BAD_COMMAND)
        lost: list[int] = []
        chosen: list[Record] = []
        for position, record_id in enumerate(args.ids):
            record = queue.records.get(record_id)
            if record is None or record.state == LEASED or record in chosen:
                lost.append(position)
                continue
            code, figures = self.fits(target, record, record.key, len(chosen))
            if code > 0:
                return Refusal(code, "", (*figures, position))
            chosen.append(record)
        for record in chosen:
            self.transfer(queue, record, target, BY_OPERATOR)
        queue.ended_otherwise += len(chosen)
        return a.Handled(len(chosen), lost)

    def fits(self, target: Queue, record: Record, key: int, before: int = 0) -> tuple[int, tuple[int, ...]]:
        """The policies of the target, which ``before`` other records enter first."""
        limit = target.settings.size_max
        if limit is not None and target.occupied() + before + 1 > limit:
            return e.QUEUE_FULL, (limit,)
        return self.policies(target, key, record.payload, None)

    # --- redrives

    def on_Redrive(self, args: c.Redrive) -> Any:
        for name in (args.queue, args.target):
            if name is not None and name not in self.queues:
                return self.missing(name)
        if args.target == args.queue:
            return Refusal(e.BAD_COMMAND)
        self.jobs[self.position] = Job(self.position, args, self.queues[args.queue].uid)
        return a.JobStarted(self.position)

    def on_CancelJob(self, args: c.CancelJob) -> Any:
        job = self.jobs.get(args.job)
        if job is None:
            return Refusal(e.NO_SUCH_JOB)
        job.done = True
        return a.Done(job.moved)

    def step(self, job: Job) -> None:
        """The next slice: as many records as a tenth of a second allows, or all."""
        args = job.args
        queue = next((queue for queue in self.queues.values() if queue.uid == job.source_uid), None)
        if queue is None:
            job.done = True
            return
        room = max(1, args.rate_per_s // 10) if args.rate_per_s else 1000
        if args.count_max:
            room = min(room, args.count_max - job.moved)
        chosen: list[tuple[Record, Queue]] = []
        left = [record for record in queue.in_state(READY, DELAYED, LEASED, BURIED) if record.id >= job.next_id]
        while left and len(chosen) < room:
            record = left.pop(0)
            job.next_id = record.id + 1
            if record.state == LEASED or not self.matches(record, args):
                continue
            target = self.target_of(record, args)
            if target is None or target is queue or self.fits(target, record, self.new_key(record, args))[0] > 0:
                job.skipped += 1
            else:
                chosen.append((record, target))
        for record, target in chosen:
            if self.fits(target, record, self.new_key(record, args))[0] > 0:
                job.skipped += 1
            else:
                self.transfer(queue, record, target, BY_REDRIVE, args.new_key)
                queue.ended_otherwise += 1
                job.moved += 1
        job.done = not left or (args.count_max > 0 and job.moved >= args.count_max)
        job.due_us = self.now_us + max(100_000, room * 1_000_000 // args.rate_per_s) if args.rate_per_s else 0

    def matches(self, record: Record, args: c.Redrive) -> bool:
        low, high = args.key_range or (record.key, record.key)
        return low <= record.key <= high and args.reason in (0, record.reason)

    def new_key(self, record: Record, args: c.Redrive) -> int:
        return record.key if args.new_key is None else args.new_key

    def target_of(self, record: Record, args: c.Redrive) -> Queue | None:
        if args.target is not None:
            return self.queues.get(args.target)
        return self.queues.get(record.origin[0]) if record.origin else None

    # --- staging

    def on_Stage(self, args: c.Stage) -> Any:
        if not all(items for _, items in args.puts):
            return Refusal(e.BAD_COMMAND)
        position = 0
        for name, items in args.puts:
            if name not in self.queues:
                return self.missing(name)
            for item in items:
                code, figures = self.judge(self.queues[name], item)
                if code > 0 and code != e.QUEUE_FULL:
                    return Refusal(code, "", (*figures, position))
                position += 1
        if args.batch <= self.published.get(args.query, -1):
            return a.Done(0)
        name_of_attempt = (args.query, args.batch, args.partition, args.attempt)
        staged = self.staged.setdefault(name_of_attempt, Staged(self.position, self.now_us + DAY_US))
        if args.part in staged.parts:
            return a.Done(0)
        staged.parts[args.part] = args.puts
        return a.Done(position)

    def on_Publish(self, args: c.Publish) -> Any:
        if args.batch <= self.published.get(args.query, -1):
            return a.Published(0, False)
        if len(dict(args.attempts)) < len(args.attempts):
            return Refusal(e.BAD_COMMAND)
        puts = []
        for partition, attempt in sorted(args.attempts):
            staged = self.staged.get((args.query, args.batch, partition, attempt))
            if staged is None:
                return Refusal(e.BATCH_NOT_STAGED, "", (partition, attempt))
            puts += [put for _, part in sorted(staged.parts.items()) for put in part]
        count = sum(len(items) for _, items in puts)
        if args.records and args.records != count:
            return Refusal(e.BATCH_INCOMPLETE, "", (count, args.records))
        self.published[args.query] = args.batch
        if args.is_last:
            del self.published[args.query]
        self.staged = {k: v for k, v in self.staged.items() if k[0] != args.query or k[1] > args.batch}
        for name, items in puts:
            for item in items:
                # The room was promised when the batch was staged; only what came twice is left out.
                if name in self.queues and self.judge(self.queues[name], item)[0] != 0:
                    self.place(self.queues[name], item)
        return a.Published(count, True)

    def on_Abort(self, args: c.Abort) -> Any:
        gone = [name for name in self.staged if name[:2] == (args.query, args.batch)]
        for name in gone:
            del self.staged[name]
        return a.Done(len(gone))

    # --- topics

    def on_Bind(self, args: c.Bind) -> Any:
        if not args.name or not all("!" <= character <= "~" for character in args.name):
            return Refusal(e.BAD_COMMAND)
        if args.queue not in self.queues:
            refusal = self.make(args.queue, c.QueueSettings())
            if refusal is not None:
                return refusal
        changed = self.bindings.get(args.name) != args
        self.bindings[args.name] = args
        return a.Done(int(changed))

    def on_Unbind(self, args: c.Unbind) -> Any:
        return Refusal(e.NO_SUCH_BINDING) if self.bindings.pop(args.name, None) is None else a.Done(1)

    def on_Broadcast(self, args: c.Broadcast) -> Any:
        copies: list[tuple[Queue, c.Item]] = []
        for _, binding in sorted(self.bindings.items()):
            queue = self.queues.get(binding.queue)
            wanted = binding.spec in ("", args.spec) and binding.type in ("", args.type) and not binding.paused
            headers = Raw(c.encode({"tag": args.tag.decode("latin-1"), "channel": str(args.channel)}))
            options = c.Options(headers=headers, lease_ms=binding.timeout_ms, expires_at_us=args.expires_at_us)
            item = c.Item(0, args.body, options)
            if queue is None or not wanted:
                continue
            limit = queue.settings.size_max
            code, figures = self.judge(queue, item)
            if limit is not None and queue.occupied() + sum(other is queue for other, _ in copies) + 1 > limit:
                code, figures = e.QUEUE_FULL, (limit,)
            if code > 0:
                return Refusal(code, "", (*figures, len(copies)))
            copies.append((queue, item))
        for queue, item in copies:
            self.place(queue, item)
        return a.Done(len(copies))
