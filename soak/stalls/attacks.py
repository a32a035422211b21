"""What one client can do to a node. Each attack once made all other clients wait.

An attack gets the node's ports. What it needs it prepares itself, in ``prepare``, which is not measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.engine import commands as c
from penstock.engine.answers import Taken
from penstock.wire.monique import gateway
from penstock.wire.native import messages as m
from soak.client import Connection, ConnectionGone, encode_request

Ports = dict[str, int]
Step = Callable[[Ports], None]

_MANY: Final = 10_000
_BACKLOG: Final = 200_000


class Attack(NamedTuple):
    """One way to make others wait."""

    name: str
    run: Step
    prepare: Step = lambda _ports: None


def _connect(ports: Ports) -> Connection:
    return Connection(ports["taskflux.port"])


def _flood(connection: Connection, requests: list[Any]) -> None:
    """Send all requests at once, and read what comes until each is answered."""
    data = b"".join(encode_request(number, args) for number, args in enumerate(requests, 1))
    sending = threading.Thread(target=_send, args=(connection, data))
    sending.start()
    unanswered = len(requests)
    while unanswered:
        status, _, _ = connection.receive()
        unanswered -= status != m.PUSH
    sending.join()


def _send(connection: Connection, data: bytes) -> None:
    try:
        connection.send(data)
    except ConnectionGone:
        return


def _create(connection: Connection, name: str, **settings: Any) -> None:
    connection.ask(c.CreateQueue(name, c.QueueSettings(**settings), if_absent=True))


def _fill(connection: Connection, queue: str, count: int, **options: Any) -> None:
    _create(connection, queue)
    made = c.Options(**options) if options else None
    batch = c.Put(queue, [c.Item(number % 100, b"x" * 20, made) for number in range(1000)])
    _flood(connection, [batch] * (count // 1000))


def _take_all(connection: Connection, queue: str, count: int, lease_ms: int = 3_600_000) -> list[tuple[int, int]]:
    held: list[tuple[int, int]] = []
    while len(held) < count:
        taken: Taken = connection.ask(c.Take(queue, 1000, lease_ms))
        held += [(record.id, taken.token) for record in taken.records]
    return held


def _fill_queue(queue: str, count: int = _BACKLOG, **options: Any) -> Step:
    def prepare(ports: Ports) -> None:
        with _connect(ports) as connection:
            _fill(connection, queue, count, **options)

    return prepare


def _send_flood(make: Callable[[], list[Any]]) -> Step:
    def run(ports: Ports) -> None:
        with _connect(ports) as connection:
            _flood(connection, make())

    return run


def _lease_the_head(ports: Ports) -> None:
    with _connect(ports) as connection:
        _fill(connection, "head", _MANY)
        _take_all(connection, "head", _MANY)
        connection.ask(c.Put("head", [c.Item(0, b"last")]))


def _ack_beside_subscriptions(ports: Ports) -> None:
    with _connect(ports) as connection:
        _fill(connection, "subscribed", _MANY)
        held = _take_all(connection, "subscribed", _MANY)
        _flood(connection, [m.Subscribe("subscribed", 1)] * 1000)
        acks = [c.Ack("subscribed", [(record_id, token + 1) for record_id, token in held])] * 20
        _flood(connection, acks)


def _make_queues(ports: Ports) -> None:
    with _connect(ports) as connection:
        _flood(connection, [c.CreateQueue(f"one-of-many-{number}", c.QueueSettings()) for number in range(9_900)])


def _drop_queues(ports: Ports) -> None:
    with _connect(ports) as connection:
        _flood(connection, [c.DeleteQueue(f"one-of-many-{number}") for number in range(9_900)])


def _bind(ports: Ports) -> None:
    with _connect(ports) as connection:
        _create(connection, "bound")
        _flood(connection, [c.Bind(f"binding-{number}", "stalls", "", "bound") for number in range(_MANY)])


def _unbind(ports: Ports) -> None:
    with _connect(ports) as connection:
        _flood(connection, [c.Unbind(f"binding-{number}") for number in range(_MANY)])


def _due_at_once(ports: Ports) -> None:
    with _connect(ports) as connection:
        due_us = connection.ask(m.Status()).log_time_us + 4_000_000
        _fill(connection, "due", _BACKLOG, available_at_us=due_us)
        while connection.ask(m.ShowQueue("due")).delayed:
            time.sleep(0.2)


def _leases_end_at_once(ports: Ports) -> None:
    with _connect(ports) as connection:
        _fill(connection, "leased", _BACKLOG)
        _take_all(connection, "leased", 50_000, lease_ms=3_000)
        while connection.ask(m.ShowQueue("leased")).leased:
            time.sleep(0.2)


def _owner_leaves(ports: Ports) -> None:
    with _connect(ports) as connection:
        _fill(connection, "owned", _MANY)
        _take_all(connection, "owned", _MANY, lease_ms=0)
    with _connect(ports) as connection:
        while connection.ask(m.ShowQueue("owned")).leased:
            time.sleep(0.2)


def _stage_and_publish(ports: Ports) -> None:
    with _connect(ports) as connection:
        _create(connection, "staged")
        parts = [c.Stage("stalls", 1, 0, 1, part, [("staged", [c.Item(0, b"x")] * 1000)]) for part in range(100)]
        _flood(connection, parts)
        _flood(connection, [c.Publish("stalls", 1, [(0, 1)])])
        attempts = [c.Stage("stalls", 2, number, 1, 0, [("staged", [c.Item(0, b"x")])]) for number in range(_MANY)]
        _flood(connection, attempts)
        _flood(connection, [c.Abort("stalls", 2)])


def _wait_for_news(ports: Ports) -> None:
    with _connect(ports) as waiting, _connect(ports) as putting:
        last = putting.ask(m.Latest()).applied_index
        data = b"".join(encode_request(number, m.Latest(last + 1000, 2_000)) for number in range(1, 20_001))
        sending = threading.Thread(target=_send, args=(waiting, data))
        sending.start()
        for _ in range(200):
            putting.ask(c.Put("", [c.Item(0, b"news")]))
        for _ in range(20_000):
            waiting.receive()
        sending.join()


def _snapshot(ports: Ports) -> None:
    with _connect(ports) as connection:
        last = connection.ask(m.Status()).applied_index
        while connection.ask(m.Snapshot(last, 10_000)).index < 0:
            pass


def _odd_body() -> bytes:
    return msgspec.msgpack.encode([[[index] for index in range(2_500)]])


def _odd_bodies_into_the_queue(ports: Ports) -> None:
    with _connect(ports) as connection:
        _create(connection, "monique/spec")
        body = _odd_body()
        _flood(connection, [c.Put("monique/spec", [c.Item(0, body) for _ in range(3_000)])])
        _flood(connection, [c.Purge("monique/spec")])


def _flood_components(ports: Ports) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.1:{ports['monique.com_in_port']}")
        body = _odd_body()
        for number in range(5_000):
            push.send_multipart([b"config:other:%d::me" % number, body])


def _flood_gateway(ports: Ports) -> None:
    from websockets.sync.client import connect

    with connect(
        f"ws://127.0.0.1:{ports['monique.gateway_port']}", additional_headers={"Cookie": "id=stalls"}
    ) as client:
        for number in range(5_000):
            patterns = tuple(gateway.Pattern(f"spec-{number}-{each}", "*") for each in range(2))
            client.send(gateway.encode_request(gateway.Subscribe(patterns)))
        client.send(gateway.encode_request(gateway.Ping(1)))
        while not isinstance(gateway.decode_reply(client.recv()), gateway.Pong):  # type: ignore[arg-type]
            pass


def _flood_etzel(ports: Ports) -> None:
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{ports['etzel.port']}/connect") as client:
        reading = threading.Thread(target=lambda: [client.recv() for _ in range(20_000)])
        reading.start()
        for _ in range(20_000):
            client.send('{"cmd":"PUB","qname":"etzel","msg":"x"}')
        reading.join()


ATTACKS: Final = (
    Attack("200,000 PING", _send_flood(lambda: [m.Ping()] * 200_000)),
    Attack("10,000 SHOW_QUEUE, 10,000 leased", _send_flood(lambda: [m.ShowQueue("head")] * _MANY), _lease_the_head),
    Attack("5,000 BROWSE of a rare state", _send_flood(lambda: [m.Browse("head", 0)] * 5_000)),
    Attack("20 ACK of 10,000, 1,000 subscriptions", _ack_beside_subscriptions),
    Attack("200 LIST_QUEUES of 10,000 queues", _send_flood(lambda: [m.ListQueues()] * 200), _make_queues),
    Attack("delete 10,000 queues", _drop_queues),
    Attack(
        "10 BROADCAST, 10,000 bindings",
        _send_flood(lambda: [c.Broadcast(200, b"t", b"x", "stalls")] * 10),
        _bind,
    ),
    Attack("remove 10,000 bindings", _unbind),
    Attack("20 PUT of 10,000", _send_flood(lambda: [c.Put("", [c.Item(0, b"x")] * _MANY)] * 20)),
    Attack("200,000 messages due at once", _due_at_once),
    Attack("50,000 leases end at once", _leases_end_at_once),
    Attack("10,000 leases of one connection", _owner_leaves),
    Attack("publish 100,000, abort 10,000 attempts", _stage_and_publish),
    Attack("20,000 waiting LATEST, 200 puts", _wait_for_news),
    Attack("snapshot of what is there", _snapshot),
    Attack("purge 200,000", _send_flood(lambda: [c.Purge("purged")]), _fill_queue("purged")),
    Attack("delete a queue of 200,000", _send_flood(lambda: [c.DeleteQueue("gone")]), _fill_queue("gone")),
    Attack("3,000 odd bodies for the controller", _odd_bodies_into_the_queue),
    Attack("5,000 odd messages by ZeroMQ", _flood_components),
    Attack("5,000 gateway subscribes", _flood_gateway),
    Attack("20,000 Etzel PUB", _flood_etzel),
)
