"""Places for connections: limits by node, address and door, silent connections, and the operator's last places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.doors.doorkeeper import HOARD_BYTES, SILENT_AT_LEAST_S, TURNED_AWAY_MAX, Doorkeeper, address_of
from penstock.node.account import UNSENT, MemoryAccount
from tests.doors.conftest import AdvancedLoop


class Guest:
    """As much of a connection as the keeper needs."""

    def __init__(self, address: str = "192.0.2.1", door_name: str = "native") -> None:
        self.address, self.door_name, self.peer = address, door_name, address
        self.ended = ""
        self.moved = 0
        self.held = 0

    def abort(self, reason: str) -> None:
        self.ended = reason

    silent_for_too_long = give_up = close = abort

    def moved_bytes(self) -> int:
        return self.moved

    def hoarded_bytes(self) -> int:
        return self.held


class House:
    """A keeper on a loop whose clock is put forward."""

    def __init__(self, loop: AdvancedLoop, connections_max: int, **limits: Any) -> None:
        self.loop = loop
        self.account = MemoryAccount()
        node: Any = SimpleNamespace(
            account=self.account, connections_open=0, limits=SimpleNamespace(memory_bytes_max=0)
        )
        self.keeper = Doorkeeper(node, connections_max, **limits)

    def enter(self, *guests: Any) -> list[str]:
        return [self.keeper.enter(guest) for guest in guests]

    def advance(self, seconds: float) -> None:
        self.loop.ahead_s += seconds

    def hold(self, guest: Any, size_bytes: int) -> None:
        self.account.change(UNSENT, size_bytes - guest.held)
        guest.held = size_bytes
        self.keeper.note_hoard(guest, size_bytes)


def on_loop(check: Callable[[AdvancedLoop], None]) -> None:
    loop = AdvancedLoop()

    async def run() -> None:
        check(loop)
        for _ in range(3):
            await asyncio.sleep(0)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def heard_guests(house: House, count: int, address: str = "192.0.2.1", door_name: str = "native") -> list[Any]:
    guests: list[Any] = [Guest(address, door_name) for _ in range(count)]
    for guest in guests:
        assert house.keeper.enter(guest) == ""
        house.keeper.heard(guest)
    return guests


def test_a_full_node_names_its_limit() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 10, per_address_max=10, per_door_max=10)
        guests = heard_guests(house, 10)
        house.advance(100)
        assert house.enter(Guest()) == ["the node is at its connection limit (10)"]
        house.keeper.leave(guests[0])
        assert house.enter(Guest()) == [""]

    on_loop(check)


def test_one_address_and_one_door_leave_places_for_others() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 20, per_address_max=5, per_door_max=8)
        heard_guests(house, 5)
        assert house.enter(Guest()) == ["192.0.2.1 is at its connection limit (5)"]
        heard_guests(house, 3, "192.0.2.2")
        assert house.enter(Guest("192.0.2.3")) == ["the door native is at its connection limit (8)"]
        assert house.enter(Guest("192.0.2.3", "etzel")) == [""]

    on_loop(check)


def test_the_oldest_silent_connection_makes_room_but_not_a_new_one_nor_one_that_asked() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 3, per_address_max=3, per_door_max=3)
        heard_guests(house, 1)
        silent: list[Any] = [Guest(), Guest()]
        house.enter(*silent)
        assert house.enter(Guest()) == ["the node is at its connection limit (3)"], "both have just come"
        house.advance(SILENT_AT_LEAST_S + 1)
        assert house.enter(Guest()) == [""]
        assert silent[0].ended
        assert not silent[1].ended

    on_loop(check)


def test_a_silent_connection_makes_room_only_where_its_place_helps() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 10, per_address_max=2, per_door_max=10)
        other: Any = Guest("192.0.2.9")
        house.enter(other)
        heard_guests(house, 2)
        house.advance(10)
        assert house.enter(Guest()) == ["192.0.2.1 is at its connection limit (2)"]
        assert not other.ended

    on_loop(check)


def test_the_last_places_are_for_this_machine_and_the_newest_there_wins() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 200, per_address_max=1000, per_door_max=1000)
        heard_guests(house, 198)
        assert house.enter(Guest()) == ["the node is at its connection limit (200)"]
        operators = heard_guests(house, 2, "127.0.0.1")
        house.advance(10)
        assert house.enter(Guest("::1")) == [""]
        assert operators[0].ended
        assert not operators[1].ended
        assert len(house.keeper.connections) == 200

    on_loop(check)


def test_a_connection_without_any_request_is_closed_after_its_time() -> None:
    loop = AdvancedLoop()

    async def run() -> None:
        house = House(loop, 10, first_request_s=60.0)
        silent: Any = Guest()
        house.enter(silent)
        [heard] = heard_guests(house, 1)
        house.advance(59)
        await asyncio.sleep(0)
        assert not silent.ended
        house.advance(2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert silent.ended == "it sent no request for 60 s"
        assert not heard.ended
        house.keeper.leave(silent)
        house.keeper.leave(heard)
        assert house.account.total == 0
        assert not asyncio.all_tasks(loop) - {asyncio.current_task()}

    loop.run_until_complete(run())
    loop.close()


def test_only_some_connections_are_kept_to_be_told_why() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 1)
        kept: list[Any] = [Guest() for _ in range(TURNED_AWAY_MAX + 1)]
        assert [house.keeper.linger(guest) for guest in kept] == [True] * TURNED_AWAY_MAX + [False]
        for guest in kept:
            house.keeper.leave(guest)
        assert house.keeper.linger(kept[0])
        house.keeper.leave(kept[0])

    on_loop(check)


def test_when_buffers_need_too_much_the_slowest_peer_goes_and_small_buffers_never_do() -> None:
    def check(loop: AdvancedLoop) -> None:
        house = House(loop, 10, buffer_bytes_max=10_000_000)
        slow, fast, small = guests = heard_guests(house, 3)
        for guest, size_bytes in ((slow, 3_000_000), (fast, 6_000_000), (small, HOARD_BYTES - 1)):
            house.hold(guest, size_bytes)
        house.advance(10)
        slow.moved, fast.moved = 1_000, 100_000
        house.hold(fast, 8_000_000)
        assert slow.ended
        assert not fast.ended
        assert not small.ended
        house.hold(fast, 9_000_000)
        assert not fast.ended, "the bytes of a connection that is about to end count as freed"
        for guest in guests:
            house.keeper.leave(guest)

    on_loop(check)


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("::1", 5, 0, 0), "::1"),
        ("", "local"),
        (None, "local"),
    ],
)
def test_an_address_is_that_of_a_host_or_of_an_ipv6_network(peername: Any, address: str) -> None:
    assert address_of(peername) == address
