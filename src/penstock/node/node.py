"""The node: commands in, answers out, and between the two the commit path.

    submit ─▶ pending ─flush─▶ entry ─propose─▶ consensus ─ready─▶ log, sync ─persisted─▶ committed ─▶ engine ─▶ sinks

Commands that arrive while a sync runs form the next batch: one write, one sync, and one entry unless they are too much
work for one. A sink is answered when its command has been applied, and never earlier. With one voter the way is the
same as with many: only consensus decides what is committed.

The commit path never continues after an error. What a sink raises ends its connection (``answering``). What the engine,
the store or consensus raise ends the node (``fail``): the state after it is not known to be right, so it is not served,
not saved, and nothing more is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Any

from penstock.consensus.errors import NotLeader
from penstock.consensus.ready import Consensus, LogEntry, Ready
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import Taken
from penstock.engine.commands import Broadcast
from penstock.engine.entries import COMMAND, COMMANDS_PER_ENTRY_MAX, Command, Entry, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NODE, REASON_UNSENT
from penstock.engine.machine import OWNER_TERM_SHIFT, Engine
from penstock.node.answering import Answering, end, look_for
from penstock.node.clock import LogClock, report_gap
from penstock.node.costs import COSTS_BY_COUNT, ENTRY_COST_MAX, SMALL_BODY_BYTES, SMALL_BODY_SHIFT, cost_of
from penstock.node.errors import DiskStuck, EntryFailed, NodeFailed
from penstock.node.feeding import Feeding
from penstock.node.freeing import refuse_on_full_disk
from penstock.node.limits import Limits
from penstock.node.requests import NOBODY, Request, Sink
from penstock.node.room import RoomKeeper
from penstock.node.snapshots import Snapshots
from penstock.node.storing import LogStore
from penstock.node.syncing import Syncer
from penstock.node.takes import Takes
from penstock.node.upkeep import Upkeep
from penstock.node.waiting import Waiters

log = logging.getLogger(__name__)

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""A batch is cut into entries of about this size; one command may be larger alone."""
TURN_S = 0.008
"""What is committed is applied for this long in one turn of the loop, to the end of an entry; then others have their
turn."""
TURN_BYTES_MAX = 1024 * 1024
"""Longer entries are applied in a turn after the one in which they were written."""
STOP_S_MAX = 10.0
"""A stop waits this long for commands that are in flight, and again as long for the last sync."""
_PUTS = frozenset({c.PUT, c.PUT_MANY, c.STAGE, c.BROADCAST, c.CREATE_QUEUE, c.BIND})
_TAKES = frozenset({c.TAKE, c.ACK_TAKE})

Look = tuple[Callable[[], None], Sink]
"""A read of the state, and the sink that it is for."""


