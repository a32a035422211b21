"""From a store to a running node: recovery, then the first entry of a new term."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable
from os import sysconf
from time import perf_counter

from penstock.consensus.lone import LoneVoter
from penstock.engine import snapshot
from penstock.engine.entries import decode_entry
from penstock.engine.machine import Engine
from penstock.node.clock import LogClock
from penstock.node.errors import ReplayFailed, operations_of
from penstock.node.limits import Limits
from penstock.node.node import Node
from penstock.node.storing import LogStore
from penstock.node.syncing import Syncer
from penstock.settings import Settings
from penstock.settings.schema import LimitsSettings
from penstock.storage.skipped import NOTHING_SKIPPED, Skipped

log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 2.0


def recover(
    store: LogStore,
    blocks: Iterable[bytes] | None,
    entries: Iterable[tuple[int, int, bytes]],
    journal_index: int,
    skipped: Skipped = NOTHING_SKIPPED,
) -> Engine:
    """Build the state from the snapshot and the entries after it; the journal is completed on the way.

    Raises ``ReplayFailed`` with the entry that cannot be applied. The entries in `skipped` are not.
    """
    began = told = perf_counter()
    engine = snapshot.restore(blocks) if blocks is not None else Engine()
    st = engine.state
    first = st.index + 1
    for index, term, data in entries:
        entry = skipped.entry_to_apply(index, data)
        if entry is None and index in skipped.checksums:
            log.warning("entry %d (%s) is skipped, as an operator decided", index, operations_of(decode_entry(data)))
        try:
            engine.apply(index, term, entry)
        except Exception as problem:
            raise ReplayFailed(index, entry, problem) from problem
        if index > journal_index:
            store.journal_append(index, b"".join(st.rows), len(data))
        st.rows.clear()
        st.woken.clear()
        st.broadcasts.clear()
        if perf_counter() - told > _PROGRESS_EVERY_S:
            told = perf_counter()
            log.info("replaying the log: at index %d", index)
    records = sum(sum(queue.counts) for queue in st.by_uid.values())
    took_s = perf_counter() - began
    log.info("recovered %d records, %d entries replayed, in %.2f s", records, st.index + 1 - first, took_s)
    return engine


def open_node(engine: Engine, store: LogStore, term: int, settings: Settings, clock: LogClock | None = None) -> Node:
    """A node on the running loop, the leader of a new term."""
    storage = settings.storage
    node = Node(
        engine,
        LoneVoter(settings.node_id, term, engine.state.index),
        store,
        node_id=settings.node_id,
        clock=clock or LogClock(),
        syncer=Syncer(store, storage.mode, storage.sync_thread, storage.interval_ms),
        limits=_limits(settings.limits),
        snapshot_bytes=storage.snapshot_bytes,
        mode=storage.mode,
    )
    node.start()
    return node


def _limits(settings: LimitsSettings) -> Limits:
    memory_bytes = settings.memory_bytes or half_of_memory()
    return Limits(
        memory_bytes,
        settings.payload_bytes,
        settings.queues,
        staged_bytes_max=settings.staged_bytes or memory_bytes // 4,
        staged_ms=settings.staged_ms,
    )


def half_of_memory() -> int:
    """Half of the machine's memory, in bytes."""
    return sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES") // 2


COLLECT_EVERY_S = 60.0
_RECORDS_FEW = 20_000


def settle_interpreter() -> None:
    """Set the interpreter up for serving.

    Records are not tracked by the garbage collector, but the lists that hold them are, and a pass over many of them
    walks millions of references. So young objects are looked at often, while they are few, and old ones only by
    ``collect_if_few``. And a finished sync must not wait 5 ms for the interpreter's lock.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100, 2, 1_000_000)
    sys.setswitchinterval(0.0005)


def collect_if_few(engine: Engine) -> None:
    """Free what became garbage in cycles, while a full pass is short; to be called every ``COLLECT_EVERY_S``."""
    if sum(sum(queue.counts) for queue in engine.state.by_uid.values()) < _RECORDS_FEW:
        gc.collect()
