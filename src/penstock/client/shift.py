"""One worker at work: from the first message until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from penstock.client import sync
from penstock.client.aio import Client
from penstock.client.backoff import Backoff
from penstock.client.errors import ClientClosed, ConnectionLost, PenstockError
from penstock.client.failures import failure_of
from penstock.client.messages import Message
from penstock.client.portal import Portal

log = logging.getLogger("penstock.worker")

LEASE_SECONDS_FALLBACK: Final = 60.0
"""For extensions where neither the worker nor the queue names a length."""
OWN_LEASE_FACTOR: Final = 1.5
"""A lease that is longer than expected by more than this is the message's own; less is how clocks differ."""
EXTEND_RETRY_SECONDS: Final = 1.0
GIVE_BACK_SECONDS_MAX: Final = 5.0
"""How long a worker that is told to end tries to give back what is unfinished; then the leases must run out."""
_RECONNECT: Final = Backoff(first=0.5, factor=2.0, cap=10.0, jitter=0.5)


class Work(Protocol):
    """What a shift needs to know of its worker."""

    queue: str
    concurrency: int
    lease_seconds: float | None
    grace_seconds: float
    backoff: Backoff
    is_async: bool
    handler: Any


class _Job:
    """A message being worked on."""

    __slots__ = ("extend_at", "has_slot", "in_handler", "lease_seconds", "message", "task")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.task: asyncio.Task[None] | None = None
        self.in_handler = True
        self.has_slot = True
        """Whether it counts against the concurrency."""
        self.lease_seconds = 0.0
        self.extend_at = math.inf


