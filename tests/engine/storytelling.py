"""The language of the stories: lines of commands for people in, lines of text for people out.

    put QUEUE ITEM... [delay=5s] [at=+30s] [expires=1m] [lease=10s] [header=name:value] [to-tail] [create]
    put-many QUEUE ITEM... / QUEUE ITEM...
    take QUEUE [count=3] [lease=10s] [bound] [to-tail] [final] [by=NAME]
    ack | nack | release | unsent | bury QUEUE ID... [delay=5s] [by=NAME]     what NAME took last
    ...

An ITEM is a payload, with its key before it and a deduplication key behind it where needed: ``5:payload#dedup-key``.
NAME is a worker; each has a connection of its own. Points in time are told from the beginning of the story.
Every line is an entry of its own, unless its block opens with ``in one entry``.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
from msgspec import structs

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine import reading
from penstock.engine.errors import Refusal
from penstock.engine.views import STATE_NAMES, Origin, RecordView
from tests.engine.driving import START_US, Asked, Drive, Event, item

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
ITEM = re.compile(r"(?:(-?\d+):)?([^#]*)(?:#(.+))?")
RETURNS = {"nack": c.NACK, "release": c.RELEASE, "unsent": c.UNSENT}
REASON_NUMBERS = {name: number for number, name in j.REASONS.items()}


WITHOUT_QUEUE = frozenset(
    (j.NEW_TERM, j.OWNER_GONE, j.OWNER_NAMED, j.STAGED, j.PUBLISHED, j.ABORTED, j.BROADCAST, j.UNBOUND)
)
"""Kinds of events that concern no queue."""


class Line:
    """A line taken apart: the verb, plain words, options, flags."""

    def __init__(self, text: str) -> None:
        self.verb, *rest = shlex.split(text)
        self.words = [word for word in rest if not re.match(r"[a-z_-]+=", word)]
        self.options = dict(word.split("=", 1) for word in rest if re.match(r"[a-z_-]+=", word))
        self.worker = self.options.pop("by", "a worker")

    def flag(self, name: str) -> bool:
        """Whether this word was said; it is taken away."""
        said = name in self.words
        if said:
            self.words.remove(name)
        return said

    def number(self, name: str, default: int = 0) -> int:
        return int(self.options.pop(name, default))

    def ms(self, name: str, default: Any = 0) -> Any:
        return to_ms(self.options.pop(name)) if name in self.options else default

    def moment_us(self, name: str) -> int:
        return START_US + to_ms(self.options.pop(name).lstrip("+")) * 1000 if name in self.options else 0


def to_ms(text: str) -> int:
    """A duration such as 250ms, 5s or 2h."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    assert match, f"{text!r} is no duration"
    return int(match[1]) * UNITS_MS[match[2]]


def moment(us: int) -> str:
    """A point in time, told from the beginning of the story to a tenth of a second."""
    return f"+{round((us - START_US) / 1_000_000, 1):g}s"


