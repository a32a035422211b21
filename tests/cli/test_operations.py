"""Every operation of the engine and of the native protocol can be reached from the command line.

Not by a list of names: the commands are run, and what they send is written down.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.protocol import Call, Session
from penstock.client.sync import Client
from penstock.engine import commands as c
from penstock.wire.native import messages as m
from tests.cli.support import Command

SPARKS_OWN = {m.CUT_JOURNAL, m.SNAPSHOT, m.READ_SNAPSHOT}
EXPECTED = {*c.TYPES, *m.REQUESTS} - c.INTERNAL_OPS - {m.HELLO} - SPARKS_OWN
"""Hello is said by every connection; the internal ones only the leader itself may propose; Spark's own are sent where
its tasks are planned and run, and tests/spark shows that they are.
"""


class Recorder:
    """Writes down the operations that clients send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: set[int] = set()
        before = Session.call

        def call(session: Session, request: Any, waiter: Any, **options: Any) -> Call:
            if waiter is not None:  # what the client asks of its own accord, nobody waits for
                self.sent.add(m.CODES[type(request)])
            return before(session, request, waiter, **options)

        monkeypatch.setattr(Session, "call", call)

    def of(self, penstock: Command, *args: str, input: str | None = None) -> set[int]:
        """What one command sends."""
        self.sent.clear()
        penstock(*args, input=input)
        return self.sent - {m.HELLO}


