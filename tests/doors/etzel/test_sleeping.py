"""Sleep and wake: who is woken, when, and that nobody is forgotten under any interleaving."""

from __future__ import annotations

import json
import random
import selectors
from typing import Any

import pytest
import uvloop

from penstock.engine import commands as c
from penstock.engine.records import READY
from tests.doors.conftest import WITHIN_S, AdvancedLoop
from tests.doors.etzel.support import Client, EtzelServer
from tests.doors.etzel.test_requests import submit

AWK = {"cmd": "awk", "qname": "q"}
OKSLP = {"cmd": "okslp", "qname": "q"}


@pytest.fixture
def other(etzel: EtzelServer) -> Client:
    """A second client."""
    return etzel.client()


def test_all_sleepers_are_woken_once(etzel: EtzelServer, client: Client) -> None:
    sleepers = [etzel.client() for _ in range(3)]
    for sleeper in sleepers:
        sleeper.sleep("q")
    client.publish("q", "a", "b")
    for sleeper in sleepers:
        assert sleeper.hear() == AWK
        sleeper.hears_nothing()
    assert etzel.call(lambda: len(etzel.door.sleepers)) == 0


def test_the_message_is_in_the_queue_when_the_sleeper_is_woken(client: Client, other: Client) -> None:
    client.sleep("q")
    for round_number in range(50):
        other.send("PUB", "q", msg=str(round_number))
        assert client.hear() == AWK
        assert client.fetch("q")["msg"] == str(round_number)
        assert client.ask("ISLP", "q") == OKSLP
        assert other.hear() == {"cmd": "ok"}


def test_nobody_is_woken_before_the_message_is_committed(client: Client, other: Client, etzel: EtzelServer) -> None:
    client.sleep("q")
    release = etzel.hold_commits()
    other.send("PUB", "q", msg="a")
    etzel.until(lambda: etzel.node._in_flight)
    client.hears_nothing()
    release()
    assert client.hear() == AWK


def test_sleeping_while_a_message_waits_wakes_at_once(client: Client, etzel: EtzelServer) -> None:
    client.publish("q", "a")
    client.ask("SUB", "q")
    client.send("ISLP", "q")
    assert [client.hear(), client.hear()] == [OKSLP, AWK]
    assert etzel.call(lambda: len(etzel.door.sleepers)) == 0
    client.hears_nothing()


def test_only_subscribers_are_woken_and_it_does_not_matter_when_they_subscribe(client: Client, other: Client) -> None:
    assert client.ask("ISLP", "q") == OKSLP
    other.publish("q", "a")
    client.hears_nothing()
    client.send("SUB", "q")
    assert [client.hear(), client.hear()] == [{"cmd": "oksub", "qname": "q"}, AWK]
    assert client.ask("SUB", "q")["cmd"] == "oksub"
    other.publish("q", "b")
    client.hears_nothing()


def test_a_subscriber_told_that_there_is_no_queue_is_woken_by_its_first_message(client: Client, other: Client) -> None:
    client.ask("SUB", "q")
    assert client.ask("FET", "q") == {"cmd": "nok", "err": "Q_NOT_FOUND"}
    other.publish("q", "a")
    assert client.hear() == AWK
    other.publish("q", "b")
    client.hears_nothing()


def test_who_did_not_subscribe_is_not_woken_by_the_first_message(client: Client, other: Client) -> None:
    assert client.ask("FET", "q") == {"cmd": "nok", "err": "Q_NOT_FOUND"}
    other.publish("q", "a")
    client.hears_nothing()


def test_two_sleeps_are_one(client: Client, other: Client) -> None:
    client.sleep("q")
    client.sleep("q")
    other.publish("q", "a")
    assert client.hear() == AWK
    other.publish("q", "b")
    client.hears_nothing()


def test_a_fetch_does_not_end_the_sleep(client: Client, other: Client) -> None:
    other.publish("q", "a")
    other.fetch("q")
    client.sleep("q")
    assert client.ask("FET", "q") == {"cmd": "nomsg", "qname": "q"}
    other.publish("q", "b")
    assert client.hear() == AWK


def test_a_client_sleeps_on_each_queue_apart(client: Client, other: Client) -> None:
    client.sleep("a")
    client.sleep("b")
    other.publish("b", "m")
    assert client.hear() == {"cmd": "awk", "qname": "b"}
    other.publish("a", "m")
    assert client.hear() == {"cmd": "awk", "qname": "a"}


def test_who_leaves_sleeps_no_more(client: Client, other: Client, etzel: EtzelServer) -> None:
    client.sleep("q")
    client.sleep("r")
    assert etzel.call(lambda: len(etzel.door.sleepers)) == 2
    client.close()
    etzel.until(lambda: len(etzel.door.sleepers) == 0)
    other.publish("q", "a")
    assert other.fetch("q")["msg"] == "a"


def test_a_paused_queue_wakes_nobody_until_it_is_resumed(client: Client, other: Client, etzel: EtzelServer) -> None:
    other.publish("q", "a")
    submit(etzel, c.Pause("q", True))
    client.sleep("q")
    other.publish("q", "b")
    client.hears_nothing()
    submit(etzel, c.Pause("q", False))
    assert client.hear() == AWK


def test_a_sleeper_outlives_the_queue(client: Client, other: Client, etzel: EtzelServer) -> None:
    other.publish("q", "a")
    other.fetch("q")
    client.sleep("q")
    submit(etzel, c.DeleteQueue("q"))
    client.hears_nothing()
    other.publish("q", "a")
    assert client.hear() == AWK


