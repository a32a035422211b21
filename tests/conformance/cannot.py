"""What a protocol cannot say: the cells of the matrix that are not passed, each with its reason.

A cell stands here if its rule ends with Unsaid at that door. One that stands here and passes is a failure, and so is
one that ends so and does not stand here.
"""

from __future__ import annotations

from typing import Final

CANNOT: Final[dict[tuple[str, str], str]] = {}
"""The reason by door and rule."""

ALWAYS_SAID: Final = frozenset({"Expiry", "Dead letter", "Restart"})
"""Chapters of which no cell may stand here: what a protocol cannot say of these, an operator does."""


def cannot(door: str, rule: str, why: str) -> None:
    """Declare a cell."""
    assert (door, rule) not in CANNOT, f"{door}, {rule} is declared twice"
    CANNOT[door, rule] = why


cannot("taskflux", "delay_said", "an Enqueue has a key and a payload, and no time")
cannot("taskflux", "count_is_told", "a Dequeue's answer has a key and a payload, and no more")
cannot(
    "taskflux",
    "lease_outlives_connection",
    "a record is held by the connection that dequeued it, and is free when that ends",
)
cannot("taskflux", "ack_after_restart", "an acknowledgement names nothing: it means what its own connection holds")

cannot("etzel", "disconnect", "a message that was fetched stays out until its timeout, whatever becomes of the fetcher")
cannot("etzel", "given_back", "there is no command to give a message back: it comes back by itself")

cannot("monique", "order_by_key", "a message has no key: all have the key 0")
cannot("monique", "delay_said", "a message has a time at which it expires, and none before which it waits")
cannot("monique", "count_is_told", "a task is the message as it was published, and says nothing of earlier workers")
cannot(
    "monique", "lease_outlives_connection", "a task is its worker's while that is connected, and returns when it goes"
)
cannot("monique", "given_back", "a worker answers with a result or an error, and both end the task")
cannot("monique", "key_range", "a message has no key: all have the key 0")
cannot("monique", "missing_queue", "a worker connects to the port of a spec, and every such spec has its queue")
