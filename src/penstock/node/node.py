"""The node: commands in, answers out, and between the two the commit path.

    submit ─▶ pending ─flush─▶ entry ─propose─▶ consensus ─ready─▶ log, sync ─persisted─▶ committed ─▶ engine ─▶ sinks

Commands that arrive while a sync runs form the next batch: one entry, one write, one sync. A sink is answered when its
command has been applied, and never earlier. With one voter the way is the same as with many: only consensus decides
what is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.consensus.errors import NotLeader
from penstock.consensus.ready import Consensus, LogEntry, Ready
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Answer, Handled, Taken
from penstock.engine.commands import Broadcast
from penstock.engine.entries import COMMAND, COMMANDS_PER_ENTRY_MAX, Command, Entry, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NODE, REASON_UNSENT
from penstock.engine.machine import OWNER_TERM_SHIFT, Engine
from penstock.engine.managing import no_such_queue
from penstock.engine.records import READY
from penstock.node.clock import LogClock
from penstock.node.errors import NodeFailed
from penstock.node.feeding import Feeding
from penstock.node.limits import Limits
from penstock.node.requests import NOBODY, Request, Sink
from penstock.node.snapshots import Snapshots
from penstock.node.storing import LogStore
from penstock.node.syncing import Syncer
from penstock.node.waiting import Waiters
from penstock.storage.errors import StorageError

log = logging.getLogger(__name__)

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""A batch is cut into entries of about this size; one command may be larger alone."""
MARK_AFTER_S = 0.05
_PUTS = frozenset({c.PUT, c.PUT_MANY, c.STAGE, c.BROADCAST, c.CREATE_QUEUE, c.BIND})
_TAKES = frozenset({c.TAKE, c.ACK_TAKE})


class Batch:
    """Requests that share an entry which is proposed and not yet applied."""

    __slots__ = ("entry", "index", "reads", "requests", "term")

    def __init__(self, log_entry: LogEntry, entry: Entry, requests: list[Request]) -> None:
        self.index = log_entry.index
        self.term = log_entry.term
        self.entry = entry
        self.requests = requests
        self.reads: list[Callable[[], None]] = []
        """What wants to look at the state when this has been applied."""


