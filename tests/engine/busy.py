"""Busy moments for the state machine: several random commands in a row, all from one seed.

Hypothesis likes simple values and repetition, which is what makes its failures readable; the long and mixed histories
in which rare bugs live come from here.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from penstock.engine import commands as c
from tests.engine.model import LEASED

if TYPE_CHECKING:
    from tests.engine.comparing import EngineMachine

COMMANDS_PER_MOMENT = 12
QUEUES = ("jobs", "jobs", "jobs", "small", "small", "dead", "other", "")
KEYS = (0, 0, 0, 1, -1, 2, -2, 3, c.INT64_MIN, c.INT64_MAX)
PAYLOADS = (b"", b"a", b"bb", b"ccc", b"dddd")


class BusyMoment:
    """Draws commands that mostly make sense, and proposes them."""

    def __init__(self, machine: EngineMachine, seed: int) -> None:
        self.machine, self.random = machine, Random(seed)
        self.pick = self.random.choice
        self.weights: list[tuple[int, Callable[[], Any]]] = [
            (12, self.put),
            (3, self.put_many),
            (12, self.take),
            (5, lambda: c.Ack(*self.handles())),
            (2, lambda: c.AckTake(*self.handles(), self.pick((1, 3)), self.pick((None, 0, 30)))),
            (
                5,
                lambda: c.Return(*self.handles(), c.NACK, self.pick((0, 0, 5, 500)), 0, self.pick(("", "why"))),
            ),
            (4, lambda: c.Return(*self.handles(), self.pick((c.RELEASE, c.UNSENT)), self.pick((0, 0, 20)))),
            (3, lambda: c.Extend(*self.handles(), self.pick((1, 30, 5000)))),
            (2, lambda: c.Bury(*self.handles(), self.pick(("", "set aside")))),
            (2, self.bury),
            (5, lambda: c.Kick(*self.ids(), self.pick((0, 1, 5)))),
            (3, self.edit),
            (2, lambda: c.Delete(*self.ids())),
            (2, lambda: c.Move(*self.ids(), self.pick(QUEUES))),
            (2, self.redrive),
            (1, lambda: c.Purge(self.pick(QUEUES))),
            (2, lambda: c.Pause(self.pick(QUEUES), self.random.random() < 0.3)),
            (2, self.change),
            (1, self.make_or_drop),
            (4, self.stage_or_publish),
            (2, self.topic),
            (2, lambda: c.OwnerGone(self.machine.term << 32 | self.pick((1, 2)))),
        ]

    def run(self) -> None:
        """Let it happen."""
        machine, chances = self.machine, self.random.random
        for _ in range(COMMANDS_PER_MOMENT):
            if chances() < 0.25:
                machine.now_us += self.pick((1, 1000, 8192, 20_000, 120_000, 900_000, 3_000_000))
            if chances() < 0.03:
                machine.something_rare(self.pick(("restart", "restart", "term", "long")), 86_400_000_000)
            if machine.said and chances() < 0.05:
                machine.pending.append(self.pick(machine.said[-3:]))
            makers = self.random.choices([make for _, make in self.weights], [weight for weight, _ in self.weights])
            producer = 5 if chances() < 0.15 else 0
            machine.ask(makers[0](), chances() < 0.7, self.pick((1, 1, 2)), producer)
        if machine.pending:
            machine.commit()

    def item(self) -> c.Item:
        item = c.Item(self.pick(KEYS), self.pick(PAYLOADS))
        if self.random.random() < 0.5:
            item.options = c.Options(
                delay_ms=self.pick((0, 0, 5, 20, 1000)),
                expires_ms=self.pick((0, 0, 20, 2000)),
                headers=self.pick((c.NO_RAW, Raw(c.encode({"a": "b"})))),
                dedup_key=self.pick((None, None, "k1", "k2", "k3")),
                lease_ms=self.pick((0, 0, 30)),
                available_at_us=self.pick((0, 0, self.machine.now_us + 50_000)),
                expires_at_us=self.pick((0, 0, self.machine.now_us + 100_000)),
                delay_to_tail=self.random.random() < 0.4,
            )
        return item

    def items(self, most: int = 3) -> list[c.Item]:
        return [self.item() for _ in range(self.random.randint(1, most))]

    def put(self) -> Any:
        return c.Put(self.pick(QUEUES), self.items())

    def put_many(self) -> Any:
        return c.PutMany([(self.pick(QUEUES), self.items(2)) for _ in range(self.random.randint(1, 2))])

    def take(self) -> Any:
        queue = self.machine.busy(self.pick(QUEUES))
        lease_ms = self.pick((None, None, 0, 0, 10, 50, 2000))
        return c.Take(
            queue, self.pick((1, 1, 2, 10)), lease_ms, 0, self.random.random() < 0.4, self.random.random() < 0.1
        )

    def bury(self) -> Any:
        name, ids = self.ids()
        return c.Bury(name, [(record_id, 0) for record_id in ids])

    def edit(self) -> Any:
        name, ids = self.ids()
        return c.Edit(name, ids[0], self.pick((None, *KEYS)), self.pick((None, None, 0, 30)))

    def redrive(self) -> Any:
        if self.machine.model.jobs and self.random.random() < 0.2:
            return c.CancelJob(self.pick(list(self.machine.model.jobs)))
        return c.Redrive(
            self.pick(("dead", "dead", "jobs")),
            self.pick((None, None, "jobs", "small", "other")),
            self.pick((None, None, (-1, 1))),
            self.pick((0, 0, 1, 7)),
            self.pick((0, 0, 2)),
            self.pick((0, 0, 5, 20)),
            self.pick((None, None, 1)),
        )

    def change(self) -> Any:
        some: dict[str, Any] = {
            "size_max": self.pick((None, None, 2, 4)),
            "lease_ms": self.pick((0, 25, 60_000)),
            "deliveries_max": self.pick((0, 1, 2, 3)),
            "dead_letter": self.pick((None, "dead", "dead", "other", "nowhere")),
            "expires_ms": self.pick((0, 0, 15, 900)),
            "dead_letter_expired": self.pick((False, True)),
            "dedup_window_ms": self.pick((0, 30, 5000)),
            "dedup_keys_max": self.pick((1, 2, 100)),
        }
        chosen = self.random.sample(sorted(some), 2)
        return c.ChangeQueue(self.pick(QUEUES), c.QueueChanges(**{name: some[name] for name in chosen}))

    def make_or_drop(self) -> Any:
        if self.random.random() < 0.3:
            return c.DeleteQueue(self.pick(("other", "later", "dead")))
        settings = c.QueueSettings(
            descending=self.pick((False, True)),
            deliveries_max=self.pick((0, 1, 2)),
            dead_letter=self.pick((None, "dead", "jobs")),
            size_max=self.pick((None, 3)),
        )
        return c.CreateQueue(self.pick(("other", "later", "dead", "nowhere")), settings, self.pick((True, False)))

    def stage_or_publish(self) -> Any:
        staged = list(self.machine.model.staged)
        if staged and self.random.random() < 0.5:
            query, batch, partition, attempt = self.pick(staged)
            return c.Publish(query, batch, [(partition, attempt)], 0, self.pick((False, False, True)))
        batch = max(self.machine.model.published.values(), default=0) + self.pick((0, 1, 1, 2))
        numbers = (self.pick((0, 1)), self.pick((0, 1)), self.pick((0, 1)))
        return c.Stage("q", batch, *numbers, [(self.pick(QUEUES), self.items(2))])

    def topic(self) -> Any:
        if self.random.random() < 0.3:
            return c.Bind(self.pick(("b1", "b2")), self.pick(("", "x")), "", self.pick(QUEUES), 70)
        return c.Broadcast(3, b"tag\xff", self.pick(PAYLOADS), self.pick(("", "x", "y")))

    def handles(self) -> tuple[str, list[tuple[int, int]]]:
        leased = {
            name: [(record.id, record.lease.token) for record in queue.in_state(LEASED) if record.lease]
            for name, queue in self.machine.model.queues.items()
        }
        name = self.pick([name for name, held in leased.items() if held] or ["jobs"])
        held = leased.get(name, [])
        chosen = self.random.sample(held, self.random.randint(1, len(held))) if held else []
        if self.random.random() < 0.1:
            chosen += [(1, 7), *((record_id, token + 1) for record_id, token in chosen[:1])]
        return name, chosen

    def ids(self) -> tuple[str, list[int]]:
        alive = {name: sorted(queue.records) for name, queue in self.machine.model.queues.items()}
        name = self.pick([name for name, ids in alive.items() if ids] or ["jobs"])
        ids = alive.get(name) or [99]
        return name, self.random.sample(ids, self.random.randint(1, min(4, len(ids))))
