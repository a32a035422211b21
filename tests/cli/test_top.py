"""`penstock top`: the deepest queue first, rates from two looks, q ends it."""

from __future__ import annotations

import io

import msgspec
import pytest

from penstock.cli.top import Rates, Sample, depth, frame, rates
from penstock.client.sync import Client
from penstock.engine.commands import QueueSettings
from penstock.engine.views import QueueView
from penstock.testing import TestServer
from penstock.wire.native.messages import NodeStatus
from tests.cli.support import Command, Terminal

STATUS = NodeStatus("0.1.0", "c", 0, 1, 0, 5, 100_000_000, -1, "durable", 1, 3, 100, 1000, False, 5000)
VIEW = QueueView("a", 1, QueueSettings(), False, 1, 2, 3, 4, 100, 90_000_000, 10, 20, 30, 0, 0, 0, 0)


def rendered(sample: Sample, rate_of: dict[int, Rates], lines_max: int | None = None) -> list[str]:
    from rich.console import Console

    screen = io.StringIO()
    Console(file=screen, width=200).print(frame(sample, rate_of, lines_max))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_rates_are_by_the_nodes_own_time() -> None:
    later = msgspec.structs.replace(STATUS, log_time_us=STATUS.log_time_us + 2_000_000)
    now = msgspec.structs.replace(VIEW, put=14, delivered=40, acked=31)
    new = msgspec.structs.replace(VIEW, uid=2)
    assert rates(Sample(STATUS, [VIEW]), Sample(later, [now, new])) == {1: Rates(2.0, 10.0, 0.5)}
    assert rates(Sample(STATUS, [VIEW]), Sample(STATUS, [now])) == {}


def test_a_frame_has_the_deepest_queue_first_and_as_many_as_there_is_room_for() -> None:
    deep = msgspec.structs.replace(VIEW, uid=2, name="deep", ready=100, paused=True, oldest_us=0)
    assert (depth(VIEW), depth(deep)) == (10, 109)
    lines = rendered(Sample(STATUS, [VIEW, deep]), {1: Rates(2.0, 10.0, 0.5)})
    assert lines[0] == "Penstock 0.1.0  node 0  term 1  index 5  durable"
    assert lines[4].split() == ["100", "2", "3", "4", "-", "-", "-", "-", "paused", "deep"]
    assert lines[5].split() == ["1", "2", "3", "4", "2", "10", "0", "10", "s", "open", "a"]
    assert rendered(Sample(STATUS, [VIEW, deep]), {}, lines_max=1)[-1] == "and 1 more queues"


def test_a_full_disk_is_told() -> None:
    full = msgspec.structs.replace(STATUS, disk_full=True)
    assert "disk full: puts are refused" in rendered(Sample(full, []), {})[0]


def test_once_writes_one_frame(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a"] * 500)
    for args in (["--once"], []):
        lines = penstock("top", *args).stdout.splitlines()
        assert lines[4].split()[:1] == ["500"], "the deepest queue stands first"
        assert lines[4].endswith(queue)
    assert penstock.json("top", "--once")[0]["name"] == queue
    penstock("top", "--interval", "1ms", code=2)


@pytest.mark.parametrize("ending", ["q", "interrupt"])
def test_at_a_terminal_it_shows_rates_until_q_or_an_interrupt(
    node: TestServer, client: Client, queue: str, ending: str
) -> None:
    with Terminal("top", "--interval", "100ms", env={"PENSTOCK_URL": node.url}) as terminal:
        terminal.wait_for(queue)
        client.queue(queue).put_many(["a"] * 600)
        terminal.wait_for("600")
        terminal.type("x")
        if ending == "q":
            terminal.type("q")
            assert terminal.end() == 0
        else:
            terminal.interrupt()
            assert terminal.end() == 130
        assert "Traceback" not in terminal.screen
