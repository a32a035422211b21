"""The controller, with workers that are real PULL sockets: who gets which task, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from penstock.doors.monique.tasks import queue_name
from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.journal import DOOR_NATIVE
from penstock.engine.records import Record
from penstock.node.requests import NOBODY
from penstock.wire.monique import gateway as g
from penstock.wire.monique.bodies import Body, encode_body, kill_body
from penstock.wire.monique.tags import Dialect, pack_tag_frame
from tests.doors.monique.site import Site, body, running, settings

SPEC = "example_calculator"
QUEUE = f"monique/{SPEC}"
PORT = f"connections[{SPEC}]"


@pytest.fixture
def site() -> Iterator[Site]:
    """A node with a controller for one spec."""
    with running(connections=f"{SPEC}=0") as site:
        yield site


class Boss:
    """Publishes tasks and answers to them."""

    def __init__(self, site: Site) -> None:
        self.client = site.client()

    def tasks(self, *ids: str, **fields: object) -> list[list[bytes]]:
        """Publish tasks with these ids; their frames."""
        sent = [body("config", SPEC, id=each, **fields) for each in ids]
        for each in sent:
            self.client.push(each.tag.encode(), encode_body(each))
        return [frames(each) for each in sent]

    def answer(self, task_id: str, type: str = "result", spec: str = SPEC) -> None:
        """Publish an answer to a task."""
        answer = body(type, spec, pid=task_id)
        self.client.push(answer.tag.encode(), encode_body(answer))


def frames(task: Body) -> list[bytes]:
    return [task.tag.encode(), encode_body(task)]


def worker(site: Site, name: str = PORT) -> zmq.Socket[bytes]:
    """A worker that is known to be there, and free."""
    before = site.call(lambda: waiting(site))
    pull = site.socket(zmq.PULL, name)
    site.until(lambda: waiting(site) > before)
    return pull


def waiting(site: Site) -> int:
    return sum(len(each) for each in site.node.waiters._by_sink.values())


def gets_nothing(site: Site, pull: zmq.Socket[bytes]) -> None:
    """All that is to be done has been done, and nothing came of it."""
    site.until(lambda: not site.node._pending and not site.node._in_flight)
    assert not pull.poll(50)


def perform(site: Site, args: object) -> None:
    """Let a command of somebody else's be carried out."""
    op = c.OPS[type(args)]
    site.call(lambda: site.node.submit(Command(op, DOOR_NATIVE, 0, 0, 0, c.encode(args), args), NOBODY, 0))


# One at a time.