def test_every_operation_can_be_reached(
    penstock: Command, client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queue(queue).put_many([str(number) for number in range(10)])
    client.queue(f"{queue}-2").create()
    one, two, three, four = (f"{each.id}:{each.token}" for each in client.queue(queue).take_many(4))
    recorder = Recorder(monkeypatch)
    commands: list[tuple[int, list[str], str | None]] = [
        (c.CREATE_QUEUE, ["queue", "create", f"{queue}-3"], None),
        (c.CHANGE_QUEUE, ["queue", "set", queue, "--lease", "30s"], None),
        (c.DELETE_QUEUE, ["queue", "delete", f"{queue}-3", "--yes"], None),
        (c.PUT, ["put", queue, "x"], None),
        (c.PUT_MANY, ["put", queue, "--atomic"], "x\ny\n"),
        (c.TAKE, ["take", queue], None),
        (c.ACK, ["ack", queue, one], None),
        (c.ACK_TAKE, ["ack", queue, two, "--take"], None),
        (c.RETURN, ["nack", queue, three], None),
        (c.EXTEND, ["extend", queue, four, "--lease", "1m"], None),
        (c.BURY, ["bury", queue, "10"], None),
        (c.KICK, ["kick", queue, "--all"], None),
        (c.EDIT, ["edit", queue, "10", "--key", "1"], None),
        (c.DELETE, ["delete", queue, "9"], None),
        (c.MOVE, ["move", queue, "10", "--to", f"{queue}-2"], None),
        (c.PURGE, ["queue", "purge", queue, "--yes"], None),
        (c.PAUSE, ["queue", "resume", queue], None),
        (c.STAGE, ["staging", "stage", queue, "1", queue], "x\n"),
        (m.LIST_STAGED, ["staging", "list"], None),
        (c.PUBLISH, ["staging", "publish", queue, "1", "0:0"], None),
        (c.ABORT, ["staging", "abort", queue, "2"], None),
        (c.BIND, ["bind", queue, queue, "--spec", queue], None),
        (c.BROADCAST, ["broadcast", "hello", "--spec", queue], None),
        (m.LIST_BINDINGS, ["bindings"], None),
        (c.UNBIND, ["unbind", queue], None),
        (m.LIST_QUEUES, ["queue", "list"], None),
        (m.SHOW_QUEUE, ["queue", "show", queue], None),
        (m.PEEK, ["peek", queue], None),
        (m.BROWSE, ["browse", queue], None),
        (m.GET, ["get", f"{queue}-2", "1"], None),
        (m.HISTORY, ["history", queue, "1"], None),
        (m.LATEST, ["events"], None),
        (m.READ_JOURNAL, ["events", "--queue", queue], None),
        (m.QUEUE_NAMES, ["events"], None),
        (m.FIND_TIME, ["events", "--since", "2020-01-01T00:00Z"], None),
        (m.STATUS, ["status"], None),
        (m.PING, ["ping"], None),
        (m.SUBSCRIBE, ["take", queue, "--follow", "--ack", "--count", "1"], None),
        (m.UNSUBSCRIBE, ["take", queue, "--follow", "--ack", "--count", "1"], None),
    ]
    for operation, args, text in commands:
        assert operation in recorder.of(penstock, *args, input=text), args
    penstock("staging", "stage", f"{queue}-writer", "1", f"{queue}-2", input="x\n")
    penstock("staging", "publish", f"{queue}-writer", "1", "0:0")
    staged_id = max(record.id for record in client.queue(f"{queue}-2").browse())
    job = client.queue(queue).redrive(f"{queue}-2", rate_per_s=1)
    assert {c.CANCEL_JOB} == recorder.of(penstock, "jobs", "cancel", str(job))
    assert {m.LIST_JOBS} == recorder.of(penstock, "jobs")
    assert c.REDRIVE in recorder.of(penstock, "redrive", queue, "--to", f"{queue}-2")
    published = client.queue(f"{queue}-2").history(staged_id)[0]  # its payload lies in the entry that staged it
    assert m.READ_ENTRIES in recorder.of(penstock, "events", "--json", "--from", str(published.index))
    tried = {operation for operation, _, _ in commands} | {c.CANCEL_JOB, m.LIST_JOBS, c.REDRIVE, m.READ_ENTRIES}
    assert tried == EXPECTED


# What the smaller groups say.


def test_topics(penstock: Command, client: Client, queue: str) -> None:
    assert penstock("bind", f"{queue}-b", queue, "--type", "alarm", "--timeout", "5m").stdout.endswith(f"{queue}\n")
    assert penstock("broadcast", "fire", "--type", "alarm", "--tag", "t").stdout == "sent; copied into 1 queues\n"
    assert penstock.json("broadcast", "calm", "--type", "news") == [{"copies": 0}]
    (record,) = client.queue(queue).peek()
    assert (record.payload, record.headers) == (b"fire", {"tag": "t", "channel": "0"})
    (row,) = [line.split() for line in penstock("bindings").stdout.splitlines() if line.startswith(f"{queue}-b ")]
    assert row == [f"{queue}-b", "any", "alarm", "5", "m", "active", queue]
    (document,) = [each for each in penstock.json("bindings") if each["name"] == f"{queue}-b"]
    assert (document["type"], document["timeout_ms"], document["paused"]) == ("alarm", 300_000, False)
    penstock("unbind", f"{queue}-b")
    assert "NO_SUCH_BINDING" in penstock("unbind", f"{queue}-b", code=4).stderr


def test_a_batch_is_published_once(penstock: Command, client: Client, queue: str) -> None:
    stage = ["staging", "stage", f"writer-{queue}", "7", queue, "--partition", "1", "--attempt", "2", "--key", "3"]
    assert penstock(*stage, input="a\nb\n").stdout == "staged 2\n"
    assert penstock(*stage, input="a\nb\n").stdout == "staged nothing new\n"
    assert client.queue(queue).info().ready == 0
    publish = ["staging", "publish", f"writer-{queue}", "7", "1:2"]
    assert penstock(*publish).stdout == "published 2\n"
    assert penstock(*publish).stdout == "was published before; nothing was added\n"
    assert [(record.payload, record.key) for record in client.queue(queue).peek(5)] == [(b"a", 3), (b"b", 3)]


def test_a_last_batch_is_published_and_its_writer_forgotten(penstock: Command, client: Client, queue: str) -> None:
    writer = [f"writer-{queue}", "0"]
    penstock("staging", "stage", *writer, queue, "--last", input="a\n")
    assert penstock("staging", "publish", *writer, "0:0", "--last").stdout == "published 1\n"
    assert "BATCH_NOT_STAGED" in penstock("staging", "publish", *writer, "0:0", "--last", code=4).stderr
    assert client.queue(queue).info().ready == 1


def test_an_aborted_batch_cannot_be_published(penstock: Command, queue: str) -> None:
    penstock("staging", "stage", f"writer-{queue}", "1", queue, input="a\n")
    assert penstock("staging", "abort", f"writer-{queue}", "1").stdout == "batch 1 is dropped\n"
    assert "BATCH_NOT_STAGED" in penstock("staging", "publish", f"writer-{queue}", "1", "0:0", code=4).stderr


def test_status_and_ping(penstock: Command) -> None:
    assert "mode            durable\n" in penstock("status").stdout
    (document,) = penstock.json("status")
    assert set(document) == {*m.NodeStatus.__struct_fields__, "log_time"} - {"log_time_us"}
    assert penstock("ping").stdout.startswith("answered in ")
    assert penstock.json("ping")[0]["seconds"] > 0