class Teller:
    """Carries out the lines of a story and tells what came of each.

    ``do_verb`` makes the command that a line stands for, ``told_Answer`` puts an answer into words, ``see_verb`` looks
    at the state or lets time pass.
    """

    def __init__(self) -> None:
        self.drive = Drive()
        self.told_rows = len(self.drive.rows)
        self.connections: dict[str, int] = {}
        self.tokens: dict[tuple[str, str, int], int] = {}

    def tell(self, lines: list[str]) -> list[str]:
        """The output of one block."""
        if lines[0] == "in one entry":
            parsed = [Line(text) for text in lines[1:]]
            asked = [self.command(line) for line in parsed]
            answers = self.drive.apply(*(each for each in asked if each is not None))
            return [text for line, answer in zip(parsed, answers, strict=True) for text in self.answer(line, answer)]
        (text,) = lines
        line = Line(text)
        command = self.command(line)
        if command is None:
            told: list[str] = getattr(self, "see_" + line.verb.replace("-", "_"))(line)
        else:
            told = self.answer(line, self.drive.apply(command)[0])
        assert not line.options, f"nobody understood {line.options}"
        return told or ["ok"]

    # --- commands

    def command(self, line: Line) -> Asked | None:
        """The command that a line stands for; None if the line only looks, or lets time pass."""
        producer, request = line.number("producer"), line.number("request")
        make = getattr(self, "do_" + line.verb.replace("-", "_"), None)
        if make is None:
            return None
        return Asked(make(line), self.owner(line.worker), producer=producer, request=request)

    def owner(self, worker: str) -> int:
        return self.drive.owner(self.connections.setdefault(worker, len(self.connections) + 1))

    def items(self, line: Line, words: list[str]) -> list[c.Item]:
        options: dict[str, Any] = {
            "delay_ms": line.ms("delay"),
            "expires_ms": line.ms("expires"),
            "lease_ms": line.ms("lease"),
            "available_at_us": line.moment_us("at"),
            "expires_at_us": line.moment_us("expires-at"),
            "delay_to_tail": line.flag("to-tail"),
        }
        if "header" in line.options:
            options["headers"] = dict([line.options.pop("header").split(":")])
        made = []
        for word in (word for word in words if word != "to-tail"):
            match = ITEM.fullmatch(word)
            assert match, word
            said = {name: value for name, value in options.items() if value}
            if match[3]:
                said["dedup_key"] = match[3]
            made.append(item(int(match[1] or 0), match[2].encode(), **said))
        return made

    def puts(self, line: Line, words: list[str]) -> list[tuple[str, list[c.Item]]]:
        groups = " ".join(words).split(" / ")
        return [(name, self.items(line, rest)) for name, *rest in (group.split() for group in groups)]

    def do_put(self, line: Line) -> Any:
        create = line.flag("create")
        return c.Put(line.words[0], self.items(line, line.words[1:]), create)

    def do_put_many(self, line: Line) -> Any:
        return c.PutMany(self.puts(line, line.words))

    def do_take(self, line: Line) -> Any:
        lease_ms = 0 if line.flag("bound") else line.ms("lease", None)
        return c.Take(line.words[0], line.number("count", 1), lease_ms, 0, line.flag("to-tail"), line.flag("final"))

    def handles(self, line: Line) -> list[tuple[int, int]]:
        queue, *ids = line.words
        return [(int(i), self.tokens.get((line.worker, queue, int(i)), 12345)) for i in ids]

    def do_ack(self, line: Line) -> Any:
        return c.Ack(line.words[0], self.handles(line))

    def do_ack_take(self, line: Line) -> Any:
        return c.AckTake(line.words[0], self.handles(line), line.number("count", 1), line.ms("lease", None))

    def do_nack(self, line: Line) -> Any:
        return c.Return(line.words[0], self.handles(line), RETURNS[line.verb], line.ms("delay"))

    do_release = do_unsent = do_nack

    def do_extend(self, line: Line) -> Any:
        return c.Extend(line.words[0], self.handles(line), line.ms("lease"))

    def do_bury(self, line: Line) -> Any:
        queue, *ids = line.words
        if line.worker == "operator":
            return c.Bury(queue, [(int(i), 0) for i in ids])
        return c.Bury(queue, self.handles(line))

    def do_kick(self, line: Line) -> Any:
        return c.Kick(line.words[0], [int(i) for i in line.words[1:]], line.number("count"))

    def do_edit(self, line: Line) -> Any:
        key = line.number("key") if "key" in line.options else None
        return c.Edit(line.words[0], int(line.words[1]), key, line.ms("delay", None))

    def do_delete(self, line: Line) -> Any:
        return c.Delete(line.words[0], [int(i) for i in line.words[1:]])

    def do_move(self, line: Line) -> Any:
        return c.Move(line.words[0], [int(i) for i in line.words[1:]], line.options.pop("to"))

    def do_redrive(self, line: Line) -> Any:
        return c.Redrive(
            line.words[0],
            line.options.pop("to", None),
            key_range(line),
            REASON_NUMBERS[line.options.pop("reason", "").replace("-", " ")],
            line.number("count"),
            line.number("rate"),
            line.number("new-key") if "new-key" in line.options else None,
        )

    def do_cancel(self, line: Line) -> Any:
        return c.CancelJob(max(self.drive.engine.state.jobs, default=0))

    def do_purge(self, line: Line) -> Any:
        return c.Purge(line.words[0])

    def do_pause(self, line: Line) -> Any:
        return c.Pause(line.words[0], line.verb == "pause")

    do_resume = do_pause

    def do_create(self, line: Line) -> Any:
        if_absent = line.flag("if-absent")
        return c.CreateQueue(line.words[0], c.QueueSettings(**self.settings(line)), if_absent)

    def do_change(self, line: Line) -> Any:
        return c.ChangeQueue(line.words[0], c.QueueChanges(**self.settings(line)))

    def settings(self, line: Line) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for name in ("lease", "expires", "dedup_window"):
            if name in line.options:
                said[name + "_ms"] = line.ms(name)
        for name in ("size_max", "payload_bytes_max", "deliveries_max", "dedup_keys_max"):
            if name in line.options:
                value = line.options.pop(name)
                said[name] = None if value == "none" else int(value)
        if "dead_letter" in line.options:
            said["dead_letter"] = line.options.pop("dead_letter")
        for name in ("descending", "dead_letter_expired"):
            if line.flag(name):
                said[name] = True
        if line.flag("QA"):
            said["implementation"] = c.QA
        if "keys" in line.options:
            said["key_range"] = key_range(line)
        return said

    def do_delete_queue(self, line: Line) -> Any:
        return c.DeleteQueue(line.words[0])

    def do_stage(self, line: Line) -> Any:
        batch, partition, attempt, part = (line.number(name) for name in ("batch", "partition", "attempt", "part"))
        is_last = line.flag("last")
        return c.Stage(line.words[0], batch, partition, attempt, part, self.puts(line, line.words[1:]), is_last)

    def do_publish(self, line: Line) -> Any:
        is_last = line.flag("last")
        attempts = [(int(partition), int(attempt)) for partition, attempt in (w.split(".") for w in line.words[1:])]
        return c.Publish(line.words[0], line.number("batch"), attempts, line.number("records"), is_last)

    def do_abort(self, line: Line) -> Any:
        return c.Abort(line.words[0], line.number("batch"))

    def do_bind(self, line: Line) -> Any:
        spec, kind = line.options.pop("spec", ""), line.options.pop("type", "")
        return c.Bind(line.words[0], spec, kind, line.options.pop("queue"), line.ms("timeout"), line.flag("paused"))

    def do_unbind(self, line: Line) -> Any:
        return c.Unbind(line.words[0])

    def do_broadcast(self, line: Line) -> Any:
        said = line.options.pop
        return c.Broadcast(1, said("tag", "").encode(), line.words[0].encode(), said("spec", ""), said("type", ""))

    def do_gone(self, line: Line) -> Any:
        return c.OwnerGone(self.owner(line.words[0]))

    # --- answers

    def answer(self, line: Line, answer: Any) -> list[str]:
        """What came of a command, in words."""
        if isinstance(answer, Refusal):
            figures = f" {answer.figures}" if answer.figures else ""
            return [f"{answer.name}{figures}: {answer.detail}"]
        told: list[str] = getattr(self, "told_" + type(answer).__name__)(line, answer)
        return told

    def told_Done(self, line: Line, answer: a.Done) -> list[str]:
        return [f"done: {answer.count}"]

    def told_Created(self, line: Line, answer: a.Created) -> list[str]:
        return ["made" if answer.created else "it is there already"]

    def told_PutAnswer(self, line: Line, answer: a.PutAnswer) -> list[str]:
        ids = range(answer.first, answer.first + answer.count)
        told = [f"put as {', '.join(map(str, ids))}"] if ids else []
        for position, code, first in answer.exceptions:
            told.append(f"item {position}: " + (Refusal(code).name if code else f"a duplicate of {first}"))
        return told

    def told_PutManyAnswer(self, line: Line, answer: a.PutManyAnswer) -> list[str]:
        return [text for put in answer.puts for text in self.told_PutAnswer(line, put)]

    def told_Taken(self, line: Line, answer: a.Taken) -> list[str]:
        told = []
        for record in answer.records:
            self.tokens[line.worker, line.words[0], record.id] = answer.token
            until = f", until {moment(record.lease_until_us)}" if record.lease_until_us else ""
            headers = f", headers {msgspec.msgpack.decode(record.headers)}" if record.headers else ""
            told.append(
                f"{record.id}: {shown(record.key, record.payload)}, delivery {record.deliveries}{until}{headers}"
            )
        return told or ["nothing"]

    def told_Handled(self, line: Line, answer: a.Handled) -> list[str]:
        lost = f", lost: {', '.join(line.words[1 + n] for n in answer.lost)}" if answer.lost else ""
        return [f"done: {answer.count}{lost}"]

    def told_AckTaken(self, line: Line, answer: a.AckTaken) -> list[str]:
        return self.told_Handled(line, answer.acked) + self.told_Taken(line, answer.taken)

    def told_JobStarted(self, line: Line, answer: a.JobStarted) -> list[str]:
        return ["begun"]

    def told_Published(self, line: Line, answer: a.Published) -> list[str]:
        return [f"published: {answer.count}" if answer.fresh else "it had been published before"]

    # --- time, and looking

    def see_wait(self, line: Line) -> list[str]:
        self.drive.wait(to_ms(line.words[0]))
        return []

    def see_restart(self, line: Line) -> list[str]:
        self.drive.restart()
        return []

    def see_new_term(self, line: Line) -> list[str]:
        self.drive.new_term()
        self.drive.tick()
        return []

    def see_show(self, line: Line) -> list[str]:
        view = self.drive.view(line.words[0])
        counts = f"ready {view.ready}, delayed {view.delayed}, leased {view.leased}, buried {view.buried}"
        return [counts + (", paused" if view.paused else "")]

    def see_totals(self, line: Line) -> list[str]:
        view = structs.asdict(self.drive.view(line.words[0]))
        names = ("put", "delivered", "acked", "returned", "expired", "dead_lettered", "ended_otherwise")
        return [", ".join(f"{name.replace('_', ' ')} {view[name]}" for name in names)]

    def see_peek(self, line: Line) -> list[str]:
        peeked = reading.peek(self.drive.engine.state, line.words[0], line.number("count", 100))
        return (
            self.answer(line, peeked)
            if isinstance(peeked, Refusal)
            else [told(record) for record in peeked] or ["none"]
        )

    def see_browse(self, line: Line) -> list[str]:
        state = STATE_NAMES.index(line.options.pop("state")) if "state" in line.options else None
        cursor, count = line.number("cursor"), line.number("count", 100)
        page = reading.browse(self.drive.engine.state, line.words[0], state, key_range(line), cursor, count)
        if isinstance(page, Refusal):
            return self.answer(line, page)
        more = [f"more from cursor {page.cursor}"] if page.cursor else []
        return [told(record, with_state=True) for record in page.records] + more or ["none"]

    def see_get(self, line: Line) -> list[str]:
        found = reading.get(self.drive.engine.state, line.words[0], int(line.words[1]))
        return self.answer(line, found) if isinstance(found, Refusal) else [told(found, with_state=True)]

    def see_queues(self, line: Line) -> list[str]:
        return [repr(view.name) for view in reading.list_queues(self.drive.engine.state)]

    def see_job(self, line: Line) -> list[str]:
        job = reading.list_jobs(self.drive.engine.state)[-1]
        return [f"moved {job.moved}, skipped {job.skipped}{', ended' if job.done else ''}"]

    def see_bindings(self, line: Line) -> list[str]:
        return [f"{b.name}: to {b.queue}" for b in reading.list_bindings(self.drive.engine.state)] or ["none"]

    def see_events(self, line: Line) -> list[str]:
        """What the journal got since it was last looked at."""
        events = self.drive.events()[self.told_rows :]
        self.told_rows += len(events)
        return [self.event(event) for event in events]

    def event(self, event: Event) -> str:
        names = {queue.uid: queue.name for queue in reading.list_queues(self.drive.engine.state)}
        subject = f" {names.get(event.queue, 'a deleted queue')}" + (f"/{event.record}" if event.record else "")
        if event.kind in WITHOUT_QUEUE:
            subject = ""
        joined = {j.MOVED_IN: "from", j.DUPLICATE: "of"}.get(event.kind, "as")
        other = f" {joined} {names.get(event.other_queue)}/{event.other_record}" if event.other_record else ""
        reason = f" ({j.REASONS[event.reason]})" if event.reason else ""
        return f"{event.name}{subject}{other}{reason}"