def test_a_free_worker_gets_a_task_as_it_was_published(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    assert boss.tasks("1", data=b'{"first":6}') == [pull.recv_multipart()]


def test_a_worker_gets_the_next_task_when_it_has_finished_and_not_before(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    first, second = boss.tasks("1", "2")
    assert pull.recv_multipart() == first
    gets_nothing(site, pull)
    boss.answer("1")
    assert pull.recv_multipart() == second
    assert site.counts(QUEUE) == [0, 0, 1, 0]
    boss.answer("2")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


def test_tasks_go_to_whoever_is_free(site: Site) -> None:
    """One of two is busy with a long one: the other gets all that comes. The original's gets but half of it."""
    busy, idle, boss = worker(site), worker(site), Boss(site)
    (long_one,) = boss.tasks("long")
    assert busy.recv_multipart() == long_one
    for number in range(10):
        (task,) = boss.tasks(str(number))
        assert idle.recv_multipart() == task
        boss.answer(str(number))
    gets_nothing(site, busy)


def test_tasks_wait_for_the_first_worker_in_their_order(site: Site) -> None:
    boss = Boss(site)
    sent = boss.tasks("1", "2", "3")
    assert site.counts(QUEUE) == [3, 0, 0, 0]
    pull = site.socket(zmq.PULL, PORT)
    for number, task in enumerate(sent, 1):
        assert pull.recv_multipart() == task
        boss.answer(str(number))


def test_a_worker_may_have_several_tasks_at_a_time() -> None:
    with running(connections=f"{SPEC}=0", worker_tasks=3) as site:
        pull, boss = worker(site), Boss(site)
        sent = boss.tasks(*"12345")
        assert [pull.recv_multipart() for _ in range(3)] == sent[:3]
        gets_nothing(site, pull)
        boss.answer("2")
        assert pull.recv_multipart() == sent[3]
        gets_nothing(site, pull)


def test_only_config_messages_of_the_spec_on_com_are_tasks(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    for other in (body("data", SPEC), body("result", SPEC), body("config", "example"), body("config", SPEC + "2")):
        boss.client.push(other.tag.encode(), encode_body(other))
    technical = body("config", SPEC)
    tech = site.component("tech")
    tech.send_multipart(frames(technical))
    site.until(lambda: site.published[-1].channel == 1)
    assert boss.tasks("1") == [pull.recv_multipart()]
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


def test_a_legacy_task_is_handed_on_in_its_form(site: Site) -> None:
    pull, task = worker(site), body("config", SPEC, dialect=Dialect.LEGACY)
    packed = [pack_tag_frame(task.tag.encode(), Dialect.LEGACY), encode_body(task)]
    site.component().send_multipart(packed)
    assert pull.recv_multipart() == packed


def test_an_opaque_task_is_handed_on_as_it_came(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    boss.client.push(b"config:example_calculator:1::me", b"\xc1 encrypted")
    assert pull.recv_multipart() == [b"config:example_calculator:1::me", b"\xc1 encrypted"]


def test_a_task_without_an_id_is_done_when_it_is_sent(site: Site) -> None:
    """Nobody could ever say that it is done."""
    pull, boss = worker(site), Boss(site)
    assert boss.tasks("", "") == [pull.recv_multipart(), pull.recv_multipart()]
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


def test_an_expired_task_is_not_handed_out(site: Site) -> None:
    boss = Boss(site)
    boss.tasks("1", expires_at_ms=1)
    (lasting,) = boss.tasks("2")
    pull = site.socket(zmq.PULL, PORT)
    assert pull.recv_multipart() == lasting


# Done.


@pytest.mark.parametrize(("type", "spec"), [("result", SPEC), ("error", SPEC), ("error", "error"), ("result", "x")])
def test_a_result_or_an_error_ends_a_task_whatever_its_spec(site: Site, type: str, spec: str) -> None:
    pull, boss = worker(site), Boss(site)
    _, second = boss.tasks("1", "2")
    pull.recv_multipart()
    boss.answer("1", type, spec)
    assert pull.recv_multipart() == second


@pytest.mark.parametrize("type", ["config", "data"])
def test_other_messages_of_a_task_do_not_end_it(site: Site, type: str) -> None:
    pull, boss = worker(site), Boss(site)
    boss.tasks("1", "2")
    pull.recv_multipart()
    boss.answer("1", type, "other_spec")
    gets_nothing(site, pull)
    assert site.counts(QUEUE) == [1, 0, 1, 0]


def test_a_kill_ends_a_task(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    _, second = boss.tasks("1", "2")
    pull.recv_multipart()
    kill = kill_body("1", id="k", creator="operator", created_at_ms=1)
    site.component("tech").send_multipart(frames(kill))
    assert pull.recv_multipart() == second


def test_a_result_on_the_technical_channel_ends_nothing(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    boss.tasks("1", "2")
    pull.recv_multipart()
    site.component("tech").send_multipart(frames(body("result", SPEC, pid="1")))
    site.until(lambda: site.published[-1].channel == 1)
    gets_nothing(site, pull)


def test_a_task_that_somebody_else_finished_is_not_handed_out(site: Site) -> None:
    """A component that subscribes by itself may be quicker than any worker."""
    boss = Boss(site)
    _, second = boss.tasks("1", "2")
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [1, 0, 0, 0])
    assert site.socket(zmq.PULL, PORT).recv_multipart() == second


def test_a_result_ends_all_tasks_of_its_id(site: Site) -> None:
    boss = Boss(site)
    boss.tasks("1", "1", "2")
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [1, 0, 0, 0])


def test_a_task_and_its_result_in_one_batch_leave_nothing(site: Site) -> None:
    component = site.component()
    release = site.hold_commits()
    for _ in range(2):
        component.send_multipart(frames(body("config", SPEC, id="1")))
        component.send_multipart(frames(body("result", SPEC, pid="1")))
    node = site.node
    site.until(lambda: len(node._pending) + sum(len(batch.requests) for batch in node._in_flight) == 4)
    release()
    site.until(lambda: len(site.published) == 4)
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


def test_an_answer_to_nothing_changes_nothing(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    boss.answer("unknown")
    boss.answer("")
    assert boss.tasks("1") == [pull.recv_multipart()]


# Workers that go.


def test_the_task_of_a_worker_that_leaves_goes_to_another_at_once(site: Site) -> None:
    leaving, staying, boss = worker(site), worker(site), Boss(site)
    first, second = boss.tasks("1", "2")
    assert leaving.recv_multipart() == first
    assert staying.recv_multipart() == second
    leaving.close(0)
    site.until(lambda: site.counts_now(QUEUE) == [1, 0, 1, 0])
    boss.answer("2")
    assert staying.recv_multipart() == first
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


WORKER = """
import sys, zmq
pull = zmq.Context().socket(zmq.PULL)
pull.connect(f"tcp://127.0.0.1:{sys.argv[1]}")
while True:
    print(pull.recv_multipart()[0].decode(), flush=True)
"""


def test_one_worker_busy_and_one_killed_and_no_task_is_lost(site: Site) -> None:
    """Killed as a process is, amid its task."""
    busy, boss = worker(site), Boss(site)
    (long_one,) = boss.tasks("long")
    assert busy.recv_multipart() == long_one
    victim = subprocess.Popen([sys.executable, "-c", WORKER, str(site.ports[PORT])], stdout=subprocess.PIPE)
    try:
        (task,) = boss.tasks("1")
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == task[0]
        os.kill(victim.pid, signal.SIGKILL)
        site.until(lambda: site.counts_now(QUEUE) == [1, 0, 1, 0])
        gets_nothing(site, busy)
        boss.answer("long")
        assert busy.recv_multipart() == task
    finally:
        victim.kill()
        victim.wait()
        if victim.stdout is not None:
            victim.stdout.close()


def test_a_silent_worker_s_task_goes_to_another_and_it_gets_no_more_until_it_has_finished() -> None:
    with running(connections=f"{SPEC}=0", task_timeout_ms=200) as site:
        silent, boss = worker(site), Boss(site)
        (task,) = boss.tasks("1")
        assert silent.recv_multipart() == task
        other = site.socket(zmq.PULL, PORT)
        assert other.recv_multipart() == task
        boss.answer("1")
        site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])
        site.until(lambda: waiting(site) == 2)
        sent = boss.tasks("2", "3")
        assert sorted([silent.recv_multipart(), other.recv_multipart()]) == sent


def test_a_silent_worker_gets_no_more_while_it_is_silent() -> None:
    with running(connections=f"{SPEC}=0", task_timeout_ms=100) as site:
        silent, boss = worker(site), Boss(site)
        boss.tasks("1")
        silent.recv_multipart()
        site.until(lambda: site.counts_now(QUEUE) == [1, 0, 0, 0])
        gets_nothing(site, silent)
        silent.close(0)
        again = site.socket(zmq.PULL, PORT)
        assert again.recv_multipart()[0].startswith(b"config:example_calculator:1:")


def test_a_worker_that_gives_no_sign_of_life_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.peers.PING_EVERY_S", 0.05)
    with socket.create_connection(("127.0.0.1", site.ports[PORT]), timeout=10) as mute:
        mute.recv(64)
        assert mute.recv(1) == b"", "without a handshake it is closed"


def test_a_worker_is_pinged_and_its_answers_are_signs_of_life(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.peers.PING_EVERY_S", 0.02)
    monkeypatch.setattr("penstock.doors.monique.peers.PINGS_UNANSWERED_MAX", 10_000)
    pull, boss = worker(site), Boss(site)
    (connection,) = site.server.doors[-1]._controller._benches[SPEC].workers  # type: ignore[attr-defined]
    pings: list[None] = []
    send_ping = connection._codec.send_ping
    connection._codec.send_ping = lambda: (pings.append(None), send_ping())
    site.until(lambda: len(pings) > 10 and connection._pings_unanswered == 0)
    assert boss.tasks("1") == [pull.recv_multipart()]


def test_a_worker_whose_pings_stay_unanswered_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.peers.PING_EVERY_S", 0.02)
    boss = Boss(site)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL"
    with socket.create_connection(("127.0.0.1", site.ports[PORT]), timeout=10) as dead:
        dead.sendall(greeting + bytes((4, len(ready))) + ready)
        boss.tasks("1")
        received = b""
        while piece := dead.recv(1000):
            received += piece
    assert b"config:example_calculator:1:" in received
    site.until(lambda: site.counts_now(QUEUE) == [1, 0, 0, 0])


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x01" + bytes(53), bytes(100)])
def test_who_is_no_worker_is_turned_away_and_harms_nobody(site: Site, junk: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.ports[PORT]), timeout=10) as stranger:
        stranger.sendall(junk)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(1000):
                pass
    pull, boss = worker(site), Boss(site)
    assert boss.tasks("1") == [pull.recv_multipart()]


# What lasts.


def test_tasks_survive_a_restart_of_the_node_and_are_ended_after_it(tmp_path: Path) -> None:
    site = Site(settings(data_dir=str(tmp_path), connections=f"{SPEC}=0"), in_memory=False)
    pull, boss = worker(site), Boss(site)
    first, second = boss.tasks("1", "2")
    assert pull.recv_multipart() == first
    site.stop()
    site = Site(settings(data_dir=str(tmp_path), connections=f"{SPEC}=0"), in_memory=False)
    site.until(lambda: site.counts_now(QUEUE) == [2, 0, 0, 0])
    boss = Boss(site)
    boss.answer("1")  # by the worker that had it when the node went down
    site.until(lambda: site.counts_now(QUEUE) == [1, 0, 0, 0])
    assert site.socket(zmq.PULL, PORT).recv_multipart() == second
    site.stop()


def test_a_binding_that_is_not_in_the_settings_any_more_is_paused_and_its_queue_kept(tmp_path: Path) -> None:
    def life(connections: str, task: str) -> tuple[bool, list[int]]:
        """Publish a task in a life of the node; whether the binding was paused, and what its queue held then."""
        site = Site(settings(data_dir=str(tmp_path), connections=connections), in_memory=False)
        Boss(site).tasks(task)
        paused = site.call(lambda: site.node.engine.state.bindings[QUEUE].paused)
        counts = site.counts(QUEUE)
        site.stop()
        return paused, counts

    assert life(f"{SPEC}=0", "1") == (False, [1, 0, 0, 0])
    assert life("", "2") == (True, [1, 0, 0, 0])
    assert life(f"{SPEC}=0", "3") == (False, [2, 0, 0, 0])


def test_a_queue_that_is_deleted_comes_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.worker._RETRY_S", 0.02)
    pull, boss = worker(site), Boss(site)
    for number in "abc":
        assert boss.tasks(number) == [pull.recv_multipart()]
        boss.answer(number)
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0] and waiting(site) == 1)
    perform(site, c.DeleteQueue(QUEUE))
    site.until(lambda: QUEUE not in site.node.engine.state.by_name)
    site.run(site.server.doors[-1]._controller.keep_up(None))  # type: ignore[attr-defined]
    site.until(lambda: waiting(site) == 1)
    assert boss.tasks("1") == [pull.recv_multipart()]
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


@pytest.mark.parametrize("headers", [{}, {"channel": "0"}, {"other": "x"}])
def test_a_task_may_be_put_by_another_door(site: Site, headers: dict[str, str]) -> None:
    """Its body tells its tag."""
    pull, boss, task = worker(site), Boss(site), body("config", SPEC)
    options = c.Options(headers=msgspec.Raw(c.encode(headers))) if headers else None
    perform(site, c.Put(QUEUE, [c.Item(0, encode_body(task), options)]))
    assert pull.recv_multipart() == frames(task)
    boss.answer(task.id)
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])


