"""How the client's tests run: each on asyncio and on uvloop, and none leaves an error behind that nobody saw."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
import uvloop

Run: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
SECONDS_MAX = 30.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine function to its end in a fresh event loop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run_in_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        unseen: list[dict[str, Any]] = []

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
            await asyncio.wait_for(main(), SECONDS_MAX)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(guarded())
            gc.collect()
        assert not unseen

    return run_in_loop
