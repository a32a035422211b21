"""MoniQue's part of a generated history: tasks, chains of tasks, their answers, and the technical channel."""

from __future__ import annotations

from random import Random

import msgspec

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.wire.monique.bodies import (
    Body,
    Failure,
    Kill,
    Monitoring,
    encode_body,
    encode_data,
    kill_body,
    monitoring_body,
)
from penstock.wire.monique.tags import ID_ALPHABET, ID_LENGTH, Dialect, legacy_id
from tests.engine.driving import Asked
from tests.spark.generated.tasks import Said
from tests.spark.generated.truth import Truth

COM, TECH, PACKED = 0, 1, 2
SPECS = ("sum", "sum", "mail", "resize", "größe")
BOUND = ("sum", "mail")
FAILURES = ((500, "it broke"), (502, 'bad "input"'), (301, "größer 任务"), (0, ""))
OPEN_MAX = 400


class Monique:
    """Draws what MoniQue's components say."""

    def __init__(self, truth: Truth, random: Random) -> None:
        self.truth, self.random = truth, random
        self.pick = random.choice
        self._open: list[tuple[str, bytes]] = []
        """Tasks that may be answered, each with its tag."""
        self._answered: list[str] = []

    def opening(self) -> list[Asked]:
        """What is bound from the beginning, and a binding that comes and goes."""
        binds = [c.Bind(f"monique/{spec}", spec, "config", f"monique/{spec}", 45_000) for spec in BOUND]
        other = c.Bind("all", "", "error", "errors", 60_000)
        return [self._ask(args) for args in (*binds, other, c.Unbind("all"))]

    def publish(self, now_us: int) -> list[Asked]:
        """A few tasks: first ones, and ones that follow from others."""
        asked = []
        for _ in range(self.pick((1, 1, 3, 8))):
            chance = self.random.random()
            pid = ""
            if self._open and chance < 0.45:
                pid = self.pick(self._open[-2:])[0]  # of the latest ones, so that there are chains
            elif self._answered and chance < 0.55:
                pid = self.pick(self._answered[-5:])
            elif chance < 0.57:
                pid = self._new_id()  # of a task that nobody knows
            asked.append(self._config(now_us, pid))
        if len(self._open) > OPEN_MAX:
            del self._open[: OPEN_MAX // 2]  # these never get an answer
        return asked

    def answer(self, now_us: int) -> list[Asked]:
        """Answers to some tasks; the records that stand for them are done."""
        asked = []
        for _ in range(self.pick((1, 2, 4, 10))):
            if not self._open:
                return asked or self.publish(now_us)
            at = self.random.randrange(len(self._open))
            task, tag = self._open[at]
            if self.random.random() < 0.95:  # else it gets another answer later, which does not count
                del self._open[at]
                self._answered = [*self._answered[-200:], task]
            asked.append(self._answer_to(now_us, task))
            if self.random.random() < 0.8:
                asked += [
                    self._ask(c.Delete(life.line.name, [life.id], True, life.line.uid))
                    for life in self.truth.copies.get(tag, ())
                    if life.id in life.line.open
                ]
        return asked

    def technical(self, now_us: int) -> list[Asked]:
        """What components say of themselves, and the end of a task by order."""
        now_ms = now_us // 1000
        if self._open and self.random.random() < 0.5:
            task, _ = self._open.pop()
            creator = "operator"
            kill = kill_body(task, id=self._new_id(), creator=creator, created_at_ms=now_ms)
            error = self._body("error", "error", task, creator, now_ms, encode_data(Failure(301, "task killed")))
            return [self._say(error, COM, (301, "task killed")), self._say(kill, TECH)]
        alive = Monitoring(now_ms, self.pick(("adder", "mailer")), True, "fine")
        return [self._say(monitoring_body(alive, id=self._new_id(), creator=alive.name), TECH)]

    # Bodies.

    def _config(self, now_us: int, pid: str) -> Asked:
        spec = self.pick(SPECS)
        data = encode_data(Kill("1 + 1")) if self.random.random() < 0.5 else self.random.randbytes(40)
        body = self._body("config", spec, pid, self.pick(("web", "cron", "größe")), now_us // 1000, data)
        expires_at_ms = body.created_at_ms + 600_000 if self.random.random() < 0.3 else 0
        body = msgspec.structs.replace(body, expires_at_ms=expires_at_ms, encoding=self.pick(("JSON", "JSON", "RAW")))
        chance = self.random.random()
        if chance < 0.02 and self._open:
            body = msgspec.structs.replace(body, id=self._open[-1][0])  # a second time, which does not count
        elif chance < 0.06 and self._answered:
            body = msgspec.structs.replace(body, id=self.pick(self._answered[-5:]))  # once more: another task
            self._open.append((body.id, body.tag.encode()))
        elif chance < 0.95:  # else it never gets an answer
            self._open.append((body.id, body.tag.encode()))
        return self._say(body, COM, opaque=self.random.random() < 0.03)

    def _answer_to(self, now_us: int, task: str) -> Asked:
        creator, now_ms = self.pick(("adder", "mailer", "scaler")), now_us // 1000
        if self.random.random() < 0.8:
            return self._say(self._body("result", self.pick(SPECS), task, creator, now_ms, b"2"), COM)
        failure = self.pick(FAILURES)
        chance = self.random.random()
        if chance < 0.1:
            body = self._body("error", "error", task, creator, now_ms, b"\xff\x00 no text")
            return self._say(msgspec.structs.replace(body, encoding="RAW"), COM)
        if chance < 0.2:
            return self._say(self._body("error", "error", task, creator, now_ms, b"{no JSON"), COM)
        return self._say(
            self._body("error", "error", task, creator, now_ms, encode_data(Failure(*failure))), COM, failure
        )

    def _body(self, type: str, spec: str, pid: str, creator: str, now_ms: int, data: bytes) -> Body:
        created_at_ms = now_ms - self.random.randrange(-3, 400)
        legacy = self.random.random() < 0.1
        return Body(
            type=type,
            spec=spec,
            id=legacy_id(f"{creator}{self.random.random()}", created_at_ms, spec) if legacy else self._new_id(),
            pid=pid,
            creator=creator,
            created_at_ms=created_at_ms,
            data=data,
            dialect=Dialect.LEGACY if legacy else Dialect.CURRENT,
        )

    def _say(self, body: Body, channel: int, failure: tuple[int, str] | None = None, opaque: bool = False) -> Asked:
        tag = body.tag.encode()
        data = b"\xc1 opaque" if opaque else encode_body(body)
        self.truth.said[tag, data] = Said(
            *(body.type, body.spec, body.id, body.pid, body.creator),
            created_at_ms=None if opaque else body.created_at_ms,
            encoding=None if opaque else body.encoding,
            failure=None if opaque else failure,
        )
        channel |= PACKED if body.dialect is Dialect.LEGACY else 0
        expires_at_us = 0 if opaque or body.expires_at_ms <= 0 else body.expires_at_ms * 1000
        return self._ask(c.Broadcast(channel, tag, data, body.spec, body.type, expires_at_us))

    def _new_id(self) -> str:
        return "".join(self.random.choices(ID_ALPHABET, k=ID_LENGTH))

    def _ask(self, args: object) -> Asked:
        return Asked(args, 1 << 32 | j.DOOR_MONIQUE * 16 + self.random.randrange(3), j.DOOR_MONIQUE)
