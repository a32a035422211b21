"""Fair turns: the clock is read seldom, a turn ends, and those who wait are served in their order."""

from __future__ import annotations

import asyncio

import pytest

from penstock.doors import turns
from penstock.doors.turns import QUANTUM_S, TURN_S, UNITS_PER_LOOK, Turns


class Clock:
    """A clock that the test moves; it counts how often it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns, "perf_counter", clock)
    return clock


class Worker:
    """Has some steps to do, each of which takes a while."""

    def __init__(self, shared: Turns, clock: Clock, name: str, steps: int, done: list[str]) -> None:
        self._turns, self._clock, self._name, self._steps, self._done = shared, clock, name, steps, done

    def take_turn(self) -> None:
        while self._steps:
            self._steps -= 1
            self._done.append(self._name)
            self._clock.now_s += QUANTUM_S
            self._turns.left -= UNITS_PER_LOOK
            if self._turns.is_over():
                self._turns.wait(self)
                return


def test_a_turn_is_over_when_its_time_is_and_begins_anew_with_the_loop(clock: Clock) -> None:
    async def check() -> None:
        shared = Turns()
        assert not shared.is_over()
        clock.now_s += TURN_S / 2
        assert not shared.is_over()
        clock.now_s += TURN_S
        shared.left = 0
        assert shared.is_over()
        assert shared.left == 0, "from now on each connection is served one request and then waits"
        await asyncio.sleep(0)
        assert shared.left == UNITS_PER_LOOK
        assert not shared.is_over()

    asyncio.run(check())


def test_those_who_wait_take_turns_and_the_loop_goes_on_between(clock: Clock) -> None:
    async def check() -> tuple[list[str], int]:
        shared, done = Turns(), []
        for name in "ab":
            shared.wait(Worker(shared, clock, name, 20, done))
        rounds = 0
        while len(done) < 40:
            before = len(done)
            await asyncio.sleep(0)
            assert len(done) - before <= TURN_S / QUANTUM_S + 1
            rounds += 1
        return done, rounds

    done, rounds = asyncio.run(check())
    assert done == ["a", "b"] * 20
    assert rounds >= 8


def test_nothing_is_scheduled_while_nobody_waits(clock: Clock) -> None:
    async def check() -> int:
        shared = Turns()
        shared.is_over()
        for _ in range(5):
            await asyncio.sleep(0)
        return clock.looks

    assert asyncio.run(check()) == 1
