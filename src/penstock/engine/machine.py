"""The engine: a deterministic state machine, ``apply(index, term, entry) -> answers``.

No I/O, no clock, no randomness: time comes from the entries alone, and the state after entry *i* is a function of the
entries 0..*i*. Apply is total: what it cannot decode is a no-op with an event, the same on all nodes.

Each apply first fires the timers due at the entry's stamp, then runs its commands in order. Besides the answers it
yields rows for the journal, the names of queues that got work, and topic messages for live subscribers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.engine import (
    answers,
    errors,
    firing,
    jobs,
    managing,
    operating,
    owners,
    putting,
    returning,
    staging,
    taking,
    topics,
)
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done
from penstock.engine.entries import COMMAND, ENTRY, Command, Entry
from penstock.engine.errors import Refusal
from penstock.engine.producers import TakenBefore, forget_silent, hear
from penstock.engine.records import NO_EXTRAS
from penstock.engine.state import OWNER_TERM_SHIFT as OWNER_TERM_SHIFT
from penstock.engine.state import POSITION_BITS, State
from penstock.engine.timers import OWNER_END

Handler = Callable[[State, Any], Answer]


JUMP_US_MAX: Final = 24 * 3600 * 1_000_000
"""A longer time between the last entry of a term and the first of the next is taken for a wrong clock."""


def _new_term(st: State, args: c.NewTerm) -> Answer:
    st.row(j.NEW_TERM, value=min(args.leader, c.INT64_MAX))
    if st.stamp_us - st.previous_stamp_us > JUMP_US_MAX:
        st.kept_since_us = st.stamp_us
    st.payload_bytes_max, st.queues_max = args.payload_bytes_max, args.queues_max
    st.rules = max(st.rules, args.rules)
    st.staged_for_us = args.staged_ms * 1000
    owners.forget_earlier_terms(st)
    for number in sorted(st.owners):
        if number >> OWNER_TERM_SHIFT < st.term:
            st.timers.add_soon((OWNER_END, number))
    return Done()


def _tick(st: State, args: c.Tick) -> Answer:
    if args.wall_us:
        st.wall_offset_us = st.stamp_us - args.wall_us
    return Done()


def _owner_gone(st: State, args: c.OwnerGone) -> Answer:
    had_name = owners.forget_owner_name(st, args.owner)
    count = firing.owner_gone(st, args.owner)
    says_who = st.rules >= c.RULES_OF_NAMES
    if says_who:
        st.owner = args.owner
    if count or (had_name and says_who):
        st.row(j.OWNER_GONE)
    return Done(count)


HANDLERS: Final[dict[int, Handler]] = {
    c.NEW_TERM: _new_term,
    c.TICK: _tick,
    c.OWNER_GONE: _owner_gone,
    c.CREATE_QUEUE: managing.create_queue,
    c.CHANGE_QUEUE: managing.change_queue,
    c.DELETE_QUEUE: managing.delete_queue,
    c.PUT: putting.put,
    c.PUT_MANY: putting.put_many,
    c.TAKE: taking.take,
    c.ACK: taking.ack,
    c.ACK_TAKE: taking.ack_take,
    c.RETURN: returning.give_back,
    c.EXTEND: returning.extend,
    c.BURY: operating.bury_records,
    c.KICK: operating.kick,
    c.EDIT: operating.edit,
    c.DELETE: operating.delete,
    c.MOVE: operating.move,
    c.REDRIVE: jobs.redrive,
    c.CANCEL_JOB: jobs.cancel_job,
    c.PURGE: managing.purge,
    c.PAUSE: managing.pause,
    c.STAGE: staging.stage,
    c.PUBLISH: staging.publish,
    c.ABORT: staging.abort,
    c.BROADCAST: topics.broadcast,
    c.BIND: topics.bind,
    c.UNBIND: topics.unbind,
    c.NAME_OWNER: owners.name_owner,
}
"""What carries out each operation."""


class Engine:
    """The queues of a node, built by the log."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()

    def apply(self, index: int, term: int, entry: Entry | None) -> list[Answer]:
        """Apply the next entry; returns the answer to each of its commands. None stands for an unreadable entry."""
        st = self.state
        assert index == st.index + 1, "entries are applied in order, each once"
        st.index, st.term = index, term
        st.n = st.item = st.door = st.owner = 0
        st.position = index << POSITION_BITS
        st.spare = c.RECORDS_PER_COMMAND_MAX
        st.body, st.body_offset = b"", ENTRY.size
        if st.leases_ended:
            st.leases_ended.clear()
        if entry is None:
            st.row(j.UNREADABLE)
            return []
        st.previous_stamp_us = st.stamp_us
        # Stamps never fall; a leader sees to that, but apply is total.
        st.stamp_us = max(st.stamp_us, entry.stamp_us)
        if st.timers.any_due(st.stamp_us):
            firing.fire_due(st)
        if st.stamp_us >= st.producers_kept_until_us:
            st.producers_kept_until_us = forget_silent(st.producers, st.stamp_us)
        return [self._run(st, n, command) for n, command in enumerate(entry.commands)]

    def _run(self, st: State, n: int, command: Command) -> Answer:
        """Carry out one command."""
        st.n = n
        st.position = st.index << POSITION_BITS | n
        st.item = 0 if n else st.item
        st.door, st.owner, st.body = command.door, command.owner, command.body
        st.body_offset += COMMAND.size
        handler = HANDLERS.get(command.op)
        if handler is None or command.args is None:
            st.row(j.UNREADABLE)
            answer: Answer = Refusal(errors.BAD_COMMAND, "the command cannot be read")
        elif command.producer:
            answer = _once(st, command, handler)
        else:
            answer = handler(st, command.args)
        st.body_offset += len(command.body)
        return answer

    def remembers(self, producer: int, request: int) -> bool:
        """Whether this request of a producer was done before, so that applying it again only repeats its answer."""
        known = self.state.producers.get(producer)
        return known is not None and request in known.answers

    def next_due_us(self) -> int | None:
        """When the next timer wants an entry; None when there is none."""
        return self.state.timers.next_due_us()

    def sweep(self) -> bool:
        """Free a little of what was purged or deleted; true while there is more. Changes nothing that can be seen."""
        trash = self.state.trash
        if trash and trash[-1]():
            trash.pop()
        return bool(trash)