class Node:
    """One node of a cluster, on the running event loop."""

    def __init__(
        self,
        engine: Engine,
        consensus: Consensus,
        store: LogStore,
        *,
        node_id: int,
        clock: LogClock,
        syncer: Syncer,
        limits: Limits,
        snapshot_bytes: int,
        mode: str = "durable",
    ) -> None:
        self.engine = engine
        self.consensus = consensus
        self.store = store
        self.node_id = node_id
        self.clock = clock
        self.limits = limits
        self.mode = mode
        self.connections_open = 0
        self.snapshots = Snapshots(engine, store, snapshot_bytes, self._fail)
        self.waiters = Waiters()
        self.on_broadcast: list[Callable[[Broadcast], None]] = []
        """Called with each topic message when its entry is applied live."""
        self.on_woken: list[Callable[[set[str]], None]] = []
        """Called with the names of queues in which records have become available, once they are there."""
        self.on_applied: list[Callable[[], None]] = []
        """Called when entries have been applied and answered, and their events are in the journal."""
        self.failed: asyncio.Future[NodeFailed] = asyncio.get_running_loop().create_future()
        """Done when the node had to stop."""
        self._loop = asyncio.get_running_loop()
        self._syncer = syncer
        syncer.on_failure = self._on_late_failure
        self._pending: list[Request] = []
        self._pending_reads: list[Callable[[], None]] = []
        self._in_flight: deque[Batch] = deque()
        self._dirty: list[Sink] = []
        self._persisting = False
        self._answering = False
        self._flush_set: asyncio.Handle | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0
        self._mark_timer: asyncio.TimerHandle | None = None
        self._connections = 0
        self.feeding = Feeding(self)
        """The whole history, for readers."""
        self._started_s = self._loop.time()
        self._idle: asyncio.Future[None] | None = None
        self._sweeping = False
        self._syncing_ahead = False

    # What doors use.

    def start(self) -> None:
        """Become the leader of a new term; its first entry releases what was bound to connections of earlier ones."""
        self.consensus.campaign()
        self.clock.restart(self.engine.state.stamp_us)
        self._propose_own(c.NewTerm(self.node_id, self.limits.payload_bytes_max, self.limits.queues_max))

    @property
    def is_busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._pending or self._in_flight)

    def uptime_ms(self) -> int:
        """How long this node has been running."""
        return int((self._loop.time() - self._started_s) * 1000)

    def new_owner(self) -> int:
        """A number for a new connection, never used before: (term, connection)."""
        self._connections += 1
        return self.consensus.term << OWNER_TERM_SHIFT | self._connections

    def submit(self, command: Command, sink: Sink, ref: int) -> None:
        """Take a command; the sink is answered when it has been applied, or at once if it is refused."""
        op = command.op
        if self._stopped or not self.consensus.is_leader:
            self._answer(Request(command, sink, ref), self._why_not())
        elif op in _TAKES:
            self._submit_take(Request(command, sink, ref), command.args.wait_ms)
        else:
            if op in _PUTS:
                refusal = self.limits.refusal(self.engine.state, self.store.disk_full)
                if refusal is not None:
                    self._answer(Request(command, sink, ref), refusal)
                    return
            self._enqueue(Request(command, sink, ref))
            if self.waiters.queues and op in _PUTS:
                self._carry_waiters(command)

    def read(self, look: Callable[[], None]) -> None:
        """Look at the state when all that was submitted before has been applied."""
        if self._pending:
            self._pending_reads.append(look)
        elif self._in_flight:
            self._in_flight[-1].reads.append(look)
        else:
            look()

    def dirty(self, sink: Sink) -> None:
        """Have this sink flushed with the answers that are being given now."""
        if not self._dirty and not self._answering:
            self._loop.call_soon(self._flush_sinks)
        self._dirty.append(sink)

    def forget(self, sink: Sink, owner: int) -> None:
        """A connection is gone and has no command in flight: its waits end, the leases bound to it are released."""
        self.waiters.remove_sink(sink)
        if owner in self.engine.state.owners and self.consensus.is_leader and not self._stopped:
            self._propose_own(c.OwnerGone(owner))

    def stop_waiting(self, sink: Sink) -> None:
        """A connection is gone: what it waits for need not be looked for any more; commands in flight go on."""
        for request in self.waiters.remove_sink(sink):
            self._answer(request, self._nothing())

    def return_unsent(self, command: Command, taken: Taken) -> None:
        """Records were taken for a client that never got them: they come back as if nothing had happened."""
        if taken.records and not getattr(command.args, "final", False):
            handles = [(record.id, taken.token) for record in taken.records]
            self._propose_own(c.Return(command.args.queue, handles, c.UNSENT, 0, REASON_UNSENT))

    async def stop(self) -> None:
        """Finish what is in flight, then refuse all else."""
        while (self._pending or self._in_flight) and not self._stopped:
            self._idle = self._loop.create_future()
            await self._idle
        self._stopped = True
        for request in self.waiters.remove_all():
            self._answer(request, self._why_not())
        self._flush_sinks()
        for timer in (self._timer, self._mark_timer):
            if timer is not None:
                timer.cancel()
        await self.snapshots.stop()
        self.feeding.states.close()
        await self._syncer.stop()

    # The commit path.

    def _propose_own(self, args: Any) -> None:
        op = c.OPS[type(args)]
        self._enqueue(Request(Command(op, DOOR_NODE, 0, 0, 0, c.encode(args), args), NOBODY, 0))

    def _enqueue(self, request: Request) -> None:
        self._pending.append(request)
        if self._flush_set is None and not self._persisting:
            # The rest of this turn of the loop joins the batch.
            self._flush_set = self._loop.call_soon(self._flush)

    def end_of_input(self) -> None:
        """A door has taken in all that came on a connection; a lone one has nobody to share a batch with."""
        if self._flush_set is not None and self.connections_open == 1:
            self._flush_set.cancel()
            self._flush()

    def _flush(self) -> None:
        self._flush_set = None
        if self._stopped:
            self._refuse_pending()
            return
        try:
            self._propose_pending()
            self._drive()
        except StorageError as problem:
            self._fail(problem)

    def _propose_pending(self) -> None:
        requests, self._pending = self._pending, []
        start = 0
        while start < len(requests):
            stop, size = start, 0
            while stop < len(requests) and stop - start < COMMANDS_PER_ENTRY_MAX and size < ENTRY_BYTES_MAX:
                size += len(requests[stop].command.body) + COMMAND.size
                stop += 1
            chosen = requests[start:stop] if start or stop < len(requests) else requests
            entry = Entry(self.clock.now_us(), [request.command for request in chosen])
            try:
                proposed = self.consensus.propose(encode_entry(entry))
            except NotLeader:
                self._pending = requests[start:]
                self._refuse_pending()
                return
            self._in_flight.append(Batch(proposed, entry, chosen))
            start = stop
        if self._in_flight and self._pending_reads:
            self._in_flight[-1].reads += self._pending_reads
            self._pending_reads = []

    def _drive(self) -> None:
        """Do the work that consensus has, until there is none or a sync must be waited for."""
        while not self._persisting:
            ready = self.consensus.ready()
            if ready is None:
                break
            if ready.hard_state is not None:
                self.store.save_metadata(ready.hard_state.term, ready.hard_state.vote)
            if ready.entries:
                self.store.append([(entry.index, entry.term, entry.data) for entry in ready.entries])
                if self._syncer.must_wait():
                    self._persisting = True
                    self._syncer.start(lambda failure, ready=ready: self._persisted(ready, failure))  # type: ignore[misc]
                else:
                    self.consensus.persisted(ready)
            elif ready.hard_state is not None:
                self.consensus.persisted(ready)
            if ready.committed:
                self._apply_all(ready.committed)
        if not self.consensus.is_leader:
            self._lose_leadership()

    def _persisted(self, ready: Ready, failure: StorageError | None) -> None:
        """The sync that ran in a thread has ended."""
        self._persisting = False
        if failure is not None:
            self._fail(failure)
            return
        try:
            self.consensus.persisted(ready)
            if self._pending and self._flush_set is None:
                self._propose_pending()  # so that the next sync runs while this batch is applied and answered
            self._drive()
        except StorageError as problem:
            self._fail(problem)

    def step(self) -> None:
        """Consensus may have work of its own accord (a message came, an entry was committed): do it."""
        try:
            self._drive()
        except StorageError as problem:
            self._fail(problem)

    def _apply_all(self, entries: list[LogEntry]) -> None:
        """Apply what is committed and answer; what nobody waits for comes after the answers are on their way."""
        st = self.engine.state
        journal: list[tuple[int, bytes]] = []
        looks: list[Callable[[], None]] = []
        self._answering = True
        for log_entry in entries:
            batch = self._batch_of(log_entry)
            entry = batch.entry if batch is not None else decode_entry(log_entry.data)
            answers = self.engine.apply(log_entry.index, log_entry.term, entry)
            journal.append((log_entry.index, b"".join(st.rows)))
            st.rows.clear()
            if batch is not None:
                for request, answer in zip(batch.requests, answers, strict=True):
                    if request.wait_until_us:
                        self._settle(request, answer)
                    else:
                        request.sink.answered(request.ref, request.asked, answer)
                looks += batch.reads
            if st.broadcasts:
                self._hand_out(st.broadcasts)
                st.broadcasts.clear()
            if st.woken:
                for tell in self.on_woken:
                    tell(st.woken)
                if self.waiters.queues:
                    self._serve_waiters(st.woken)
                st.woken.clear()
        self._answering = False
        self._flush_sinks()
        for index, rows in journal:
            self.store.journal_append(index, rows)
        for look in looks:
            look()
        for told in self.on_applied:
            told()
        self._keep_house()

    def _keep_house(self) -> None:
        """What has to be seen to after entries were applied."""
        self._set_timer()
        if self._mark_timer is None:
            self._mark_timer = self._loop.call_later(MARK_AFTER_S, self._on_mark_timer)
        self.snapshots.consider()
        if not self._syncing_ahead:
            self._sync_journal_ahead()
        if self.engine.state.trash and not self._sweeping:
            self._sweep()
        if self._idle is not None and not self._pending and not self._in_flight and not self._idle.done():
            self._idle.set_result(None)

    def _batch_of(self, log_entry: LogEntry) -> Batch | None:
        """The batch that we proposed at this place, if it is the one that was committed there."""
        while self._in_flight and self._in_flight[0].index <= log_entry.index:
            batch = self._in_flight.popleft()
            if (batch.index, batch.term) == (log_entry.index, log_entry.term):
                return batch
            self._answer_unknown(batch)
        return None

    # Answers.

    def _settle(self, request: Request, answer: Answer) -> None:
        """Answer a request; a take that found nothing and may wait joins the waiters, or goes back to its place."""
        if request.wait_until_us > self.engine.state.stamp_us:
            if isinstance(answer, Taken) and not answer.records:
                self.waiters.add(request)
                return
            if isinstance(answer, AckTaken) and not answer.taken.records:
                self.waiters.add(_take_half(request, answer.acked))
                return
        self._answer(request, answer)

    def _answer(self, request: Request, answer: Answer) -> None:
        if request.acked is not None and isinstance(answer, Taken):
            answer = AckTaken(request.acked, answer)
        request.sink.answered(request.ref, request.asked, answer)

    def _nothing(self) -> Taken:
        """The answer to a take that found nothing."""
        return Taken(self.engine.state.position, [])

    def _flush_sinks(self) -> None:
        dirty, self._dirty = self._dirty, []
        # The last first: a take that a put woke stands behind it in the batch, and work goes before receipts.
        for sink in reversed(dirty):
            sink.flush()

    def _why_not(self) -> Refusal:
        if self._stopped:
            return Refusal(e.STOPPING, "the node is stopping")
        leader = self.consensus.leader
        return Refusal(e.NOT_LEADER, "this node is not the leader", (leader,))

    def _refuse_pending(self) -> None:
        """Nothing of this was proposed, so it is known not to have happened."""
        requests, self._pending = self._pending, []
        for request in requests:
            self._answer(request, self._why_not())
        reads, self._pending_reads = self._pending_reads, []
        for look in reads:
            look()

    def _answer_unknown(self, batch: Batch) -> None:
        for request in batch.requests:
            self._answer(request, Refusal(e.OUTCOME_UNKNOWN, "the command may or may not have been done"))
        batch.requests = []
        for look in batch.reads:
            look()
        batch.reads = []

    def _lose_leadership(self) -> None:
        """Another node leads: what was proposed may still happen there; what was not will not."""
        for batch in self._in_flight:
            self._answer_unknown(batch)
        self._in_flight.clear()
        self._refuse_pending()
        for request in self.waiters.remove_all():
            self._answer(request, self._why_not())

    def _hand_out(self, broadcasts: list[Broadcast]) -> None:
        for message in broadcasts:
            for hand in self.on_broadcast:
                hand(message)

    def _on_late_failure(self, problem: StorageError | None) -> None:
        if problem is not None:
            self._fail(problem)

    def _fail(self, problem: StorageError) -> None:
        """The disk failed: nothing more may be acknowledged, and the process has to end."""
        if self._stopped:
            return
        self._stopped = True
        log.critical("storage failed, the node stops: %s", problem)
        for batch in self._in_flight:
            self._answer_unknown(batch)
        self._refuse_pending()
        for request in self.waiters.remove_all():
            self._answer(request, self._why_not())
        self._flush_sinks()
        if not self.failed.done():
            self.failed.set_result(NodeFailed(problem))

    # Waiting takes.

    def _submit_take(self, request: Request, wait_ms: int) -> None:
        command = request.command
        name = command.args.queue
        queue = self.engine.state.by_name.get(name)
        if wait_ms:
            request.wait_until_us = self.clock.now_us() + wait_ms * 1000
        if command.producer and self.engine.remembers(command.producer, command.request):
            self._enqueue(request)  # a repeat: what it took the first time is its answer, whatever is there now
            return
        if name in self.waiters.queues and queue is not None:
            # What has just come back is for those who wait already, and so is what comes next.
            if not queue.paused:
                self._wake(name, queue.counts[READY])
            if wait_ms and command.op == c.TAKE and name in self.waiters.queues:
                self.waiters.add(request)
                self._set_timer()
                return
        idle = not self._pending and not self._in_flight
        if command.op == c.TAKE and idle and queue is None:
            self._answer(request, no_such_queue(name))  # as the engine would say; nothing is proposed
        elif command.op == c.TAKE and idle and queue is not None and (queue.paused or not queue.counts[READY]):
            # An empty queue: nothing is proposed.
            if wait_ms:
                self.waiters.add(request)
                self._set_timer()
            else:
                self._answer(request, self._nothing())
        else:
            self._enqueue(request)

    def _carry_waiters(self, command: Command) -> None:
        """A put finds takes that wait for it: they go into the same batch, one sync from put to delivery."""
        if command.op == c.PUT:
            wanted = [(command.args.queue, len(command.args.items))]
        elif command.op == c.PUT_MANY:
            wanted = [(queue, len(items)) for queue, items in command.args.puts]
        else:
            return
        for name, count in wanted:
            queue = self.engine.state.by_name.get(name)
            if name in self.waiters.queues and (queue is None or not queue.paused):
                self._wake(name, count)

    def _serve_waiters(self, woken: set[str]) -> None:
        for name in sorted(woken):
            queue = self.engine.state.by_name.get(name)
            if name in self.waiters.queues:
                if queue is None:
                    self._wake(name, COMMANDS_PER_ENTRY_MAX)  # deleted: the engine will tell them
                elif not queue.paused:
                    self._wake(name, queue.counts[READY])

    def _wake(self, queue: str, count: int) -> None:
        while count > 0:
            request = self.waiters.pop(queue)
            if request is None:
                return
            count -= request.command.args.count
            self._enqueue(request)

    # Time.

    def _set_timer(self) -> None:
        """Wake up when the earliest timer of the engine, or of a waiting take, is due."""
        due = self.engine.next_due_us()
        if self.waiters.queues:
            overdue = self.waiters.next_due_us()
            due = overdue if due is None else min(due, overdue or due)
        if due is None or (self._timer is not None and self._timer_due_us <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_us = due
        delay_s = max(0.0, (due - self.clock.now_us()) / 1e6)
        self._timer = self._loop.call_later(min(delay_s, 3600.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._stopped:
            return
        now_us = self.clock.now_us()
        for request in self.waiters.remove_overdue(now_us):
            self._answer(request, self._nothing())
        due_us = self.engine.next_due_us()
        if due_us is not None and due_us <= now_us and self.consensus.is_leader:
            self._propose_own(c.Tick())  # the timer is set again when it has been applied
        else:
            self._set_timer()

    def _on_mark_timer(self) -> None:
        """Idle: mark the end of the log, so that a cut of its tail can hardly hit what was acknowledged."""
        self._mark_timer = None
        if self._stopped or self._persisting:
            return
        if self._pending or self._in_flight:
            return  # whoever applies these sets it again
        try:
            self.store.mark()
        except StorageError as problem:
            self._fail(problem)

    def _sync_journal_ahead(self) -> None:
        """Let a thread sync the journal a little at a time, so that no roll has to sync much of it at once."""
        work = self.store.journal_sync_ahead()
        if work is not None:
            self._syncing_ahead = True
            self._loop.run_in_executor(None, work).add_done_callback(self._synced_ahead)

    def _synced_ahead(self, done: asyncio.Future[None]) -> None:
        self._syncing_ahead = False
        problem = done.exception() if not done.cancelled() else None
        if isinstance(problem, StorageError):
            self._fail(problem)

    def _sweep(self) -> None:
        """Free purged records a little at a time."""
        self._sweeping = self.engine.sweep()
        if self._sweeping:
            self._loop.call_soon(self._sweep)


def _take_half(request: Request, acked: Handled) -> Request:
    """What is left of an ack-and-take when its acks are done and there was nothing to take: a take that waits.

    It has no producer: its request number has been answered for the acks.
    """
    old = request.command
    args = c.Take(old.args.queue, old.args.count, old.args.lease_ms, old.args.wait_ms)
    half = Request(Command(c.TAKE, old.door, old.owner, 0, 0, c.encode(args), args), request.sink, request.ref)
    half.wait_until_us = request.wait_until_us
    half.acked = acked
    half.asked = old
    return half
