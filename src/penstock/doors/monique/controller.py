"""The controller: tasks wait in queues, and go one at a time to workers that are free.

    config:<spec>:… on com ─binding─▶ queue monique/<spec> ─Take─▶ worker on the port of the spec
    result:…:pid or error:…:pid on com ────────────────────────────▶ the task is done, the worker is free

`connections` say which specs have such a queue, and on which port their workers connect. They may change while the node
runs: a spec that is new gets its queue and port; one that is gone gets no more tasks and no more workers, and what
waits in its queue is kept.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.doors.errors import CannotListen
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.monique.tasks import TaskIndex, queue_name, wanted_bindings
from penstock.doors.monique.worker import WorkerConnection
from penstock.engine import commands as c
from penstock.engine.answers import Answer
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_MONIQUE
from penstock.node.node import Node
from penstock.settings.schema import MoniqueSettings

log = logging.getLogger(__name__)


class Bench:
    """Where the workers of one spec sit."""

    node: Node
    keeper: Doorkeeper
    tasks: TaskIndex

    def __init__(self, settings: MoniqueSettings, spec: str, port: int) -> None:
        self.spec = spec
        self.name = queue_name(spec) or ""
        self.tasks_max = settings.worker_tasks
        self.timeout_ms = settings.task_timeout_ms
        self.workers: set[WorkerConnection] = set()
        self.holders: dict[str, set[WorkerConnection]] = {}
        """Who has which task; several have one that went to another when the first was silent."""
        self.ended: list[str] = []
        """Tasks that are done and whose records may be among those not read yet."""
        self.reading = False
        """Whether the next slice of records will be read in a later turn of the loop."""
        self.open = True
        """Whether the workers get tasks."""
        self._settings = settings
        self.listen_on(port)

    def listen_on(self, port: int) -> None:
        """The port of the spec, when its listener opens next."""
        place = self._settings.controller_place(self.spec, port)
        self.wanted_port = port
        self.listener = Listener(place, self._make, f"MoniQue workers for {self.spec} (ZeroMQ)")

    def _make(self) -> WorkerConnection:
        return WorkerConnection(self)

    def attach(self, node: Node, keeper: Doorkeeper) -> None:
        """Get ready for workers."""
        self.node, self.keeper = node, keeper
        self.tasks = TaskIndex(node.engine.state, self.name)

    def let_go(self, task_id: str, worker: WorkerConnection) -> None:
        """A worker left with this task unfinished."""
        others = self.holders.get(task_id, set())
        others.discard(worker)
        if not others:
            self.holders.pop(task_id, None)

    def close(self) -> None:
        """No more workers, no more tasks; those at work may finish."""
        self.open = False
        self.listener.close()
        for worker in list(self.workers):
            self.node.stop_waiting(worker)

    def reopen(self) -> None:
        """Tasks again for the workers that are still there."""
        self.open = True
        for worker in list(self.workers):
            worker.want()


class Controller:
    """The benches of all specs."""

    def __init__(self, settings: MoniqueSettings) -> None:
        self._settings = settings
        self._benches: dict[str, Bench] = {}
        self._connections = settings.open_connections()
        for spec, port in self._connections.items():
            self._add(spec, port)

    def _add(self, spec: str, port: int) -> Bench | None:
        if queue_name(spec) is None:
            log.error("monique: the spec %r is too long for the name of a queue, it gets no controller", spec)
            return None
        bench = self._benches[spec] = Bench(self._settings, spec, port)
        return bench

    @property
    def listeners(self) -> list[Listener]:
        """Where workers connect."""
        return [bench.listener for bench in self._benches.values()]

    def attach(self, node: Node, keeper: Doorkeeper) -> None:
        """The node leads: bind, and know the tasks that wait."""
        self._node, self._keeper, self._owner = node, keeper, node.new_owner()
        self._loop = asyncio.get_running_loop()
        self.reconcile()
        for bench in self._benches.values():
            bench.attach(node, keeper)
            self._catch_up(bench)
        node.on_woken.append(self._on_woken)

    def close(self) -> None:
        """The node stops: no more workers."""
        for bench in self._benches.values():
            bench.listener.close()

    def reconcile(self) -> None:
        """Bind what is to be bound and is not, for whatever reason."""
        specs = [bench.spec for bench in self._benches.values() if bench.open]
        for bind in wanted_bindings(specs, self._settings.task_timeout_ms, self._node.engine.state):
            self._submit(c.BIND, bind)

    async def keep_up(self, connections: dict[str, int] | None) -> None:
        """See to it that these specs have these ports, or those from before have theirs.

        A port that cannot be had, or a binding that was refused, is told in the log and tried again the next time.
        """
        connections = self._connections = self._connections if connections is None else connections
        for spec, bench in self._benches.items():
            if bench.open and connections.get(spec) != bench.wanted_port:
                bench.close()
        for spec, port in connections.items():
            known = self._benches.get(spec)
            if known is None or not known.open:
                await self._open(spec, port)
        self.reconcile()

    async def _open(self, spec: str, port: int) -> None:
        bench = self._benches.get(spec)
        if bench is None:
            bench = self._add(spec, port)
            if bench is None:
                return
            bench.attach(self._node, self._keeper)
            self._catch_up(bench)
        else:
            bench.listen_on(port)
        try:
            await bench.listener.open()
        except CannotListen as problem:
            bench.open = False
            log.error("monique: %s", problem)
        else:
            log.info("monique: workers for %s connect to port %d", spec, bench.listener.port)
            bench.reopen()

    # Tasks that are done.

    def finished(self, task_id: str) -> None:
        """A result or an error for this task has passed com: it is done, wherever it is."""
        for bench in self._benches.values():
            bench.ended.append(task_id)
            self._catch_up(bench)
            for worker in bench.holders.pop(task_id, ()):
                worker.finished(task_id)

    def _on_woken(self, queues: set[str]) -> None:
        for bench in self._benches.values():
            if bench.name in queues:
                self._catch_up(bench)

    def _catch_up(self, bench: Bench) -> None:
        """Read new records, a slice in each turn of the loop, and then end those whose tasks are done."""
        if bench.reading:
            return
        if not bench.tasks.catch_up():
            bench.reading = True
            self._loop.call_soon(self._read_on, bench)
            return
        ended, bench.ended = bench.ended, []
        for task_id in ended:
            for delete in bench.tasks.ends(task_id):
                self._submit(c.DELETE, delete)

    def _read_on(self, bench: Bench) -> None:
        bench.reading = False
        self._catch_up(bench)

    # The node's side.

    def _submit(self, op: int, args: c.Bind | c.Delete) -> None:
        self._node.submit(Command(op, DOOR_MONIQUE, self._owner, 0, 0, c.encode(args), args), self, 0)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """Something was done, or could not be."""
        if isinstance(answer, Refusal):
            log.warning("monique controller: %s", answer.detail)

    def flush(self) -> None:
        """Nothing is written from here."""

    def broken(self, problem: BaseException) -> None:
        """An outcome could not be noted; nobody waits for it."""
        log.error("monique controller: an outcome could not be noted", exc_info=problem)
