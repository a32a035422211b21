"""The examples run as they stand, end by themselves, and do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import connect_sync
from penstock.settings import EtzelSettings, MoniqueSettings, Settings, TaskfluxSettings
from penstock.testing import TestServer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ALL_DOORS = "all_doors.py"

# Lines that each program must say, in this order; others may stand between them.
STORIES = {
    "producer_worker.py": [
        "put message 1; it is on disk now",
        "  sending 'welcome user-4', delivery 2",
        "  sent 'welcome user-4'",
        "done: 10 acknowledged and 1 given back since the queue was made",
    ],
    "delayed.py": [
        "in the queue: 1 delayed, 2 delayed, 3 delayed, 4 delayed, 5 ready",
        ": now",
        ": half a second from now, as a moment",
        ": in one second",
        "message 3 is now due in an hour; let us not wait for that either",
        ": tomorrow, but we shall not wait",
        "expired unseen: 1",
    ],
    "priorities.py": [
        "first comes 'heart attack' (key -100)",
        "next would be: heart attack, broken arm, burn, cold, cough",
        "  seen: heart attack (key -100, delivery 2)",
        "  seen: cold (key 1, delivery 1)",
        "  seen: broken arm (key 2, delivery 1)",
        "  seen: burn (key 2, delivery 1)",
        "  seen: cough (key 5, delivery 1)",
        "nobody waits any more",
    ],
    "dead_letters.py": [
        "  failed: '20 EUR', delivery 2",
        "  done: '30 USD'",
        "  '20 EUR' was message 2 of example-orders: 2 deliveries, 2 failures",
        "moved 2, skipped 0",
        "  done: '20 EUR'",
        "  done: '40 EUR'",
        "left in example-orders-dead: 0",
    ],
}


@pytest.fixture(scope="module")
def node() -> Iterator[TestServer]:
    with TestServer() as server:
        yield server


def run(name: str, url: str, *arguments: str) -> list[str]:
    """Run an example to its end; what it said."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "PENSTOCK_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", sorted(STORIES))
def test_an_example_tells_its_story(node: TestServer, name: str) -> None:
    said = iter(run(name, node.url))
    for line in STORIES[name]:
        assert any(each.endswith(line) for each in said), f"{name} did not say {line!r} when it should have"


@pytest.mark.parametrize("name", ["priorities.py", "dead_letters.py"])
def test_an_example_can_be_run_again(node: TestServer, name: str) -> None:
    """It empties its queues first, whatever a run before left in them."""
    assert run(name, node.url)
    with connect_sync(node.url) as client:
        client.queue("example-hospital").put("left behind", create=True)
    assert not any("left behind" in line for line in run(name, node.url))


def test_a_shop_works_through_all_doors() -> None:
    others = MoniqueSettings(gateway_port=0, com_in_port=0, com_out_port=0, tech_in_port=0, tech_out_port=0)
    settings = Settings(taskflux=TaskfluxSettings(port=0), etzel=EtzelSettings(port=0), monique=others)
    with TestServer(settings) as server:
        etzel, gateway = (
            next(each.port for each in server.server.listeners if mark in each.purpose) for mark in ("Etzel", "gateway")
        )
        arguments = ["--seconds", "2", "--etzel-port", str(etzel), "--gateway-port", str(gateway)]
        said = run(ALL_DOORS, server.url, *arguments)
        done = {what: int(count) for count, what in (line.split(maxsplit=1) for line in said[1:])}
        with connect_sync(server.url) as client:
            put = {name: client.queue(name).info().put for name in ("orders", "images", "mails")}
    assert put == {name: done[f"{name} taken in"] for name in put}
    assert all(done[what] for what in ("orders done", "images scaled", "mails sent", "prices calculated"))


def test_every_example_is_tested_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == {*STORIES, ALL_DOORS}
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in programs:
        assert f"[{name}]({name})" in readme
