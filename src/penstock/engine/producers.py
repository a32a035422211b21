"""What each producer was told, so that a repeated request is answered again and not done again.

A producer numbers its requests. The last ``ANSWERS_KEPT`` answers of each are kept; a producer that was not heard for a
day is forgotten, and beyond ``PRODUCERS_MAX`` the one that was silent longest.

Producers stand in the order in which they were last heard, so who is to be forgotten follows from that order and the
entry's time alone. (Timers would not do: one that is set again when it finds its producer lively fires at other entries
than the one that a node sets when it starts from a snapshot.)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec
from msgspec import Struct

from penstock.engine import answers
from penstock.engine.commands import encode
from penstock.engine.errors import Refusal

ANSWERS_KEPT: Final = 1000
PRODUCERS_MAX: Final = 10_000
FORGET_AFTER_US: Final = 24 * 3600 * 1_000_000
FORGOTTEN_PER_ENTRY_MAX: Final = 1000


class TakenBefore(Struct, array_like=True, gc=False):
    """A take's answer without the payloads: they are looked up again in the state."""

    queue: str
    token: int
    ids: list[int]
    acked: answers.Handled | None = None
    """The other half, where it was an ack-and-take."""


Kept = tuple[int, bytes]
"""What kind of answer, and the answer encoded."""

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

    __slots__ = ("answers", "heard_us")

    def __init__(self, heard_us: int) -> None:
        self.heard_us = heard_us
        self.answers: dict[int, Kept] = {}

    def keep(self, request: int, queue: str, answer: Any) -> None:
        """Remember the answer to a request."""
        if isinstance(answer, answers.Taken):
            answer = TakenBefore(queue, answer.token, [record.id for record in answer.records])
        elif isinstance(answer, answers.AckTaken):
            taken = answer.taken
            answer = TakenBefore(queue, taken.token, [record.id for record in taken.records], answer.acked)
        if len(self.answers) >= ANSWERS_KEPT:
            del self.answers[next(iter(self.answers))]
        self.answers[request] = (_NUMBERS[answer.__class__], encode(answer))

    def recall(self, request: int) -> Any:
        """The answer that this request got, or None."""
        kept = self.answers.get(request)
        return None if kept is None else _DECODERS[kept[0]].decode(kept[1])


Producers = OrderedDict[int, Producer]
"""Producers by number; the one heard last stands last."""


def hear(producers: Producers, number: int, now_us: int) -> Producer:
    """The producer of this number, new or known, who speaks now."""
    producer = producers.get(number)
    if producer is None:
        if len(producers) >= PRODUCERS_MAX:
            producers.popitem(last=False)
        producer = producers[number] = Producer(now_us)
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
        del producers[number]
    return now_us