def key_range(line: Line) -> tuple[int, int] | None:
    """Keys as ``keys=-5..5``, or None."""
    if "keys" not in line.options:
        return None
    low, high = line.options.pop("keys").split("..")
    return int(low), int(high)


def shown(key: int, payload: bytes) -> str:
    """A record's key and payload."""
    return f"key {key}, {payload.decode()!r}"


def told(record: RecordView, with_state: bool = False) -> str:
    """A record, with all about it that is not as usual."""
    parts = [shown(record.key, record.payload)]
    if with_state:
        parts.insert(0, STATE_NAMES[record.state])
    for name in ("deliveries", "failures", "releases", "timeouts"):
        if getattr(record, name):
            parts.append(f"{name} {getattr(record, name)}")
    for name in ("available_at_us", "expires_at_us", "lease_until_us"):
        if getattr(record, name):
            parts.append(f"{name.removesuffix('_us').replace('_', ' ')} {moment(getattr(record, name))}")
    if record.reason:
        parts.append(f"reason {j.REASONS[record.reason]}")
    if record.origin:
        parts.append(came_from(record.origin))
    return f"{record.id}: " + ", ".join(parts)


def came_from(origin: Origin) -> str:
    """Where a record was before, and what it had been through there."""
    tried = (origin.deliveries, origin.failures, origin.releases, origin.timeouts)
    names = ("deliveries", "failures", "releases", "timeouts")
    counters = "".join(f", {name} {count}" for name, count in zip(names, tried, strict=True) if count)
    return f"from {origin.queue}/{origin.id} (published {moment(origin.published_us)}{counters})"