@pytest.mark.parametrize("headers", [{}, {"tag": "no tag", "channel": "0"}, {"tag": "config:a:b::c", "channel": "x"}])
def test_a_record_that_is_no_task_is_buried(site: Site, headers: dict[str, str]) -> None:
    """Somebody may put whatever he likes into the queue; it is not lost, but is not for workers."""
    options = c.Options(headers=msgspec.Raw(c.encode(headers))) if headers else None
    perform(site, c.Put(QUEUE, [c.Item(0, b"no task", options)]))
    pull, boss = site.socket(zmq.PULL, PORT), Boss(site)
    assert boss.tasks("1") == [pull.recv_multipart()]
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 1])


def test_a_task_that_its_queue_cannot_take_is_refused(site: Site) -> None:
    """Nobody is told that a message is published which its queue does not have."""
    perform(site, c.ChangeQueue(QUEUE, c.QueueChanges(size_max=1)))
    boss = Boss(site)
    boss.tasks("1")
    answer = boss.client.ask(g.PushToMq(b"config:example_calculator:2::me", b"x"))
    assert isinstance(answer, g.ErrorReply)
    assert "config:example_calculator:2::me was not published" in answer.text
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])
    boss.tasks("2")


def test_a_finished_task_counts_as_acknowledged(site: Site) -> None:
    pull, boss = worker(site), Boss(site)
    boss.tasks("1", "2")
    pull.recv_multipart()
    boss.answer("2")
    boss.answer("1")
    site.until(lambda: site.counts_now(QUEUE) == [0, 0, 0, 0])
    totals = site.call(lambda: site.node.engine.state.by_name[QUEUE].totals)
    assert (totals.put, totals.acked, totals.ended_otherwise) == (2, 2, 0)


