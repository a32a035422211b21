"""Which commands may use the reserve of a full disk: those that free space in the end.

Every command takes space in the log. A take leads to an ack, and an ack, a delete or a purge end records, so that the
next snapshot is smaller and segments of the log can go. But an ack of handles that are not held ends nothing: 208 of
them, each with 10,000 handles, once used up a reserve of 4 MiB. So the state is asked before such a command is logged.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.returning import held
from penstock.engine.state import State

_FREEING: Final = frozenset({c.TAKE, c.ACK, c.ACK_TAKE, c.DELETE, c.PURGE, c.DELETE_QUEUE, c.ABORT})


def refuse_on_full_disk(st: State, command: Command, is_spent: bool) -> Refusal | None:
    """Why this command may not be proposed on a full disk; None if it may.

    `is_spent` says that all of the reserve that clients may use is used.
    """
    if is_spent:
        return Refusal(e.DISK_FULL, "the disk is full, the reserve for takes and acks too; free some space on it")
    if command.op not in _FREEING:
        return Refusal(e.DISK_FULL, "the disk is full; only takes, acks, deletes and purges go on until it has space")
    if not _is_useful(st, command):
        return Refusal(e.DISK_FULL, "the disk is full, and this would end fewer than half of the messages it names")
    return None


def _is_useful(st: State, command: Command) -> bool:
    """Whether a command ends at least half of what it names: the rest of it only takes space."""
    args, op = command.args, command.op
    if op in (c.TAKE, c.ABORT):
        return True
    if op == c.DELETE and args.uid:
        queue = st.by_uid.get(args.uid)
    else:
        queue = st.by_name.get(args.name if op == c.DELETE_QUEUE else args.queue)
    if queue is None:
        return False
    if op in (c.ACK, c.ACK_TAKE):
        ended = sum(held(queue, record_id, token) is not None for record_id, token in args.handles)
        return ended * 2 >= len(args.handles) and (op == c.ACK_TAKE or ended > 0)
    if op == c.DELETE:
        ended = sum(queue.get(record_id) is not None for record_id in args.ids)
        return ended > 0 and ended * 2 >= len(args.ids)
    return op == c.DELETE_QUEUE or sum(queue.counts) > 0
