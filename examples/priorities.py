"""Priorities: the smallest key comes first, equal keys in the order they were put, and a failure keeps its place.

Run a node (`make run`), then: python examples/priorities.py
"""

from __future__ import annotations

import os

import penstock

URL = os.environ.get("PENSTOCK_URL", penstock.DEFAULT_URL)
QUEUE = "example-hospital"


def main() -> None:
    """Put patients as they arrive, and see them by urgency."""
    with penstock.connect_sync(URL) as client:
        queue = client.queue(QUEUE)
        queue.create(if_absent=True)
        queue.purge()

        arrivals = [("cold", 5), ("broken arm", 2), ("cough", 5), ("heart attack", -100), ("burn", 2)]
        print("they arrive: " + ", ".join(name for name, _ in arrivals))
        queue.put_many([penstock.Item(name, key=urgency) for name, urgency in arrivals])

        first = queue.take()
        assert first is not None
        print(f"first comes {first.text!r} (key {first.key})")
        print("the doctor is called away: it goes back, to its own place and not to the end")
        first.nack()

        # The waiting are shown in the order in which they will be taken.
        print("next would be: " + ", ".join(record.text for record in queue.peek(10)))

        cold = next(record for record in queue.peek(10) if record.text == "cold")
        print("the cold turns out to be pneumonia: its key becomes 1")
        queue.edit(cold.id, key=1)

        message = queue.take()
        while message is not None:
            print(f"  seen: {message.text} (key {message.key}, delivery {message.deliveries})")
            message = queue.ack_and_take(message)
        print("nobody waits any more")


if __name__ == "__main__":
    main()