def test_records_that_end_otherwise_are_forgotten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.tasks._SPARE", 5)
    boss = Boss(site)
    index = site.server.doors[-1]._controller._benches[SPEC].tasks  # type: ignore[attr-defined]
    boss.tasks(*map(str, range(20)))
    assert len(index) == 20
    perform(site, c.Purge(QUEUE))
    boss.tasks("new")
    site.until(lambda: len(index) == 1)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("example_calculator", "monique/example_calculator"),
        ("two words", "monique/two%20words"),
        ("100%", "monique/100%25"),
        ("спека", "monique/%D1%81%D0%BF%D0%B5%D0%BA%D0%B0"),
        ("", None),
        ("x" * 300, None),
    ],
)
def test_a_spec_names_its_queue(spec: str, name: str | None) -> None:
    assert queue_name(spec) == name


# Records of other protocols.


def odd_body(number: int) -> bytes:
    """A body with a further key of many objects, and bytes behind it, as another program may put it."""
    plain = encode_body(body(id=str(number)))
    further = msgspec.msgpack.encode("alphabet") + msgspec.msgpack.encode([None] * 2_000)
    return bytes((plain[0] + 1,)) + further + plain[1:] + b"rest"


def slices_while(site: Site, act: Callable[[], None]) -> list[int]:
    """How many records were read in each turn, until all are known."""
    (bench,) = site.server.doors[-1]._controller._benches.values()  # type: ignore[attr-defined]
    slices: list[int] = []

    def watch() -> None:
        note, catch_up = bench.tasks._note, bench.tasks.catch_up

        def counted_note(record: Record) -> int:
            slices[-1] += 1
            found: int = note(record)
            return found

        def counted_catch_up() -> bool:
            slices.append(0)
            found: bool = catch_up()
            return found

        bench.tasks._note, bench.tasks.catch_up = counted_note, counted_catch_up

    site.call(watch)
    act()
    site.until(lambda: not bench.reading and not site.node._pending and not site.node._in_flight)
    return slices


def test_records_of_other_protocols_are_read_in_slices_and_all_are_found(site: Site) -> None:
    items = [c.Item(0, odd_body(number)) for number in range(3_000)]
    slices = slices_while(site, lambda: perform(site, c.Put(QUEUE, items)))
    assert sum(slices) == len(items)
    assert max(slices) <= 1_000
    Boss(site).answer("2999")
    site.until(lambda: sum(site.counts_now(QUEUE)) == len(items) - 1)


def test_a_task_that_ends_before_its_record_was_read_ends_nevertheless(site: Site) -> None:
    boss = Boss(site)
    release = site.hold_commits()
    perform(site, c.Put(QUEUE, [c.Item(0, odd_body(number)) for number in range(3_000)]))
    answer = body("result", SPEC, pid="2999")
    boss.client.send(g.PushToMq(answer.tag.encode(), encode_body(answer)))
    site.until(lambda: site.node._pending or len(site.node._in_flight) > 1)
    release()
    site.until(lambda: sum(site.counts_now(QUEUE)) == 2_999)
