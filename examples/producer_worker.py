"""A producer and a worker: tasks are put, worked on three at a time, retried where they fail.

Run a node (`make run`), then: python examples/producer_worker.py
"""

from __future__ import annotations

import asyncio
import os

import penstock

URL = os.environ.get("PENSTOCK_URL", penstock.DEFAULT_URL)
QUEUE = "example-emails"


@penstock.worker(QUEUE, concurrency=3, backoff=penstock.Backoff(first=0.2))
async def send_email(message: penstock.Message) -> None:
    """What is done with each message. It is acknowledged when this returns, and comes back later if this raises."""
    print(f"  sending {message.text!r}, delivery {message.deliveries}")
    await asyncio.sleep(0.05)
    if message.text.endswith("user-4") and message.deliveries == 1:
        raise ConnectionError("the mail server was busy")
    print(f"  sent {message.text!r}")


async def main() -> None:
    """Put ten tasks, and work until all are done."""
    async with penstock.connect(URL) as client:
        queue = client.queue(QUEUE)
        await queue.create(if_absent=True)
        await queue.purge()

        working = asyncio.create_task(send_email.serve(client))
        for number in range(10):
            result = await queue.put(f"welcome user-{number}")
            print(f"put message {result.id}; it is on disk now")

        while True:
            info = await queue.info()
            if info.ready + info.delayed + info.leased == 0:
                break
            await asyncio.sleep(0.05)
        send_email.stop()
        await working
        print(f"done: {info.acked} acknowledged and {info.returned} given back since the queue was made")


if __name__ == "__main__":
    asyncio.run(main())