def test_what_other_doors_put_wakes_too(client: Client, etzel: EtzelServer) -> None:
    client.sleep("q")
    submit(etzel, c.CreateQueue("q", c.QueueSettings()))
    client.hears_nothing()
    submit(etzel, c.Put("q", [c.Item(0, b"native")]))
    assert client.hear() == AWK


def test_an_acknowledgement_wakes_nobody(clocked: EtzelServer) -> None:
    client, other = clocked.client(), clocked.client()
    client.publish("q", "a")
    uid = client.fetch("q")["uid"]
    other.sleep("q")
    client.acknowledge("q", uid)
    clocked.advance(61)
    other.hears_nothing()


def test_the_end_of_a_delay_and_of_a_lease_wake(clocked: EtzelServer) -> None:
    client, other = clocked.client(), clocked.client()
    other.sleep("q")
    client.publish("q", "a", delay=10)
    other.hears_nothing()
    clocked.advance(10.1)
    assert other.hear() == AWK
    other.fetch("q")
    assert other.ask("ISLP", "q") == OKSLP
    clocked.advance(59)
    other.hears_nothing()
    clocked.advance(1.1)
    assert other.hear() == AWK
    assert other.fetch("q")["error_count"] == 1


class Worker:
    """The worker of the original: it fetches until nothing is left, sleeps, and fetches when it is woken.

    What it has to say waits in ``outbox``, so that a test can decide when it is said.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outbox: list[dict[str, str]] = [{"cmd": "SUB"}]
        self.asleep = False
        self.taken = self.done = 0
        self._received = b""

    def hear(self) -> None:
        """Take in what has come."""
        self._received += self.client.socket.recv(1 << 16)
        while len(self._received) >= 2 and len(self._received) >= 2 + self._received[1]:
            size = self._received[1]
            reply = json.loads(self._received[2 : 2 + size])
            self._received = self._received[2 + size :]
            self._on(reply)

    def _on(self, reply: dict[str, Any]) -> None:
        match reply["cmd"]:
            case "oksub" | "awk":
                self.asleep = False
                self.outbox.append({"cmd": "FET"})
            case "msg":
                self.taken += 1
                self.outbox += [{"cmd": "ACK", "uid": reply["uid"]}, {"cmd": "FET"}]
            case "okack":
                self.done += 1
            case "nomsg":
                self.outbox.append({"cmd": "ISLP"})
            case "okslp" | "nok":
                self.asleep = True

    def say(self) -> None:
        """Send the next request."""
        self.client.send(qname="q", **self.outbox.pop(0))

    @property
    def lies_down(self) -> bool:
        """Whether to sleep is the next that it has to say."""
        return bool(self.outbox) and self.outbox[0]["cmd"] == "ISLP"


class Shift:
    """Workers that get one message at a time; what happens next is drawn from a seed."""

    def __init__(self, server: EtzelServer, count: int, wait_for_all: bool) -> None:
        self._server = server
        self._wait_for_all = wait_for_all
        self._draw = random.Random(count)
        self._publisher = server.client()
        self._workers = [Worker(server.client()) for _ in range(count)]
        self._published = 0
        self._stay_awake = False
        """From when a message is taken, none of them lies down before the next is there."""
        self._selector = selectors.DefaultSelector()
        for worker in self._workers:
            self._selector.register(worker.client.socket, selectors.EVENT_READ, worker)

    def work(self, rounds: int) -> None:
        """Until all messages are done and all workers sleep; fails when nothing can happen any more."""
        with self._selector:
            while not (self._published == rounds and self._is_quiet()):
                may_publish = self._published < rounds and self._may_publish()
                awake = self._stay_awake and self._published < rounds and self._is_taken()
                speakers = [worker for worker in self._workers if worker.outbox and not (awake and worker.lies_down)]
                if may_publish and self._draw.randrange(len(speakers) + 1) == 0:
                    self._published += 1
                    self._publisher.publish("q", str(self._published))
                    self._stay_awake = not self._wait_for_all and self._draw.random() < 0.5
                elif speakers:
                    self._draw.choice(speakers).say()
                self._listen(wait=not speakers and not may_publish)

    def _is_taken(self) -> bool:
        return sum(worker.taken for worker in self._workers) == self._published

    def _done(self) -> bool:
        return sum(worker.done for worker in self._workers) == self._published

    def _is_quiet(self) -> bool:
        return self._done() and all(worker.asleep and not worker.outbox for worker in self._workers)

    def _may_publish(self) -> bool:
        return self._is_quiet() if self._wait_for_all else self._done()

    def _listen(self, wait: bool) -> None:
        ready = self._selector.select(WITHIN_S if wait else 0)
        assert ready or not wait, f"stuck in round {self._published} with {self._left()} messages in the queue"
        for key, _ in ready:
            key.data.hear()

    def _left(self) -> int:
        return self._server.call(lambda: int(self._server.queue("q").counts[READY]))


@pytest.mark.parametrize("wait_for_all", [True, False], ids=["all-asleep", "as-soon-as-done"])
@pytest.mark.parametrize("count", [1, 5, 20, 100])
def test_no_wake_up_is_lost(count: int, wait_for_all: bool) -> None:
    """One message at a time to many sleeping workers, 200 times: each is taken, and nobody is stuck.

    The next message comes when the last is done: either after all have gone back to sleep, or somewhere between what
    they have to say on their way there.
    """
    server = EtzelServer(uvloop.new_event_loop() if wait_for_all else AdvancedLoop())
    server.start()
    try:
        Shift(server, count, wait_for_all).work(200)
        assert server.call(lambda: sum(server.queue("q").counts)) == 0
        assert server.call(lambda: len(server.door.sleepers)) == count
    finally:
        server.stop()
