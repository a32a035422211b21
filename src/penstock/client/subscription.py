"""Subscriptions: the node pushes records as they come, as many as the window allows to be open at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final

from penstock.client.errors import PenstockError
from penstock.client.link import Link
from penstock.client.messages import Message
from penstock.client.protocol import Handle
from penstock.engine.answers import Delivery, Done, Taken
from penstock.wire.native import messages as m

DEFAULT_WINDOW: Final = 16
"""Small enough that what waits here is taken up before its lease ends, large enough to hide the way to the node."""


REMIND_SECONDS: Final = 2.0
"""Interval between pings that report a waiting consumer to the node."""


class Subscription:
    """Messages of a queue as they come.

    async with queue.subscribe(window=100) as messages:
        async for message in messages:
            ...
            await message.ack()

    At most ``window`` of them are open at any time: neither settled nor given back, with a lease that has not ended.
    When the connection breaks, the subscription is made again on the next one. What waits here when it ends goes back
    to its place in the queue, and so does what waits here when the connection breaks; what waits here until its lease
    ends is not handed out.
    """

    def __init__(self, link: Link, queue: str, window: int, lease_ms: int | None) -> None:
        self._link = link
        self._queue = queue
        self._request = m.Subscribe(queue, window, lease_ms)
        self._waiting: deque[tuple[int, Delivery]] = deque()
        self._changed = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._error: PenstockError | None = None
        self._closed = False
        self._entered = False
        self.number = 0
        """The number of the request that made it on this connection; 0 while there is none."""

    async def __aenter__(self) -> Subscription:
        self._entered = True
        try:
            await self._subscribe()
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self if self._entered else self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        async with self:
            async for message in self:
                yield message

    async def __anext__(self) -> Message:
        message = await self.take_next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def take_next(self) -> Message | None:
        """Wait for the next message; None once the subscription is closed."""
        while True:
            if self._closed:
                return None
            found = self._next_live()
            if found is not None:
                return found
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._wait_for_change()

    def _next_live(self) -> Message | None:
        """The first message whose lease has not run out; those before it are given up, so that the window has room."""
        found = None
        run_out: list[Handle] = []
        while self._waiting and found is None:
            token, delivery = self._waiting.popleft()
            if self._has_run_out(delivery):
                run_out.append((delivery.id, token))
            else:
                found = Message(self._link, self._queue, token, delivery)
        if run_out and self._link.connected:
            self._link.spawn(self._link.give_back(self._queue, run_out))
        return found

    async def _wait_for_change(self) -> None:
        """Wait for a message, and tell the node from time to time that somebody waits for one.

        Messages that were handed out and neither settled nor given back fill the window until the node knows that
        their leases have ended and that this client goes on.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REMIND_SECONDS):
                    await self._changed.wait()
                return
            if self.number and self._link.connected:
                self._link.spawn(self._remind(self.number))

    async def _remind(self, number: int) -> None:
        with contextlib.suppress(PenstockError):
            await self._link.call(m.Ping([number]), Done)

    def _has_run_out(self, delivery: Delivery) -> bool:
        if not delivery.lease_until_us:
            return False
        left = self._link.clock.seconds_until(delivery.lease_until_us, asyncio.get_running_loop().time())
        return left is not None and left <= 0

    async def close(self) -> None:
        """End the subscription. Iterations over it stop, and what nobody has asked for yet goes back."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        if self._renewal is not None:
            self._renewal.cancel()
        if self.number and self._link.connected:
            with contextlib.suppress(PenstockError):  # If the connection is gone, so is the subscription.
                await self._link.call(m.Unsubscribe(self.number), Done)
        self._link.forget(self.number)
        # Pushes that crossed the request are here by now: the node answers in order.
        unclaimed = self._take_back()
        if unclaimed and self._link.connected:
            await self._link.give_back(self._queue, unclaimed)

    # What the link reports.

    def pushed(self, taken: Taken) -> None:
        """Records came."""
        self._waiting.extend((taken.token, delivery) for delivery in taken.records)
        self._changed.set()

    def lost(self) -> None:
        """The connection ended: subscribe again, once there is another."""
        self.number = 0
        if not self._closed:
            self._renewal = self._link.spawn(self._renew(self._take_back()))

    def failed(self, error: PenstockError) -> None:
        """There will be no more."""
        self._error = error
        self._changed.set()

    async def _renew(self, unclaimed: list[tuple[int, int]]) -> None:
        """Subscribe again. What had waited here goes back first, so that the window is not filled twice."""
        if unclaimed:
            await self._link.give_back(self._queue, unclaimed)
        try:
            await self._subscribe()
        except PenstockError as error:
            self.failed(error)

    async def _subscribe(self) -> None:
        try:
            await self._link.call(self._request, Done, sink=self)
        except PenstockError:
            self._link.forget(self.number)
            raise

    def _take_back(self) -> list[tuple[int, int]]:
        handles = [(delivery.id, token) for token, delivery in self._waiting]
        self._waiting.clear()
        return handles