class Batch:
    """Requests that share an entry which is proposed and not yet applied."""

    __slots__ = ("entry", "index", "promised_bytes", "reads", "requests", "term")

    def __init__(self, log_entry: LogEntry, entry: Entry, requests: list[Request]) -> None:
        self.index = log_entry.index
        self.term = log_entry.term
        self.entry = entry
        self.requests = requests
        self.promised_bytes = 0
        """What the limits were told that these requests, and those proposed with them, will add to the state."""
        self.reads: list[Look] = []
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
        self.account = limits.account
        """What the buffers of connections need, by kind."""
        self.mode = mode
        self.connections_open = 0
        self.snapshots = Snapshots(engine, store, snapshot_bytes, self.fail)
        self.room = RoomKeeper(store, self.snapshots)
        """Keeps the disk from filling up with old log segments."""
        self.waiters = Waiters()
        self.on_broadcast: list[Callable[[Broadcast], None]] = []
        """Called with each topic message when its entry is applied live."""
        self.on_woken: list[Callable[[set[str]], None]] = []
        """Called with the names of queues in which records have become available, once they are there."""
        self.on_lease_ended: dict[int, Callable[[tuple[int, int]], None]] = {}
        """By owner: called with each lease (record id, token) of that connection which ended, except by its own ack."""
        self.on_applied: list[Callable[[], None]] = []
        """Called when entries have been applied and answered, and their events are in the journal."""
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[NodeFailed] = self._loop.create_future()
        """Done when the node had to stop."""
        self.answering = Answering(self._loop)
        self._syncer = syncer
        syncer.on_failure = self.fail
        self._takes = Takes(self, self.waiters)
        self._upkeep = Upkeep(self, self._loop)
        self._pending: list[Request] = []
        self._pending_reads: list[Look] = []
        self._in_flight: deque[Batch] = deque()
        self._committed: deque[LogEntry] = deque()
        """What is committed and not yet applied: more than one turn's work."""
        self._looks: deque[Look] = deque()
        """Reads for which everything is applied that they have to see, and which have not had their turn."""
        self._applying: Batch | None = None
        self._next_turn: asyncio.Handle | None = None
        self._persisting = False
        self._flush_set: asyncio.Handle | None = None
        self._refuses = False
        """Whether commands are refused because the node stops or has failed."""
        self._stopped = False
        """Whether nothing is proposed or applied any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0
        self._connections = 0
        self.feeding = Feeding(self)
        """The whole history, for readers."""
        self._started_s = self._loop.time()
        self._idle: asyncio.Future[None] | None = None

    # What doors use.

    def start(self) -> None:
        """Become the leader of a new term; its first entry releases what was bound to connections of earlier ones."""
        self.consensus.campaign()
        self._restart_clock()
        limits = self.limits
        term = (self.node_id, limits.payload_bytes_max, limits.queues_max, c.RULES, limits.staged_ms)
        self._propose_own(c.NewTerm(*term))

    def _restart_clock(self) -> None:
        """Go on with log time, and report what the wall clock says about the time since the last entry."""
        st = self.engine.state
        gap_us = self.clock.restart(st.stamp_us, st.wall_offset_us)
        if st.stamp_us:
            report_gap(gap_us)

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
        if self._refuses or not self.consensus.is_leader:
            self.answering.give(Request(command, sink, ref), self._why_not())
        elif self.store.disk_full and (full := self._refuse_on_full_disk(command)) is not None:
            self.answering.give(Request(command, sink, ref), full)
        elif op in _TAKES:
            self._takes.submit(Request(command, sink, ref), command.args.wait_ms)
        else:
            if op in _PUTS:
                refusal = self.limits.refusal(self.engine.state, command)
                if refusal is not None:
                    self.answering.give(Request(command, sink, ref), refusal)
                    return
            self.enqueue(Request(command, sink, ref))
            if self.waiters.queues and op in _PUTS:
                self._takes.carry(command)

    def _refuse_on_full_disk(self, command: Command) -> Refusal | None:
        return refuse_on_full_disk(self.engine.state, command, self.store.disk_spent)

    def read(self, look: Callable[[], None], sink: Sink) -> None:
        """Look at the state when all that was submitted before has been applied; an error in it ends the sink."""
        if self._pending:
            self._pending_reads.append((look, sink))
        elif self._in_flight:
            self._in_flight[-1].reads.append((look, sink))
        elif self._looks or self._committed:
            self._looks.append((look, sink))
        elif not self.failed.done():  # after a failure the state may be wrong
            look_for(look, sink)

    def dirty(self, sink: Sink) -> None:
        """Have this sink flushed with the answers that are being given now."""
        self.answering.dirty(sink)

    def forget(self, sink: Sink, owner: int) -> None:
        """A connection is gone and has no command in flight: its waits end, the leases bound to it are released."""
        self.waiters.remove_sink(sink)
        st = self.engine.state
        if (owner in st.owners or owner in st.owner_names) and self.consensus.is_leader and not self._stopped:
            self._propose_own(c.OwnerGone(owner))

    def stop_waiting(self, sink: Sink) -> None:
        """A connection is gone: what it waits for need not be looked for any more; commands in flight go on."""
        self._takes.give_up_of(self.waiters.remove_sink(sink))

    def return_unsent(self, command: Command, taken: Taken) -> None:
        """Records were taken for a client that never got them: they come back as if nothing had happened."""
        if taken.records and not getattr(command.args, "final", False):
            handles = [(record.id, taken.token) for record in taken.records]
            self._propose_own(c.Return(command.args.queue, handles, c.UNSENT, 0, REASON_UNSENT))

    async def stop(self) -> None:
        """Refuse new commands, finish what is in flight, and end; within a bounded time, whatever the disk does."""
        self._refuses = True
        self._takes.refuse_all(self._why_not())
        self.answering.flush()
        if self._has_work and not self._stopped:
            self._idle = self._loop.create_future()
            either = (self._idle, self.failed)
            ended, _ = await asyncio.wait(either, timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                count = len(self._pending) + sum(len(batch.requests) for batch in self._in_flight)
                log.error("%d commands were not done within %g s; their outcome is unknown", count, STOP_S_MAX)
        self._end()
        if self._timer is not None:
            self._timer.cancel()
        self._upkeep.stop()
        await self.snapshots.stop()
        self.feeding.close()
        if not await self._syncer.stop(STOP_S_MAX):
            self.fail(DiskStuck(STOP_S_MAX))

    @property
    def _has_work(self) -> bool:
        return bool(self._pending or self._in_flight or self._committed or self._looks)

    # The commit path.

    def _propose_own(self, args: Any) -> None:
        self.enqueue(self._own(args))

    def _own(self, args: Any) -> Request:
        """A command of the node itself."""
        return Request(Command(c.OPS[type(args)], DOOR_NODE, 0, 0, 0, c.encode(args), args), NOBODY, 0)

    def enqueue(self, request: Request) -> None:
        """Put a request into the next batch."""
        self._pending.append(request)
        if self._flush_set is None and not self._persisting:
            # The rest of this turn of the loop joins the batch.
            self._flush_set = self._loop.call_soon(self._flush)

    def end_of_input(self) -> None:
        """A door has taken in all that came on a connection; a lone one has nobody to share a batch with."""
        if self._flush_set is not None and self.connections_open == 1:
            self._flush_set.cancel()
            self._flush()

    def guarded(self, work: Callable[[], None]) -> None:
        """Do work on whose success the node relies: an error ends the node."""
        if self._stopped:
            return
        try:
            work()
        except Exception as problem:
            self.fail(problem)

    def _flush(self) -> None:
        self._flush_set = None
        if self._stopped:
            self._refuse_pending()
            return
        try:
            self._propose_pending()
            self._drive()
        except Exception as problem:
            self.fail(problem)

    def _propose_pending(self) -> None:
        requests, self._pending = self._pending, []
        stamp_us = self.clock.now_us()
        if requests and (wall_us := self.clock.wall_to_record(stamp_us)):
            requests.insert(0, self._own(c.Tick(wall_us)))
        start = 0
        while start < len(requests):
            stop = self._end_of_entry(requests, start) if len(requests) > 1 else 1
            chosen = requests[start:stop] if start or stop < len(requests) else requests
            entry = Entry(stamp_us if not start else self.clock.now_us(), [request.command for request in chosen])
            try:
                proposed = self.consensus.propose(encode_entry(entry))
            except NotLeader:
                self._pending = requests[start:]
                self._refuse_pending()
                return
            except BaseException:
                self._pending = requests[start:]  # so that they are answered when the node fails
                raise
            self._in_flight.append(Batch(proposed, entry, chosen))
            start = stop
        if self._in_flight:
            self._in_flight[-1].promised_bytes += self.limits.proposed()
        if self._in_flight and self._pending_reads:
            self._in_flight[-1].reads += self._pending_reads
            self._pending_reads = []

    def _end_of_entry(self, requests: list[Request], start: int) -> int:
        """Where an entry that begins with the request at `start` ends."""
        bindings, by_count = self.engine.state.bindings, COSTS_BY_COUNT
        stop, size, cost = start, 0, 0
        for request in islice(requests, start, start + COMMANDS_PER_ENTRY_MAX):
            if size >= ENTRY_BYTES_MAX:
                break
            command = request.command
            body_bytes = len(command.body)
            if body_bytes > SMALL_BODY_BYTES or command.op in by_count:
                cost += cost_of(command, bindings)
            else:
                cost += 1 + (body_bytes >> SMALL_BODY_SHIFT)
            if cost > ENTRY_COST_MAX and stop > start:
                break
            size += body_bytes + COMMAND.size
            stop += 1
        return stop

    def _drive(self) -> None:
        """Do the work that consensus has, until there is none or a sync must be waited for."""
        while not self._persisting:
            ready = self.consensus.ready()
            if ready is None:
                break
            if ready.hard_state is not None:
                self.store.save_metadata(ready.hard_state.term, ready.hard_state.vote)
            if ready.entries:
                if ready.entries[0].index <= self.store.last_index:
                    self.store.truncate_from(ready.entries[0].index)  # another leader's entries take their place
                self.store.append([(entry.index, entry.term, entry.data) for entry in ready.entries])
                if self._syncer.must_wait():
                    self._persisting = True
                    self._syncer.start(lambda failure, ready=ready: self._persisted(ready, failure))  # type: ignore[misc]
                else:
                    self.consensus.persisted(ready)
            elif ready.hard_state is not None:
                self.consensus.persisted(ready)
            if ready.committed:
                self._committed.extend(ready.committed)
                if self._next_turn is None:
                    if sum([len(entry.data) for entry in ready.committed]) > TURN_BYTES_MAX:
                        self._next_turn = self._loop.call_soon(self.guarded, self._go_on_applying)
                    else:
                        self._apply_turn()
        if self._idle is not None or not self.consensus.is_leader:
            self._after_work()

    def _persisted(self, ready: Ready, failure: Exception | None) -> None:
        """The sync that ran in a thread has ended."""
        self._persisting = False
        if failure is not None:
            self.fail(failure)
            return

        def go_on() -> None:
            self.consensus.persisted(ready)
            if self._pending and self._flush_set is None:
                self._propose_pending()  # so that the next sync runs while this batch is applied and answered
            self._drive()

        self.guarded(go_on)

    def step(self) -> None:
        """Consensus may have work of its own accord (a message came, an entry was committed): do it."""
        self.guarded(self._drive)

    def _apply_turn(self) -> None:
        """Apply what is committed and answer, for a turn of the loop; what nobody waits for comes after the answers."""
        self._next_turn = None
        until_s = perf_counter() + TURN_S
        looks, committed = self._looks, self._committed
        if looks:
            self._look_until(until_s)
        if committed:
            journal: list[tuple[int, bytes, int]] = []
            self.answering.hold()
            while committed:
                self._apply(committed.popleft(), journal)
                if committed and perf_counter() >= until_s:
                    break
            self.answering.flush()
            for index, rows, entry_bytes in journal:
                self.store.journal_append(index, rows, entry_bytes)
            if looks:
                self._look_until(until_s)
            for told in self.on_applied:
                told()
            self.set_timer()
            self.snapshots.consider()
            self._upkeep.after_apply()
        if committed or looks:
            self._next_turn = self._loop.call_soon(self.guarded, self._go_on_applying)

    def _go_on_applying(self) -> None:
        self._apply_turn()
        self._after_work()

    def _apply(self, log_entry: LogEntry, journal: list[tuple[int, bytes, int]]) -> None:
        """Apply one entry and answer its commands."""
        st = self.engine.state
        self._applying = batch = self._batch_of(log_entry)
        entry = batch.entry if batch is not None else decode_entry(log_entry.data)
        try:
            answers = self.engine.apply(log_entry.index, log_entry.term, entry)
        except Exception as problem:
            raise EntryFailed(log_entry.index, entry, problem) from problem
        journal.append((log_entry.index, b"".join(st.rows), len(log_entry.data)))
        st.rows.clear()
        if st.leases_ended:
            self._tell_leases_ended(st.leases_ended)
        if batch is not None:
            for request, answer in zip(batch.requests, answers, strict=True):
                if request.wait_until_us:
                    self._takes.settle(request, answer)
                    continue
                try:
                    request.sink.answered(request.ref, request.asked, answer)
                except Exception as problem:
                    end(request.sink, problem)
            if batch.reads:
                self._looks += batch.reads
        self._applying = None
        if st.broadcasts:
            for message in st.broadcasts:
                _tell(self.on_broadcast, message)
            st.broadcasts.clear()
        if st.woken or self._takes.unserved:
            if self.on_woken:
                _tell(self.on_woken, st.woken)
            if self.waiters.queues:
                self._takes.serve(st.woken)
            st.woken.clear()

    def _tell_leases_ended(self, leases: list[tuple[int, int, int]]) -> None:
        for owner, record_id, token in leases:
            if owner in self.on_lease_ended:
                _tell([self.on_lease_ended[owner]], (record_id, token))

    def _look_until(self, until_s: float) -> None:
        """Carry out reads of the state, at least one; those that do not fit into this turn follow in the next."""
        looks = self._looks
        while looks:
            look_for(*looks.popleft())
            if perf_counter() >= until_s:
                return

    def _batch_of(self, log_entry: LogEntry) -> Batch | None:
        """The batch that we proposed at this place, if it is the one that was committed there."""
        while self._in_flight and self._in_flight[0].index <= log_entry.index:
            batch = self._in_flight.popleft()
            self.limits.settled(batch.promised_bytes)
            if (batch.index, batch.term) == (log_entry.index, log_entry.term):
                return batch
            self._answer_unknown(batch)
        return None

    # When commands cannot be done.

    def _why_not(self) -> Refusal:
        if self._refuses:
            return Refusal(e.STOPPING, "the node is stopping")
        leader = self.consensus.leader
        return Refusal(e.NOT_LEADER, "this node is not the leader", (leader,))

    def _refuse_pending(self) -> None:
        """Nothing of this was proposed, so it is known not to have happened."""
        requests, self._pending = self._pending, []
        for request in requests:
            self.answering.give(request, self._why_not())
        reads, self._pending_reads = self._pending_reads, []
        self._look_at_last(reads)

    def _answer_unknown(self, batch: Batch) -> None:
        for request in batch.requests:
            self.answering.give(request, Refusal(e.OUTCOME_UNKNOWN, "the command may or may not have been done"))
        batch.requests = []
        reads, batch.reads = batch.reads, []
        self._look_at_last(reads)

    def _look_at_last(self, reads: list[Look]) -> None:
        """What these waited for will not be applied here. After a failure there is no state to look at."""
        if not self.failed.done():
            for look, sink in reads:
                look_for(look, sink)

    def _after_work(self) -> None:
        """See whether another node leads now, and whether a stop waits for the end of all work."""
        if not self.consensus.is_leader and not self._committed:  # what is committed is applied and answered first
            self._lose_leadership()
        if self._idle is not None and not self._has_work and not self._idle.done():
            self._idle.set_result(None)

    def _lose_leadership(self) -> None:
        """Another node leads: what was proposed may still happen there; what was not will not."""
        for batch in self._in_flight:
            self._answer_unknown(batch)
        self._in_flight.clear()
        self._refuse_pending()
        self.limits.settled(self.limits.promised_bytes)
        self._takes.refuse_all(self._why_not())

    def fail(self, problem: Exception) -> None:
        """Something failed on which the node relies: nothing more is acknowledged, and the process has to end."""
        if self.failed.done():
            return
        failure = NodeFailed(problem)
        trace = None if type(problem).__module__.startswith("penstock.storage") else problem
        log.critical("%s", failure, exc_info=trace)
        self.failed.set_result(failure)
        self.snapshots.abandon()
        self._end()

    def _end(self) -> None:
        """Apply nothing any more, and answer what is still open."""
        self._refuses = self._stopped = True
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._committed.clear()
        self._looks.clear()
        unanswered = [self._applying] if self._applying is not None else []
        for batch in (*unanswered, *self._in_flight):
            self._answer_unknown(batch)
        self._in_flight.clear()
        self._refuse_pending()
        self._takes.refuse_all(self._why_not())
        self.answering.flush()

    # Time.

    def set_timer(self) -> None:
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
        self._timer = self._loop.call_later(min(delay_s, 3600.0), self.guarded, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_us = self.clock.now_us()
        more_overdue = self._takes.give_up_overdue(now_us)
        due_us = self.engine.next_due_us()
        if not more_overdue and due_us is not None and due_us <= now_us and self.consensus.is_leader:
            self._propose_own(c.Tick())  # the timer is set again when it has been applied
        else:
            self.set_timer()

    @property
    def may_mark(self) -> bool:
        """Whether the log is idle, so that its end can be marked. If not, this is asked again after the next entry."""
        return not (self._persisting or self._pending or self._in_flight)


def _tell(observers: list[Callable[..., None]], *what: Any) -> None:
    """Tell the doors what happened. They own nothing of the state, so an error in one of them is only reported."""
    for tell in observers:
        try:
            tell(*what)
        except Exception:
            log.exception("a door failed to handle what was applied")
