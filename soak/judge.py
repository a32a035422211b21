"""Finds what must not be: something acknowledged that is lost, something doubled, something out of order.

The judge reads the client's notes in order (``feed``), and after each start of the node everything that the node holds
(``survey``). By the notes a message is

    unknown   its put was sent, the answer never came: it may be there or not
    live      its put was acknowledged, or it was seen: it must be there until its acknowledgement is sent
    ending    its acknowledgement was sent and not answered before the node was killed: it may be there or not
    ended     its acknowledgement was confirmed: it must never be seen again

What happened to *unknown* and *ending* ones is settled by the next survey.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from penstock.engine.records import READY
from penstock.engine.views import RecordView
from soak import notes as n
from soak.notes import Note
from soak.workload import name_of

VIOLATIONS_MAX: Final = 100
"""How many are kept; the rest is only counted."""

_LIVE: Final = 1
_ENDED: Final = 2
_NUMBER_BITS: Final = 32


class Judge:
    """The state of all messages by what the client knows, and the violations found so far."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.figures: Counter[str] = Counter()
        self.live: set[int] = set()
        """Ids of the records that must be there."""
        self._status = bytearray(1)
        """By record id."""
        self._names = array("Q", [0])
        """By record id: its message's producer and number, plus 1; 0 for none."""
        self._ids: dict[int, array[int]] = {}
        """By producer and number: the record's id, 0 while it is not known."""
        self._held: dict[int, tuple[int, bool]] = {}
        """Who holds a record, and whether the lease is bound to the connection."""
        self._acking: set[tuple[int, int]] = set()
        """Records and the connections that have sent an acknowledgement for them."""
        self._ending: set[int] = set()
        self._deliveries = array("I", [0])
        """By record id: its count of deliveries when it was last seen."""
        self._last_term = 0

    def complain(self, sentence: str) -> None:
        """Note a violation."""
        self.figures["violations"] += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(sentence)

    # What the client noted.

    def feed(self, notes: Iterable[Note]) -> None:
        """Go on reading the client's notes."""
        for note in notes:
            kind = note.kind
            if kind == n.PUT:
                self.figures["puts acknowledged"] += 1
                self._identify(note.id, note.producer, note.number)
            elif kind in (n.TAKEN, n.TAKEN_FOR_A_TIME):
                self._taken(note)
            elif kind == n.ACK_SENT:
                self._acking.add((note.id, note.worker))
            elif kind in (n.ACKED, n.ACK_LOST):
                self._ack_answered(note)
            elif kind == n.RETURN_SENT:
                if self._held.get(note.id, (None, False))[0] == note.worker:
                    del self._held[note.id]
            elif kind == n.RETURNED:
                self.figures["given back"] += 1
            elif kind == n.RETURN_LOST:
                self.figures["leases timed out"] += 1
            elif kind == n.PUTS_SENT:
                self._sent(note)
            elif kind == n.PUT_REFUSED:
                self.complain(f"a put was refused with code {note.value}")
            elif kind == n.CLOSING:
                self._release(note.worker)
            else:
                assert kind == n.LIFE_ENDED, note
                self._end_life()

    def _sent(self, note: Note) -> None:
        ids = self._ids.setdefault(note.producer, array("q"))
        if note.number + note.value > len(ids):  # else it is a repeat
            ids.extend([0] * (note.number + note.value - len(ids)))

    def _taken(self, note: Note) -> None:
        record_id, deliveries = note.id, note.value
        self.figures["deliveries"] += 1
        self._identify(record_id, note.producer, note.number)
        if deliveries <= self._deliveries[record_id]:
            if note.kind == n.TAKEN_FOR_A_TIME:
                return  # noted so late that its lease was over and the record with somebody else
            self.complain(f"record {record_id} has {deliveries} deliveries, and had as many before")
        self._deliveries[record_id] = deliveries
        if self._status[record_id] == _ENDED:
            self.complain(f"record {record_id} was delivered after its acknowledgement had been confirmed")
        holder = self._held.get(record_id)
        if holder is not None and holder[1]:
            self.complain(f"record {record_id} was delivered to connection {note.worker} while {holder[0]} held it")
        self._held[record_id] = (note.worker, note.kind == n.TAKEN)

    def _ack_answered(self, note: Note) -> None:
        self._acking.discard((note.id, note.worker))
        if note.kind == n.ACKED:
            self.figures["acks confirmed"] += 1
            if self._status[note.id] == _ENDED:
                self.complain(f"record {note.id} was acknowledged twice, and confirmed both times")
            self._end(note.id)
            return
        if note.value and self._held.get(note.id) == (note.worker, True):
            self.complain(f"the lease of record {note.id} was lost though its connection {note.worker} was open")
        self.figures["leases timed out"] += 1

    def _release(self, worker: int) -> None:
        for record_id in [record_id for record_id, holder in self._held.items() if holder[0] == worker]:
            del self._held[record_id]

    def _end_life(self) -> None:
        self._held.clear()
        self._ending |= {record_id for record_id, _ in self._acking} & self.live
        self._acking.clear()

    def _end(self, record_id: int) -> None:
        self._status[record_id] = _ENDED
        self.live.discard(record_id)
        self._held.pop(record_id, None)

    def _identify(self, record_id: int, producer: int, number: int) -> None:
        """A record was seen: its id and its message belong together for ever."""
        if record_id >= len(self._status):
            more = max(record_id + 1 - len(self._status), len(self._status))
            self._status.extend(bytes(more))
            self._names.extend([0] * more)
            self._deliveries.extend([0] * more)
        name = (producer << _NUMBER_BITS | number) + 1
        if self._names[record_id] not in (0, name):
            self.complain(f"record id {record_id} was given to a second message, {producer}/{number}")
        self._names[record_id] = name
        ids = self._ids.get(producer)
        if ids is None or number >= len(ids):
            self.complain(f"message {producer}/{number} is there (record {record_id}) and was never sent")
            return
        if ids[number] not in (0, record_id):
            self.complain(f"message {producer}/{number} is doubled: record {ids[number]} and record {record_id}")
        ids[number] = record_id
        if not self._status[record_id]:
            self._status[record_id] = _LIVE
            self.live.add(record_id)

    # What the node says.

    def term(self, term: int) -> None:
        """The node has started and tells its term."""
        if term <= self._last_term:
            self.complain(f"the term did not rise: {term} after {self._last_term}")
        self._last_term = term

    def record(self, record_id: int, key: int, payload: bytes) -> tuple[int, int] | None:
        """Check a record as the node hands it out; its producer and number, if it is what was put."""
        name = name_of(payload, key)
        if name is None:
            self.complain(f"record {record_id} with key {key} and {len(payload)} bytes is not what was put")
        return name

    def order(self, what: str, records: Sequence[tuple[int, int]]) -> None:
        """Check that records, each (key, id), stand in order. None of ours ever draws a new place, so ids tell it."""
        for before, after in pairwise(records):
            if not before < after:
                self.complain(f"{what}: record {after[1]} (key {after[0]}) after record {before[1]} (key {before[0]})")

    def survey(self, records: Iterable[RecordView], head: Sequence[RecordView]) -> None:
        """Compare all that the node holds, and the head of its queue, with what it must hold. No client is at work."""
        present: dict[int, RecordView] = {}
        for record in records:
            if record.id in present:
                self.complain(f"record {record.id} is listed twice")
            present[record.id] = record
            name = self.record(record.id, record.key, record.payload)
            if name is not None:
                self._identify(record.id, *name)
                if self._status[record.id] == _ENDED:
                    self.complain(f"record {record.id} is there again after its acknowledgement had been confirmed")
        for record_id in sorted(self.live - present.keys() - self._ending):
            self.complain(f"record {record_id} is lost: its put was acknowledged, its end never sent")
            self._end(record_id)
        for record_id in self._ending - present.keys():
            self._end(record_id)
        self._ending.clear()
        ready = sorted((record.key, record.id) for record in present.values() if record.state == READY)
        shown = [(record.key, record.id) for record in head]
        if shown != ready[: len(shown)] or (not shown and ready):
            self.complain(f"the head of the queue is not what comes first of its {len(ready)} ready records")
        self.figures["surveys"] += 1

    def drained(self, taken: Sequence[tuple[int, int]]) -> None:
        """Everything was taken for good, in this order of (key, id): that must be all there is, in order."""
        self.order("draining", taken)
        ids = {record_id for _, record_id in taken}
        if len(ids) != len(taken):
            self.complain(f"draining gave {len(taken)} records, {len(taken) - len(ids)} of them twice")
        for record_id in sorted(self.live - ids):
            self.complain(f"record {record_id} did not come out when the queue was drained")
        for record_id in sorted(ids - self.live):
            self.complain(f"record {record_id} came out when the queue was drained and should not be there")
        for record_id in ids & self.live:
            self._end(record_id)
        self.figures["drained"] += len(taken)
