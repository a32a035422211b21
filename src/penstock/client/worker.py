"""Workers: functions that are called with each message of a queue.

    @worker("emails", concurrency=10)
    async def send_email(message):
        ...

    send_email.run()

When the function returns, the message is acknowledged; when it raises, the message comes back later, after longer and
longer waits. A function may settle its message itself, and then the worker leaves it alone. While it runs, the lease is
extended in good time. Plain functions are run in threads and get messages with blocking methods.

SIGTERM and SIGINT end ``run`` in good order: no more messages are taken, the running functions get ``grace`` seconds to
finish, and what is still unfinished then is given back. A second signal ends the grace.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from penstock.client.aio import Client, connect
from penstock.client.backoff import Backoff
from penstock.client.portal import new_event_loop
from penstock.client.shift import Shift
from penstock.client.units import Seconds, to_ms

Handler: TypeAlias = Callable[[Any], Awaitable[None]] | Callable[[Any], None]
"""What does the work: ``async def`` with a ``Message``, or a plain function with a ``sync.Message``."""

CONCURRENCY_MAX: Final = 10_000
"""As wide as the window of a subscription can be."""


class Worker:
    """A function bound to a queue. Calling it calls the function, as a test would."""

    def __init__(
        self,
        handler: Handler,
        queue: str,
        *,
        concurrency: int = 1,
        lease: Seconds | None = None,
        backoff: Backoff | None = None,
        grace: Seconds = 30.0,
    ) -> None:
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"a worker's concurrency is between 1 and {CONCURRENCY_MAX}, not {concurrency}")
        if lease is not None and to_ms(lease) == 0:
            raise ValueError("a worker extends its leases, so they need a length")
        self.handler = handler
        self.queue = queue
        self.concurrency = concurrency
        self.lease_seconds = None if lease is None else to_ms(lease) / 1000
        self.backoff = backoff if backoff is not None else Backoff()
        self.grace_seconds = to_ms(grace) / 1000
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
        self.__doc__ = handler.__doc__
        self._shift: Shift | None = None

    def __call__(self, message: Any) -> Awaitable[None] | None:
        return self.handler(message)

    def __repr__(self) -> str:
        name = getattr(self.handler, "__qualname__", repr(self.handler))
        return f"<Worker {name} on {self.queue!r}>"

    async def serve(self, client: Client) -> None:
        """Work until ``stop`` is called. Cancelling this gives back what is unfinished, without any grace."""
        if self._shift is not None:
            raise RuntimeError(f"{self!r} is serving already")
        self._shift = Shift(self, client)
        try:
            await self._shift.run()
        finally:
            self._shift = None

    def stop(self, *, now: bool = False) -> None:
        """Take no more messages, and return from ``serve`` when the running ones are done or the grace is over.

        With ``now`` there is no grace. To be called in the worker's event loop.
        """
        if self._shift is not None:
            self._shift.stop(now=now)

    def run(self, url: str | None = None, **options: Any) -> None:
        """Connect and work until SIGTERM or SIGINT. Takes the options of ``connect``."""
        run_workers(self, url=url, **options)


def worker(
    queue: str,
    *,
    concurrency: int = 1,
    lease: Seconds | None = None,
    backoff: Backoff | None = None,
    grace: Seconds = 30.0,
) -> Callable[[Handler], Worker]:
    """Make a function the worker of a queue.

    concurrency: how many messages are worked on at a time. lease: for how long messages are taken and extended; None
    for the queue's default. backoff: how long a message waits after its first, second, … failure. grace: how long
    running functions may go on after a stop.
    """

    def decorate(handler: Handler) -> Worker:
        return Worker(handler, queue, concurrency=concurrency, lease=lease, backoff=backoff, grace=grace)

    return decorate


def run_workers(*workers: Worker, url: str | None = None, **options: Any) -> None:
    """Run several workers over one connection until SIGTERM or SIGINT. Takes the options of ``connect``."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(workers, url, options))


async def _run(workers: tuple[Worker, ...], url: str | None, options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    signals_seen = 0

    def on_signal() -> None:
        nonlocal signals_seen
        signals_seen += 1
        for each in workers:
            each.stop(now=signals_seen > 1)

    async with connect(url, **options) as client:
        serving = [loop.create_task(each.serve(client)) for each in workers]
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        try:
            # One that fails (its queue is missing, say) ends them all.
            await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
            for each in workers:
                each.stop()
            await asyncio.gather(*serving)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            for task in serving:
                task.cancel()
            await asyncio.wait(serving)
