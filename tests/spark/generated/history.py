"""The generated history itself: a data directory as a node leaves it, and the truth about it.

Entries go through the real engine into the real store, batch by batch as a node does it, only without sockets and
without a clock: log time begins at a fixed date and runs over days, in bursts and pauses. Everything follows from the
number of events and the seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine import snapshot
from penstock.engine.answers import Answer
from penstock.engine.entries import Command, Entry, encode_entry
from penstock.engine.machine import Engine
from penstock.storage.disk import Disk
from penstock.storage.store import Store, StoreSettings
from tests.engine.driving import Asked, to_command
from tests.spark.generated.doors import Doors
from tests.spark.generated.truth import Truth

BEGIN_US = 1_709_067_600_000_000
"""2024-02-27 21:00 UTC: the first midnight is near, and there is a leap day ahead."""
SECOND_US, MINUTE_US, HOUR_US = 1_000_000, 60_000_000, 3_600_000_000
TERM_ENTRIES = 700
SEGMENT_BYTES = 4 * 1024 * 1024
TICK_ABOVE_US = 3 * SECOND_US
"""In longer gaps a node would wake up for its timers; in shorter ones the next command comes before that is done."""
_SYNC_EVERY = 256


@dataclass
class Generated:
    """A history and what must come out of it."""

    directory: Path
    cluster_id: bytes
    truth: Truth
    stamps_us: array[int] = field(default_factory=lambda: array("q"))
    """Log time by entry."""
    events: array[int] = field(default_factory=lambda: array("l"))
    """How many events each entry had."""

    @property
    def last_index(self) -> int:
        """The last entry."""
        return len(self.stamps_us) - 1


class SeededDisk(Disk):
    """A disk whose random bytes, the salts of log segments, follow from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        # Its own generator: a change of the storage must not change the history.
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        """The next bytes of the generator."""
        return self._random.randbytes(count)


class Maker:
    """Makes entries and puts them where a node would."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        cluster_id = self.random.randbytes(16)
        settings = StoreSettings(segment_bytes=SEGMENT_BYTES, reserve_bytes=0)
        self.store, _ = Store.open(
            directory,
            row_bytes=j.ROW_BYTES,
            new_cluster_id=cluster_id,
            node_id=0,
            settings=settings,
            disk=SeededDisk(seed),
        )
        self.engine = Engine()
        self.truth = Truth()
        self.doors = Doors(self.truth, self.random)
        self.made = Generated(directory, cluster_id, self.truth)
        self.now_us = BEGIN_US
        self.term = 0

    def commit(self, asked: list[Asked]) -> list[Answer]:
        """One entry."""
        index, st = self.made.last_index + 1, self.engine.state
        commands = [_command(each) for each in asked]
        entry = Entry(self.now_us, commands)
        data = encode_entry(entry)
        self.store.append([(index, self.term, data)])
        answers = self.engine.apply(index, self.term, entry)
        rows = b"".join(st.rows)
        self.store.journal_append(index, rows, len(data))
        if not index % _SYNC_EVERY:
            self.store.sync()
        st.rows.clear()
        st.woken.clear()
        st.broadcasts.clear()
        self.engine.sweep()
        told = self.truth.applied(index, self.now_us, asked, answers)
        assert told == len(rows) // j.ROW_BYTES, f"entry {index} has {len(rows) // j.ROW_BYTES} events, not {told}"
        self.made.stamps_us.append(self.now_us)
        self.made.events.append(told)
        return answers

    def new_term(self) -> None:
        """The node was started again, or another one leads."""
        self.term += 1
        self.doors.term = self.term
        self.store.save_metadata(self.term, 0)
        self.commit([Asked(c.NewTerm(0, rules=c.RULES), 0, j.DOOR_NODE)])

    def wait(self, gap_us: int) -> None:
        """Let time pass; in a longer gap the timers get their entries."""
        until_us = self.now_us + gap_us
        while gap_us > TICK_ABOVE_US:
            due_us = self.engine.next_due_us()
            if due_us is None or due_us > until_us:
                break
            self.now_us = max(self.now_us, due_us)
            self.commit([Asked(c.Tick(), 0, j.DOOR_NODE)])
        self.now_us = until_us

    def burst(self) -> None:
        """A minute or so in which much happens."""
        doors, random = self.doors, self.random
        for _ in range(random.randint(10, 80)):
            chance = random.random()
            if chance < 0.6:
                self.wait(random.randint(500, 30_000))
            elif chance < 0.92:
                self.wait(random.randint(100_000, 2 * SECOND_US))
            else:
                self.wait(random.randint(2 * SECOND_US, 12 * SECOND_US))
            self.commit(doors.turn(self.now_us) if random.random() < 0.99 else doors.gone())
        self.commit(doors.evening())

    def pause(self) -> None:
        """A pause: mostly short, sometimes a night."""
        chance, random = self.random.random(), self.random
        if chance < 0.65:
            self.wait(random.randint(MINUTE_US, 5 * MINUTE_US))
        elif chance < 0.92:
            self.wait(random.randint(10 * MINUTE_US, 40 * MINUTE_US))
        else:
            self.wait(random.randint(4 * HOUR_US, 7 * HOUR_US))

    def close(self) -> Generated:
        """End the history; a snapshot of the state is left beside it, as by a node that ran long enough."""
        self.store.sync()
        writer = self.store.begin_snapshot(self.made.last_index, self.term)
        for block in snapshot.begin(self.engine):
            writer.write_block(block)
        writer.finish()
        self.store.close()
        return self.made


def generate(directory: Path, events: int, seed: int = 1, watch: Callable[[int], None] | None = None) -> Generated:
    """Make a history of so many events, or a few more, below a directory; `watch` hears how many there are so far."""
    maker = Maker(directory, seed)
    maker.new_term()
    maker.commit(maker.doors.opening())
    term_since = 0
    while maker.truth.events < events:
        maker.burst()
        if maker.made.last_index - term_since > TERM_ENTRIES:
            term_since = maker.made.last_index
            maker.new_term()
        maker.pause()
        if watch is not None:
            watch(maker.truth.events)
    maker.commit(maker.doors.end())
    return maker.close()


def _command(asked: Asked) -> Command:
    if isinstance(asked.args, bytes):
        return Command(c.PUT, asked.door, asked.owner, 0, 0, asked.args, None)
    return to_command(asked)
