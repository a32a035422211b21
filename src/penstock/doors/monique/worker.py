"""One worker of the controller: a PULL socket of any ZeroMQ at the other end of a ZMTP connection.

It has at most so many tasks at a time, one by default. A task is its own until a result or an error with the task's id
passes com. If the worker goes away, its tasks go back at once; if it is silent for too long, they go to others, and it
gets no more in their place until it has finished or connects anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.doors.monique.peers import ZmtpPeer
from penstock.doors.monique.tasks import task_of
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import Answer, Delivery, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_MONIQUE, REASON_ACK_TIMEOUT
from penstock.wire.monique.zmtp import SocketType, ZmtpConnection

if TYPE_CHECKING:
    from penstock.doors.monique.controller import Bench

log = logging.getLogger(__name__)

_WAIT_MS: Final = 24 * 3600 * 1000
_RETRY_S: Final = 1.0


class WorkerConnection(ZmtpPeer):
    """A worker, from its handshake on. Later it sends nothing but signs of life."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.node, bench.keeper, ZmtpConnection(SocketType.PUSH))
        self._bench = bench
        self._tasks: dict[str, asyncio.TimerHandle] = {}
        self._taking = False

    def greeted(self) -> None:
        """The worker is there, and free."""
        self._bench.workers.add(self)
        log.info("monique %s: a worker for %s", self.peer, self._bench.spec)
        self.want()

    def gone(self) -> None:
        """The worker left; its tasks are released by the base class."""
        for task_id, timer in self._tasks.items():
            timer.cancel()
            self._bench.let_go(task_id, self)
        self._tasks.clear()
        self._bench.workers.discard(self)

    # Tasks.

    def want(self) -> None:
        """Ask for as many tasks as the worker has room for, and wait for them."""
        room = self._bench.tasks_max - len(self._tasks)
        if room > 0 and self._bench.open and self._codec.ready and not self._taking and not self.transport.is_closing():
            self._taking = True
            # A lease of length 0 is bound to the connection.
            self._submit(c.TAKE, c.Take(self._bench.name, room, 0, _WAIT_MS))

    def _submit(self, op: int, args: Any) -> None:
        self.submit(Command(op, DOOR_MONIQUE, self.owner, 0, 0, c.encode(args), args), 0)

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Hand the worker what was taken for it."""
        if command.op != c.TAKE:
            return
        self._taking = False
        if self.transport.is_closing():
            self.unsent(command, answer)
        elif isinstance(answer, Taken):
            for record in answer.records:
                self._give(record, answer.token)
            self._pass_on()
            self.want()
        elif isinstance(answer, Refusal) and answer.code != e.STOPPING:
            # Its queue was deleted, or another node leads: it is looked after, and then there are tasks again.
            self._loop.call_later(_RETRY_S, self.want)

    def _give(self, record: Delivery, token: int) -> None:
        handle = (record.id, token)
        task = task_of(record.headers, record.payload)
        if task is None:
            log.warning("monique: record %d of %s is no task, and is buried", record.id, self._bench.name)
            self._submit(c.BURY, c.Bury(self._bench.name, [handle]))
            return
        if task.on_com:
            self._codec.send_message((task.tag_frame, record.payload))
        if not task.on_com or not task.id:
            # A task without an id cannot be answered, so it is done when it is sent.
            self._submit(c.ACK, c.Ack(self._bench.name, [handle]))
            return
        former = self._tasks.pop(task.id, None)
        if former is not None:
            former.cancel()
        self._bench.holders.setdefault(task.id, set()).add(self)
        timeout_s = self._bench.timeout_ms / 1000
        self._tasks[task.id] = self._loop.call_later(timeout_s, self._on_silence, task.id, handle)

    def _on_silence(self, task_id: str, handle: tuple[int, int]) -> None:
        log.warning("monique %s: task %s goes to another worker, this one is silent", self.peer, task_id)
        args = c.Return(self._bench.name, [handle], c.RELEASE, 0, REASON_ACK_TIMEOUT)
        self._submit(c.RETURN, args)

    def finished(self, task_id: str) -> None:
        """A result or an error for this task of the worker has passed: it has room again."""
        self._tasks.pop(task_id).cancel()
        self.want()