def _once(st: State, command: Command, handler: Handler) -> Answer:
    """Carry out a producer's request, or answer as before if it was done already."""
    producer = hear(st.producers, command.producer, st.stamp_us)
    before = producer.recall(command)
    if isinstance(before, TakenBefore):
        return _taken_again(st, before)
    if before is not None:
        repeated: Answer = before
        return repeated
    answer = handler(st, command.args)
    if isinstance(answer, answers.Taken) and not answer.records:
        return answer  # a take that found nothing may be tried again under its number
    st.producers.keep(producer, command, answer, st.rules >= c.RULES_OF_BYTES)
    return answer


def _taken_again(st: State, before: TakenBefore) -> Answer:
    """The records that a repeated take got the first time, as far as they are still held under its token."""
    queue = st.by_uid.get(before.queue_uid) if before.queue_uid else st.by_name.get(before.queue)
    deliveries = []
    for record_id in before.ids:
        record = returning.held(queue, record_id, before.token) if queue is not None else None
        if record is not None and record.lease is not None and record.tries is not None:
            extras = record.extras or NO_EXTRAS
            deliveries.append(
                answers.Delivery(
                    *(record.id, record.key, record.payload, record.tries.deliveries, record.published_us),
                    extras.headers,
                    record.lease.until_us,
                    extras.failure,
                )
            )
    taken = answers.Taken(before.token, deliveries, before.queue_uid)
    return taken if before.acked is None else answers.AckTaken(before.acked, taken)
