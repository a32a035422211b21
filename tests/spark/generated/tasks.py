"""What is known of MoniQue's tasks while their history is made, and the table that it amounts to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.schemas import TASKS
from tests.spark.generated.lives import Moment, table_of


@dataclass(frozen=True, slots=True)
class Said:
    """A message on the com channel as its sender meant it."""

    type: str
    spec: str
    id: str
    pid: str
    creator: str
    created_at_ms: int | None
    """None, as the encoding, where nobody can read the body."""
    encoding: str | None
    failure: tuple[int, str] | None = None
    """What an error says in JSON: code and text."""


@dataclass(slots=True)
class TaskLife:
    """A task, from its config to the first answer."""

    said: Said
    depth: int
    started_us: int
    started_index: int
    done_us: int | None = None
    done_index: int | None = None
    answer: Said | None = None

    def row(self) -> tuple[object, ...]:
        """What the table of tasks must say, in the order of its columns."""
        said, answer = self.said, self.answer
        code, text = answer.failure if answer is not None and answer.failure is not None else (None, None)
        return (
            *(said.id, said.spec, said.creator, said.pid or None, self.depth, said.encoding),
            None if said.created_at_ms is None else said.created_at_ms * 1000,
            *(self.started_us, self.started_index, self.done_us, self.done_index),
            *((None, None) if answer is None else (answer.type, answer.creator)),
            *(code, text, None if self.done_us is None else self.done_us - self.started_us),
        )


class TaskTruth:
    """All tasks so far."""

    def __init__(self) -> None:
        self.all: list[TaskLife] = []
        self._latest: dict[str, TaskLife] = {}

    def hear(self, at: Moment, said: Said) -> None:
        """A message was published on com: a config begins a task unless it is open, an answer ends one that is."""
        task = self._latest.get(said.id if said.type == "config" else said.pid)
        is_open = task is not None and task.answer is None
        if said.type == "config" and not is_open:
            parent = self._latest.get(said.pid)
            depth = 0 if not said.pid else 1 if parent is None else parent.depth + 1
            self._latest[said.id] = TaskLife(said, depth, at.time_us, at.index)
            self.all.append(self._latest[said.id])
        elif said.type in ("result", "error") and task is not None and is_open:
            task.answer, task.done_us, task.done_index = said, at.time_us, at.index


def tasks_table(tasks: Iterable[TaskLife]) -> pa.Table:
    """The table of tasks as it must be, in the order in which they began."""
    return table_of(TASKS, [task.row() for task in tasks])
