"""Delayed tasks: later, at a moment, and never if it is too late.

Run a node (`make run`), then: python examples/delayed.py
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import penstock

URL = os.environ.get("PENSTOCK_URL", penstock.DEFAULT_URL)
QUEUE = "example-reminders"


def main() -> None:
    """Put messages for later, and take them as they become available."""
    with penstock.connect_sync(URL) as client:
        queue = client.queue(QUEUE)
        queue.create(if_absent=True)
        queue.purge()

        began = time.monotonic()
        queue.put("in one second", delay=1)
        queue.put("half a second from now, as a moment", at=datetime.now(UTC) + timedelta(seconds=0.5))
        tomorrow = queue.put("tomorrow, but we shall not wait", delay=timedelta(days=1))
        queue.put("never seen: it expires before it is available", delay=1, expires=0.8)
        queue.put("now")
        states = [f"{record.id} {record.state}" for record in queue.browse()]
        print(f"in the queue: {', '.join(states)}")

        for _ in range(3):
            message = queue.take(wait=5)
            assert message is not None, "the node should have had one within 5 seconds"
            print(f"after {time.monotonic() - began:.1f} s: {message.text}")
            message.ack()

        # Plans change: what waits can be looked at, given another delay, or taken out of its delay at once.
        queue.edit(tomorrow.id, delay=3600)
        print(f"message {tomorrow.id} is now due in an hour; let us not wait for that either")
        queue.kick(tomorrow.id)
        message = queue.take(wait=5)
        assert message is not None
        print(f"after {time.monotonic() - began:.1f} s: {message.text}")
        message.ack()
        print(f"expired unseen: {queue.info().expired}")


if __name__ == "__main__":
    main()