class Shift:
    """Takes messages, runs the handler on them, keeps their leases alive, and winds up."""

    def __init__(self, work: Work, client: Client) -> None:
        self._work = work
        self._client = client
        self._queue = client.queue(work.queue)
        self._loop = asyncio.get_running_loop()
        self._lease_seconds = LEASE_SECONDS_FALLBACK
        self._slots = asyncio.Semaphore(work.concurrency)
        self._jobs: set[_Job] = set()
        self._stopped = asyncio.Event()
        self._hurried = asyncio.Event()
        self._new_job = asyncio.Event()
        self._keeper_wakes_at = -math.inf
        self._executor = None if work.is_async else _threads(work.concurrency)

    def stop(self, *, now: bool) -> None:
        """Take no more messages; with ``now``, do not wait for those that run."""
        self._stopped.set()
        if now:
            self._hurried.set()

    async def run(self) -> None:
        """Work until stopped. Raises what made it impossible to go on."""
        tasks = [self._loop.create_task(each) for each in (self._consume(), self._stopped.wait(), self._keep_leases())]
        consuming, stopped, keeping = tasks
        try:
            await asyncio.wait({consuming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await _cancel(consuming)
            await self._finish_jobs()
        finally:
            # After a cancellation, this is all the time there is: what runs is given back.
            self._hurried.set()
            await _cancel(consuming)
            await self._finish_jobs()
            await _cancel(keeping)
            await _cancel(stopped)
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
        if not consuming.cancelled():
            consuming.result()

    # Taking.

    async def _consume(self) -> None:
        attempt = 0
        while True:
            try:
                await self._learn_lease()
                attempt = 0
                await self._consume_subscription()
            except ConnectionLost as error:
                attempt += 1
                delay = _RECONNECT.delay(attempt)
                log.warning("worker on %r: %s; going on in %.1f s", self._work.queue, error, delay)
                await asyncio.sleep(delay)

    async def _learn_lease(self) -> None:
        if self._work.lease_seconds is not None:
            self._lease_seconds = self._work.lease_seconds
        else:
            lease_ms = (await self._queue.info()).settings.lease_ms
            self._lease_seconds = lease_ms / 1000 or LEASE_SECONDS_FALLBACK

    async def _consume_subscription(self) -> None:
        async with self._queue.subscribe(window=self._work.concurrency, lease=self._work.lease_seconds) as messages:
            while True:
                # First room, then the message: so none is held here that is not worked on. After a reconnect the
                # window is fresh while old messages are still being worked on, so the window alone is not enough.
                await self._slots.acquire()
                try:
                    message = await messages.take_next()
                    if message is None:
                        raise ClientClosed
                except BaseException:
                    self._slots.release()
                    raise
                self._start(message)

    def _start(self, message: Message) -> None:
        job = _Job(message)
        self._plan_extension(job)
        self._jobs.add(job)
        job.task = self._loop.create_task(self._do(job))
        job.task.add_done_callback(lambda _: self._ended(job))

    def _ended(self, job: _Job) -> None:
        self._jobs.discard(job)
        if job.has_slot:
            self._slots.release()

    # Working.

    async def _do(self, job: _Job) -> None:
        message = job.message
        try:
            await self._handle(message)
        except asyncio.CancelledError:
            job.in_handler = False
            if self._hurried.is_set():
                await self._abandon(message)
            else:
                failure = failure_of(asyncio.CancelledError("the function was cancelled"))
                await self._settle(message, message.nack(delay=self._delay(message), failure=failure), "nacking")
        except Exception as error:
            job.in_handler = False
            delay = self._delay(message)
            log.warning("%r failed; it is returned with a delay of %.1f s", message, delay, exc_info=True)
            await self._settle(message, message.nack(delay=delay, failure=failure_of(error)), "nacking")
        else:
            job.in_handler = False
            await self._settle(message, message.ack(), "acknowledging")

    async def _handle(self, message: Message) -> None:
        if self._executor is None:
            await self._work.handler(message)
            return
        blocking = sync.Message.of(Portal(self._loop), message)
        try:
            await self._loop.run_in_executor(self._executor, self._work.handler, blocking)
        finally:
            message.settled = message.settled or blocking.settled
            message.lost = message.lost or blocking.lost

    async def _abandon(self, message: Message) -> None:
        """Give back a message whose function was cut short, if that can be done without delay."""
        if not self._client.link.connected:
            log.warning("%r stays leased, as there is no connection to give it back", message)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_SECONDS_MAX):
                await self._settle(message, message.release(), "giving back")

    def _delay(self, message: Message) -> float:
        return self._work.backoff.delay(message.deliveries)

    async def _settle(self, message: Message, action: Coroutine[Any, Any, None], doing: str) -> None:
        if message.settled or message.lost:
            action.close()
            return
        try:
            await action
        except PenstockError as error:
            log.warning("%s %r: %s", doing, message, error)

    # Keeping leases.

    def _plan_extension(self, job: _Job) -> None:
        """Extend when half of the lease is over. A lease bound to the connection needs no extension."""
        if not job.message.lease_until_us:
            return
        now = self._loop.time()
        left = self._client.link.clock.seconds_until(job.message.lease_until_us, now)
        left = self._lease_seconds if left is None else left
        # The message may have a much longer lease of its own: an extension must not shorten it.
        has_its_own = left > OWN_LEASE_FACTOR * self._lease_seconds
        job.lease_seconds = float(math.ceil(left)) if has_its_own else self._lease_seconds
        self._extend_at(job, now + max(0.0, left) / 2)

    def _extend_at(self, job: _Job, when: float) -> None:
        job.extend_at = when
        if when < self._keeper_wakes_at:
            self._new_job.set()

    async def _keep_leases(self) -> None:
        while True:
            now = self._loop.time()
            due: dict[float, list[_Job]] = {}
            for job in self._jobs:
                if job.extend_at <= now:
                    due.setdefault(job.lease_seconds, []).append(job)
            for lease_seconds, jobs in due.items():
                await self._extend(jobs, lease_seconds)
            self._keeper_wakes_at = min((job.extend_at for job in self._jobs), default=math.inf)
            self._new_job.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if math.isinf(self._keeper_wakes_at) else self._keeper_wakes_at):
                    await self._new_job.wait()

    async def _extend(self, jobs: list[_Job], lease_seconds: float) -> None:
        asked_at = self._loop.time()
        try:
            await self._queue.extend([job.message for job in jobs], lease_seconds)
        except PenstockError as error:
            log.warning("extending %d leases on %r: %s", len(jobs), self._work.queue, error)
            for job in jobs:
                job.extend_at = asked_at + min(EXTEND_RETRY_SECONDS, lease_seconds / 4)
            return
        for job in jobs:
            job.extend_at = math.inf if job.message.lost else asked_at + lease_seconds / 2
            if job.message.lost and job.in_handler:
                self._lose(job)

    def _lose(self, job: _Job) -> None:
        """The message is somebody else's by now. Its function still runs; another message may begin beside it.

        Else a function that hangs would stop the worker. No more than ``concurrency`` such functions are put up with.
        """
        log.warning(
            "the lease of %r was lost while its function runs: the message goes to another taker, and what becomes of "
            "it here is ignored",
            job.message,
        )
        if sum(not other.has_slot for other in self._jobs) < self._work.concurrency:
            job.has_slot = False
            self._slots.release()

    # Winding up.

    async def _finish_jobs(self) -> None:
        """Let what runs finish within the grace; then give back what is unfinished."""
        hurry = self._loop.create_task(self._hurried.wait())
        everything = self._loop.create_task(_all_done({job.task for job in self._jobs if job.task is not None}))
        await asyncio.wait({hurry, everything}, timeout=self._work.grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        self._hurried.set()
        for job in self._jobs:
            if job.in_handler and job.task is not None:
                job.task.cancel()
        await everything
        await hurry


def _threads(concurrency: int) -> ThreadPoolExecutor:
    """Threads for plain functions, also for those that still run though their leases were lost (``Shift._lose``)."""
    return ThreadPoolExecutor(2 * concurrency, "penstock-worker")


async def _all_done(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, however it does."""
    task.cancel()
    await asyncio.wait({task})
