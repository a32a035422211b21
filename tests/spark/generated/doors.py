"""What is asked of a node in a generated history: producers, workers and operators at all doors, drawn from one seed.

A call of `Doors.turn` gives the commands of one entry. They are chosen by what is known so far; those of one entry may
get in each other's way, as real ones do, and then the answers say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from msgspec import Raw

from penstock.engine import commands as c
from penstock.engine import journal as j
from tests.engine.driving import Asked
from tests.spark.generated.lives import BURIED, DELAYED, READY, Life, Line
from tests.spark.generated.monique import Monique
from tests.spark.generated.truth import Truth

FAILURES = ("", "", "ValueError: größer", "KeyError: 'id'\nin line 7", "timeout after 30 s")
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
PRIORITIES = (0, 0, 0, 1, 1, 2, 5, 9, 10, 42, 99, 100)
FAR_KEYS = (c.INT64_MIN, -1_000_000, -7, -1, 0, 3, 999, 1_000, 54_321, 100_000, 999_999, 1_000_000, c.INT64_MAX)


@dataclass(frozen=True)
class Style:
    """How a queue is used."""

    doors: tuple[int, ...]
    settings: c.QueueSettings
    keys: tuple[int, ...] = PRIORITIES
    backlog: int = 600
    """With more messages than this in it, nobody puts any more."""
    lease_ms: int | None = None
    to_tail: bool = False
    final: float = 0.0
    """How often it is taken from for good."""
    weight: int = 4


NATIVE = (j.DOOR_NATIVE, j.DOOR_NATIVE, j.DOOR_HTTP, j.DOOR_GRPC)
STYLES: dict[str, Style] = {
    "": Style((j.DOOR_TASKFLUX,), c.QueueSettings(), backlog=300, lease_ms=0, final=0.2),
    "emails": Style(NATIVE, c.QueueSettings(deliveries_max=3, dead_letter="emails/dead"), weight=8, backlog=1500),
    "emails/dead": Style(NATIVE, c.QueueSettings(lease_ms=20_000), weight=1, backlog=0),
    "reports": Style(
        (j.DOOR_TASKFLUX, j.DOOR_NATIVE),
        c.QueueSettings(c.QA, 400, 3000, (0, 9999), expires_ms=HOUR_MS, dead_letter="late", dead_letter_expired=True),
    ),
    "late": Style(NATIVE, c.QueueSettings(expires_ms=3 * HOUR_MS), weight=1, backlog=0),
    "etzel": Style((j.DOOR_ETZEL,), c.QueueSettings(lease_ms=30_000), (0,), to_tail=True, weight=6),
    "bulk": Style(
        (j.DOOR_NATIVE, j.DOOR_IMPORT), c.QueueSettings(descending=True), FAR_KEYS, backlog=3000, final=0.5, weight=6
    ),
    "scratch": Style(NATIVE, c.QueueSettings(deliveries_max=2, lease_ms=10_000), FAR_KEYS, weight=3),
    "from-spark": Style(NATIVE, c.QueueSettings(), weight=2, backlog=0),
    "monique/sum": Style((j.DOOR_MONIQUE,), c.QueueSettings(), weight=2, backlog=0),
    "monique/mail": Style((j.DOOR_MONIQUE,), c.QueueSettings(), weight=1, backlog=0),
}
OTHER_STYLE = Style(NATIVE, c.QueueSettings(), weight=0)
MADE_BY_PUT = tuple(f"made/{number}" for number in range(4))


class Doors:
    """Draws what is asked next."""

    def __init__(self, truth: Truth, random: Random) -> None:
        self.truth, self.random = truth, random
        self.pick = random.choice
        self.monique = Monique(truth, random)
        self.term = 1
        self._payloads = [random.randbytes(random.choice((0, 1, 7, 20, 20, 60, 60, 100, 250))) for _ in range(400)]
        self._payloads += [bytes(range(256)), random.randbytes(2_500), "größer 任务 🛠".encode()]
        self._headers = [Raw(c.encode({"trace": f"t-{n}", "größe": "ä" * (n % 3)})) for n in range(20)]
        self._names = [name for name, style in STYLES.items() for _ in range(style.weight)]
        self._batch = 0
        self._requests = count(1)
        self._said: list[Asked] = []
        self._acts: list[Callable[[int], list[Asked]]] = []
        self._weights: list[int] = []
        for weight, act in (
            (300, self._produce),
            (300, self._consume),
            (330, self._finish),
            (60, self._operate),
            (4, self._manage),
            (6, self._write),
            (40, self.monique.publish),
            (50, self.monique.answer),
            (4, self.monique.technical),
            (4, self._misbehave),
            (8, self._introduce),
        ):
            self._acts.append(act)
            self._weights.append(weight)

    def opening(self) -> list[Asked]:
        """The first entry: the queues and what is bound."""
        made = [Asked(c.CreateQueue(name, style.settings)) for name, style in STYLES.items() if name]
        return made + self.monique.opening()

    def turn(self, now_us: int) -> list[Asked]:
        """The commands of one entry."""
        acts = self.random.choices(self._acts, self._weights, k=self.pick((1, 1, 2, 3, 5, 8)))
        return [asked for act in acts for asked in act(now_us)]

    def evening(self) -> list[Asked]:
        """Most of what is held is finished before a pause."""
        asked = []
        for line in list(self.truth.lines.values()):
            held = [life for life in line.held.values() if not _is_poison(life) and self.random.random() < 0.9]
            if held:
                asked.append(self._who(line.name, c.Ack(line.name, [(life.id, life.token) for life in held])))
        return asked

    def end(self) -> list[Asked]:
        """The last entry: much is taken and nothing finished, and the last word is a put."""
        takes = [c.Take(name, 20, STYLES[name].lease_ms) for name in ("", "emails", "etzel", "bulk")]
        return [self._who(args.queue, args) for args in (*takes, c.Put("emails", [c.Item(7, b"the last one")]))]

    def gone(self) -> list[Asked]:
        """A connection says its name and ends, which the node itself says."""
        owner = self._owner(j.DOOR_TASKFLUX)
        named = Asked(c.NameOwner(owner, f"worker {owner & 0xFFFF}"), owner, j.DOOR_TASKFLUX)
        return [named, Asked(c.OwnerGone(owner), 0, j.DOOR_NODE)]

    def _introduce(self, now_us: int) -> list[Asked]:
        """A connection says its name, some of them another one than before."""
        door = self.pick((j.DOOR_TASKFLUX, j.DOOR_NATIVE, j.DOOR_ETZEL))
        owner = self._owner(door)
        return [Asked(c.NameOwner(owner, f"größer {owner & 0xFFFF}.{self.random.randrange(5)}"), owner, door)]

    # Who asks.

    def _owner(self, door: int) -> int:
        return self.term << 32 | door * 16 + self.random.randrange(3)

    def _style(self, name: str) -> Style:
        return STYLES.get(name, OTHER_STYLE)

    def _who(self, queue: str, args: Any) -> Asked:
        door = self.pick(self._style(queue).doors)
        return Asked(args, self._owner(door), door)

    def _line(self) -> Line | None:
        return self.truth.lines.get(self.pick(self._names))

    # Producers.

    def _item(self, style: Style, now_us: int) -> c.Item:
        item = c.Item(self.pick(style.keys), self.pick(self._payloads))
        if style.to_tail:
            chance = self.random.random()
            if chance < 0.4:
                item.options = c.Options(self.pick((1, 5, 60)) * SECOND_MS, lease_ms=30_000, delay_to_tail=True)
            elif chance < 0.5:
                item.options = c.Options(expires_at_us=now_us + self.pick((1, 30, 900)) * 1_000_000)
        elif self.random.random() < 0.12:
            item.options = c.Options(
                delay_ms=self.pick((0, 0, 0, 5, 3 * SECOND_MS, 10 * MINUTE_MS, 20 * HOUR_MS)),
                expires_ms=self.pick((0, 0, 0, 30 * SECOND_MS, 30 * HOUR_MS)),
                headers=self.pick((c.NO_RAW, *self._headers)),
                dedup_key=self.pick((None, None, f"k{self.random.randrange(200)}")),
                lease_ms=self.pick((0, 0, 5 * SECOND_MS)),
                available_at_us=self.pick((0, 0, 0, now_us - 5, now_us + 7_000_000)),
            )
        return item

    def _items(self, style: Style, now_us: int, most: int = 60) -> list[c.Item]:
        size = min(most, self.pick((1, 1, 2, 5, 12, 30, 60)))
        if self.random.random() < 0.5:
            pick, payloads = self.pick, self._payloads
            return [c.Item(pick(style.keys), pick(payloads)) for _ in range(size)]
        return [self._item(style, now_us) for _ in range(size)]

    def _produce(self, now_us: int) -> list[Asked]:
        line = self._line()
        if line is None or len(line.open) >= self._style(line.name).backlog:
            return self._consume(now_us)
        style = self._style(line.name)
        chance = self.random.random()
        if chance < 0.04:
            puts = [(name, self._items(STYLES[name], now_us, 5)) for name in ("emails", "bulk", "emails")]
            return [self._who("emails", c.PutMany(puts))]
        if chance < 0.06:
            name = self.pick(MADE_BY_PUT)
            return [self._who(name, c.Put(name, self._items(OTHER_STYLE, now_us, 12), True))]
        if chance < 0.1:
            asked = self._who(line.name, c.Put(line.name, self._items(style, now_us, 5)))
            asked = asked._replace(producer=7, request=next(self._requests))
            self._said.append(asked)
            return [asked]
        return [self._who(line.name, c.Put(line.name, self._items(style, now_us)))]

    # Workers.

    def _consume(self, now_us: int) -> list[Asked]:
        line = self._line()
        if line is None:
            return []
        style = self._style(line.name)
        size = self.pick((1, 1, 3, 10, 30, 60))
        if style.doors is NATIVE and line.held and self.random.random() < 0.3:
            return [self._who(line.name, c.AckTake(line.name, self._handles(line), size))]
        if self.random.random() < style.final:
            return [self._who(line.name, c.Take(line.name, size, final=True))]
        return [self._who(line.name, c.Take(line.name, size, style.lease_ms, 0, style.to_tail))]

    def _handles(self, line: Line, most: int = 60) -> list[tuple[int, int]]:
        lives = [life for life in line.held.values() if not _is_poison(life)]
        if len(lives) > most:
            start = self.random.randrange(len(lives) - most)
            lives = lives[start : start + most]
        handles = [(life.id, life.token) for life in lives]
        if handles and self.random.random() < 0.05:
            handles.append((self.pick(handles)[0], 12345))
        return handles

    def _finish(self, now_us: int) -> list[Asked]:
        line = self._line()
        if line is None or not line.held:
            return self._produce(now_us)
        name, chance = line.name, self.random.random()
        poison = [(life.id, life.token) for life in line.held.values() if _is_poison(life)]
        if poison and chance < 0.5:
            delay_ms = self.pick((0, 0, 2 * SECOND_MS))
            return [self._who(name, c.Return(name, poison, c.NACK, delay_ms, 0, self.pick(FAILURES)))]
        if chance < 0.74:
            return [self._who(name, c.Ack(name, self._handles(line)))]
        handles = self._handles(line, self.pick((1, 3, 20)))
        if chance < 0.86:
            delay_ms = self.pick((0, 0, 0, 4 * SECOND_MS, HOUR_MS))
            return [self._who(name, c.Return(name, handles, c.NACK, delay_ms, 0, self.pick(FAILURES)))]
        if chance < 0.90:
            reason = self.pick((0, 0, j.REASON_DISCONNECT, j.REASON_ACK_TIMEOUT))
            return [self._who(name, c.Return(name, handles, c.RELEASE, self.pick((0, 0, 2 * SECOND_MS)), reason))]
        if chance < 0.92:
            return [Asked(c.Return(name, handles, c.UNSENT, 0, j.REASON_UNSENT), 0, j.DOOR_NODE)]
        if chance < 0.97:
            return [self._who(name, c.Extend(name, handles, self.pick((5, 90)) * SECOND_MS))]
        return [self._who(name, c.Bury(name, handles[:2], self.pick(FAILURES)))]

    # Operators.

    def _some(self, line: Line, states: tuple[str, ...], most: int = 4) -> list[Life]:
        some: list[Life] = []
        for life in line.open.values():
            if life.state in states and self.random.random() < 0.3:
                some.append(life)
                if len(some) == most:
                    break
        return some

    def _operate(self, now_us: int) -> list[Asked]:
        line = self._line()
        if line is None:
            return []
        name = line.name
        act = self.pick(("kick", "kick", "edit", "edit", "delete", "bury", "move", "redrive", "redrive"))
        if act == "kick" and line.settings.size_max is None:
            ids = [life.id for life in self._some(line, (BURIED, DELAYED))]
            return [self._who(name, c.Kick(name, ids, self.pick((0, 1, 5))))]
        lives = self._some(line, (READY, DELAYED))
        if act == "edit" and lives:
            key = self.pick((None, *PRIORITIES))
            return [self._who(name, c.Edit(name, lives[0].id, key, self.pick((None, 0, 0, 20 * SECOND_MS))))]
        if act == "delete":
            ids = [life.id for life in self._some(line, (READY, DELAYED, "leased", BURIED), 2)]
            return [self._who(name, c.Delete(name, [*ids, 987_654_321], self.random.random() < 0.2))]
        if act == "bury" and lives:
            return [self._who(name, c.Bury(name, [(life.id, 0) for life in lives[:2]]))]
        if act == "move":
            ids = [life.id for life in self._some(line, (READY, DELAYED, BURIED, "leased"))]
            return [self._who(name, c.Move(name, ids, self.pick([other for other in ("bulk", "") if other != name])))]
        if act == "redrive":
            return [self._who(name, self._redrive())]
        return []

    def _redrive(self) -> c.Redrive:
        # What lies in late came from reports, whose limits would have to be minded on the way back.
        source, target = self.pick((("emails/dead", None), ("emails/dead", "bulk"), ("late", "emails")))
        return c.Redrive(
            *(source, target),
            key_range=self.pick((None, None, (0, 9))),
            reason=self.pick((0, 0, 0, j.REASON_NACK, j.REASON_LEASE_TIMEOUT)),
            count_max=self.pick((0, 5, 40)),
            rate_per_s=self.pick((0, 0, 100)),
            new_key=self.pick((None, 0, -5)),
        )

    def _manage(self, now_us: int) -> list[Asked]:
        chance = self.random.random()
        name = self.pick(("scratch", *MADE_BY_PUT))
        if chance < 0.45:
            if name in self.truth.lines:
                return [self._who(name, c.DeleteQueue(name))]
            return [self._who(name, c.CreateQueue(name, self._style(name).settings))]
        if chance < 0.6:
            purged = self.pick(("", "scratch", "bulk", "etzel"))
            return [self._who(purged, c.Purge(purged))]
        if chance < 0.85:
            return [self._who("bulk", c.Pause("bulk", self.random.random() < 0.4))]
        changes = c.QueueChanges(deliveries_max=self.pick((1, 2, 4)), lease_ms=self.pick((5_000, 60_000)))
        return [self._who("scratch", c.ChangeQueue("scratch", changes))]

    def _write(self, now_us: int) -> list[Asked]:
        """A writer's batch: staged in two partitions, one of them twice, and mostly published."""
        self._batch += 1
        style = STYLES["from-spark"]
        names = [name for name in ("from-spark", "scratch") if name in self.truth.lines]
        parts = [[(name, self._plain_items(style)) for name in names] for _ in range(4)]
        stages = [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 0)]
        staged = [
            c.Stage("query", self._batch, partition, attempt, part, puts)
            for (partition, attempt, part), puts in zip(stages, parts, strict=True)
        ]
        end: list[Any] = [c.Publish("query", self._batch, [(1, 1), (0, 0)])] * self.pick((1, 1, 2))
        if self.random.random() < 0.2:
            end = [c.Abort("query", self._batch)]
        return [self._who("from-spark", args) for args in (*staged, staged[1], *end)]

    def _plain_items(self, style: Style) -> list[c.Item]:
        items = [c.Item(self.pick(style.keys), self.pick(self._payloads)) for _ in range(self.pick((1, 4, 20)))]
        items[0].options = c.Options(self.pick((0, 2 * SECOND_MS)), headers=self.pick(self._headers))
        return items

    def _misbehave(self, now_us: int) -> list[Asked]:
        """What is refused, what cannot be read, and what was asked before."""
        wrong = [
            self._who("nowhere", c.Put("nowhere", [c.Item(1, b"lost")])),
            self._who("reports", c.Put("reports", [c.Item(-1, b"out of range"), c.Item(5, bytes(3001))])),
            Asked(b"\xc1 this is no command", self._owner(j.DOOR_NATIVE)),
        ]
        return [self.pick([*wrong, *self._said[-3:]])]


def _is_poison(life: Life) -> bool:
    """Some messages make every worker fail."""
    return life.line.name == "emails" and not life.id % 40
