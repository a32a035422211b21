"""Dead letters: what fails again and again is set aside with its story, and brought back when the fault is mended.

Run a node (`make run`), then: python examples/dead_letters.py
"""

from __future__ import annotations

import os
import time

import penstock
from penstock.client.sync import Client, Queue

URL = os.environ.get("PENSTOCK_URL", penstock.DEFAULT_URL)
ORDERS = "example-orders"
DEAD = "example-orders-dead"


def work(orders: Queue, *, is_mended: bool) -> None:
    """A worker with a bug: it cannot do euros, until it is mended."""
    while (message := orders.take()) is not None:
        if "EUR" in message.text and not is_mended:
            print(f"  failed: {message.text!r}, delivery {message.deliveries}")
            message.nack()
        else:
            print(f"  done: {message.text!r}")
            message.ack()


def redrive(client: Client, queue: Queue) -> None:
    """Bring dead letters back to where each came from. The node does it; we watch."""
    job = queue.redrive()
    while True:
        view = next(view for view in client.jobs() if view.id == job)
        if view.done:
            print(f"redrive {job}: moved {view.moved}, skipped {view.skipped}")
            return
        time.sleep(0.05)


def main() -> None:
    """Let some messages die, look at them, and bring them back."""
    with penstock.connect_sync(URL) as client:
        dead = client.queue(DEAD)
        dead.create(if_absent=True)
        orders = client.queue(ORDERS)
        orders.create(deliveries_max=2, dead_letter=DEAD, if_absent=True)
        orders.purge()
        dead.purge()

        orders.put_many(["10 USD", "20 EUR", "30 USD", "40 EUR"])
        print("a worker that has a bug:")
        work(orders, is_mended=False)

        print("the dead letters, each with its story:")
        for record in dead.peek(10):
            origin = record.origin
            assert origin is not None
            print(
                f"  {record.text!r} was message {origin.id} of {origin.queue}: "
                f"{origin.deliveries} deliveries, {origin.failures} failures"
            )

        print("the bug is mended, and they are brought back:")
        redrive(client, dead)
        work(orders, is_mended=True)
        print(f"left in {DEAD}: {dead.info().ready}")


if __name__ == "__main__":
    main()
