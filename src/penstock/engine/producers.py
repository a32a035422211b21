"""What each producer was told, so that a repeated request is answered again and not done again.

A producer numbers its requests. The last ``ANSWERS_KEPT`` answers of each are kept, as far as they fit
``ANSWERS_BYTES_MAX``; a producer that was not heard for a day is forgotten, and beyond ``PRODUCERS_MAX`` or
``PRODUCERS_BYTES_MAX`` the one that was silent longest.

With each answer a mark of its command is kept: the operation and a checksum of its body. A number that comes again with
another command is refused: the answer of the first would be wrong for it. The body of a take does not count, since a
repeated take may wait for less time than the first.

Producers stand in the order in which they were last heard, so who is to be forgotten follows from that order and the
entry's time alone. (Timers would not do: one that is set again when it finds its producer lively fires at other entries
than the one that a node sets when it starts from a snapshot.)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.engine import answers
from penstock.engine import errors as e
from penstock.engine.commands import ACK_TAKE, TAKE, encode
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.memory import ANSWER_BYTES, PRODUCER_BYTES

ANSWERS_KEPT: Final = 1000
PRODUCERS_MAX: Final = 10_000
ANSWERS_BYTES_MAX: Final = 1024 * 1024
"""What one producer's answers may cost in memory; the last one is kept in any case."""
PRODUCERS_BYTES_MAX: Final = 256 * 1024 * 1024
"""What all producers may cost together; the one that was heard last is kept in any case."""
FORGET_AFTER_US: Final = 24 * 3600 * 1_000_000
FORGOTTEN_PER_ENTRY_MAX: Final = 1000


class TakenBefore(Struct, array_like=True, gc=False):
    """A take's answer without the payloads: they are looked up again in the state."""

    queue: str
    token: int
    ids: list[int]
    acked: answers.Handled | None = None
    """The other half, where it was an ack-and-take."""
    queue_uid: int = 0


Kept = tuple[int, bytes]
"""What was answered to what, and the answer encoded.

The first number holds the kind of answer in its lowest 8 bits, the operation in the next 8, and the checksum of the
command's body above these. Snapshots of earlier releases have the kind alone.
"""

_KIND_BITS: Final = 8
_OP_BITS: Final = 8
_KIND_MASK: Final = (1 << _KIND_BITS) - 1
_TAKES: Final = frozenset({TAKE, ACK_TAKE})

_KINDS: Final[list[type[Any]]] = [
    Refusal,
    answers.Done,
    answers.Created,
    answers.PutAnswer,
    answers.PutManyAnswer,
    answers.Handled,
    answers.JobStarted,
    answers.Published,
    TakenBefore,
]
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_DECODERS: Final = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]


class Producer:
    """One producer's answers, oldest first. Encoded, so that they cost little and a snapshot need not walk them."""

    __slots__ = ("answers", "heard_us", "size_bytes")

    def __init__(self, heard_us: int) -> None:
        self.heard_us = heard_us
        self.answers: dict[int, Kept] = {}
        self.size_bytes = PRODUCER_BYTES
        """What it costs in memory."""

    def add(self, request: int, kept: Kept) -> None:
        """Add an answer to those that are kept."""
        self.answers[request] = kept
        self.size_bytes += ANSWER_BYTES + len(kept[1])

    def forget_oldest(self) -> None:
        """Forget the answer that was given first."""
        _, encoded = self.answers.pop(next(iter(self.answers)))
        self.size_bytes -= ANSWER_BYTES + len(encoded)

    def keep(self, command: Command, answer: Any) -> None:
        """Remember the answer to a command."""
        queue = getattr(command.args, "queue", "")
        if isinstance(answer, answers.Taken):
            ids = [record.id for record in answer.records]
            answer = TakenBefore(queue, answer.token, ids, None, answer.queue_uid)
        elif isinstance(answer, answers.AckTaken):
            taken = answer.taken
            ids = [record.id for record in taken.records]
            answer = TakenBefore(queue, taken.token, ids, answer.acked, taken.queue_uid)
        if len(self.answers) >= ANSWERS_KEPT:
            self.forget_oldest()
        number = _mark_of(command) << _KIND_BITS | _NUMBERS[answer.__class__]
        self.add(command.request, (number, encode(answer)))

    def recall(self, command: Command) -> Any:
        """The answer that this command got, None if it was not done before, or why its number cannot be used again."""
        kept = self.answers.get(command.request)
        if kept is None:
            return None
        number, encoded = kept
        answer = _DECODERS[number & _KIND_MASK].decode(encoded)
        mark = number >> _KIND_BITS
        if mark == _mark_of(command) if mark else _may_be_answered(command, answer):
            return answer
        return Refusal(e.REQUEST_REUSED, f"request {command.request} of this producer was another command")


def _mark_of(command: Command) -> int:
    body = 0 if command.op in _TAKES else crc32(command.body)
    return body << _OP_BITS | command.op


def _may_be_answered(command: Command, answer: Any) -> bool:
    """Whether an answer without a mark has the type that this operation is answered with; only takes have their own."""
    if isinstance(answer, TakenBefore):
        return command.op == (TAKE if answer.acked is None else ACK_TAKE)
    return command.op not in _TAKES or isinstance(answer, Refusal)


class Producers(OrderedDict[int, Producer]):
    """Producers by number; the one heard last stands last."""

    size_bytes = 0
    """What all of them cost in memory."""

    def add(self, number: int, producer: Producer) -> None:
        """Add a producer, as the one heard last."""
        self[number] = producer
        self.size_bytes += producer.size_bytes

    def forget_first(self) -> None:
        """Forget the producer that was silent longest."""
        _, producer = self.popitem(last=False)
        self.size_bytes -= producer.size_bytes

    def keep(self, producer: Producer, command: Command, answer: Any, is_bounded: bool) -> None:
        """Remember an answer to the producer heard last; with ``is_bounded`` forget others for it by their bytes."""
        before_bytes = producer.size_bytes
        producer.keep(command, answer)
        while is_bounded and producer.size_bytes > PRODUCER_BYTES + ANSWERS_BYTES_MAX and len(producer.answers) > 1:
            producer.forget_oldest()
        self.size_bytes += producer.size_bytes - before_bytes
        while is_bounded and self.size_bytes > PRODUCERS_BYTES_MAX and len(self) > 1:
            self.forget_first()


def hear(producers: Producers, number: int, now_us: int) -> Producer:
    """The producer of this number, new or known, who speaks now."""
    producer = producers.get(number)
    if producer is None:
        if len(producers) >= PRODUCERS_MAX:
            producers.forget_first()
        producer = Producer(now_us)
        producers.add(number, producer)
    else:
        producers.move_to_end(number)
        producer.heard_us = now_us
    return producer


def forget_silent(producers: Producers, now_us: int) -> int:
    """Forget those who were not heard for a day, up to a limit; tells until when nobody more is to be forgotten."""
    for _ in range(FORGOTTEN_PER_ENTRY_MAX):
        number = next(iter(producers), None)
        if number is None:
            return now_us + FORGET_AFTER_US
        ends_us = producers[number].heard_us + FORGET_AFTER_US
        if ends_us > now_us:
            return ends_us
        producers.forget_first()
    return now_us
