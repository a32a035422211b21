"""A small shop at work, through all doors at once: something to look at in the tables of the data pipeline.

Orders come by the SDK, some fail and end as dead letters; images are scaled by TaskFlux workers; mails go through
Etzel; prices are calculated by a MoniQue component, now and then with an error. All go on for the seconds that are
given.

Run a node (`make run`), then: python examples/all_doors.py --seconds 60
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from websockets.sync.client import ClientConnection as WebSocket
from websockets.sync.client import connect

import penstock
from penstock.wire.taskflux import NEED_DATA, ClientConnection
from penstock.wire.taskflux import messages as taskflux

URL = os.environ.get("PENSTOCK_URL", penstock.DEFAULT_URL)
ORDERS, FAILED_ORDERS, IMAGES, MAILS, PRICES = "orders", "orders-failed", "images", "mails", "shop_prices"
PAUSE_S = 0.02
"""Between one message of a door and the next, on average."""


class Shift:
    """What all share: when to stop, and how much was done."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.done: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        """Whether it is time to go home."""
        return time.monotonic() >= self._until_s

    def __iter__(self) -> Iterator[int]:
        """Numbers, one after the other at a natural pace, until the shift is over."""
        number = 0
        while not self.is_over:
            yield number
            number += 1
            time.sleep(random.expovariate(1 / PAUSE_S))

    def count(self, what: str) -> None:
        """One more of these is done."""
        with self._lock:
            self.done[what] = self.done.get(what, 0) + 1


# Penstock's own protocol: priorities, retries, dead letters.


def orders(shift: Shift) -> None:
    """Orders of three priorities; one in twenty fails each time it is tried, and ends as a dead letter."""
    with penstock.connect_sync(URL) as client:
        client.queue(FAILED_ORDERS).create(if_absent=True)
        queue = client.queue(ORDERS)
        queue.create(if_absent=True, deliveries_max=3, dead_letter=FAILED_ORDERS)
        for number in shift:
            queue.put(json.dumps({"order": number}), key=random.choice((1, 10, 10, 100)))
            shift.count("orders taken in")
            message = queue.take(lease=30)
            if message is None:
                continue
            if json.loads(message.payload)["order"] % 20 == 7:
                message.nack()
            else:
                message.ack()
                shift.count("orders done")


# TaskFlux: binary over TCP, a request and its answer.


def images(shift: Shift) -> None:
    """Images to be scaled, each in two steps as the protocol wants it: said, then acknowledged."""
    host, _, port = URL.removeprefix("penstock://").partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        codec = ClientConnection()

        def ask(request: Any) -> Any:
            connection.sendall(codec.send(request))
            while (reply := codec.next_event()) is NEED_DATA:
                codec.receive_data(connection.recv(65536))
            return reply

        ask(taskflux.AuthorizationRequest())
        ask(taskflux.BootstrapRequest())
        ask(taskflux.CreateQueue(IMAGES.encode()))
        for number in shift:
            ask(taskflux.Enqueue(IMAGES.encode(), number % 5, b"image %d" % number))
            ask(taskflux.Acknowledge())
            shift.count("images taken in")
            if number % 10 and isinstance(ask(taskflux.Dequeue(IMAGES.encode())), taskflux.DequeueResult):
                ask(taskflux.Acknowledge())
                shift.count("images scaled")


# Etzel: JSON over WebSocket.


def mails(port: int) -> Callable[[Shift], None]:
    """Mails, one in ten of them later."""

    def work(shift: Shift) -> None:
        with connect(f"ws://127.0.0.1:{port}/connect", proxy=None) as connection:

            def ask(**request: Any) -> dict[str, Any]:
                connection.send(json.dumps(request))
                while (reply := json.loads(connection.recv()))["cmd"] == "awk":
                    pass
                return dict(reply)

            ask(cmd="SUB", qname=MAILS)
            for number in shift:
                ask(cmd="PUB", qname=MAILS, msg=f"dear customer {number}", delay=0 if number % 10 else 2)
                shift.count("mails taken in")
                mail = ask(cmd="FET", qname=MAILS)
                if mail["cmd"] == "msg":
                    ask(cmd="ACK", qname=MAILS, uid=mail["uid"])
                    shift.count("mails sent")

    return work


# MoniQue: MessagePack over WebSocket. One side asks for prices, the other calculates them.


def ask_for_prices(port: int) -> Callable[[Shift], None]:
    """Tasks, each for a price."""

    def work(shift: Shift) -> None:
        with gateway(port) as connection:
            for number in shift:
                push(connection, "config", "", json.dumps({"article": number}).encode(), "shop")
                connection.recv()  # that it was taken in; answers that nobody reads would fill the connection
                shift.count("prices asked for")

    return work


def calculate_prices(port: int) -> Callable[[Shift], None]:
    """Answers to them; one in fifteen is an error."""

    def work(shift: Shift) -> None:
        with gateway(port) as connection:
            send(connection, "subscribe", [{"spec": PRICES, "type": "config"}])
            while not shift.is_over:
                try:
                    received = msgspec.msgpack.decode(connection.recv(timeout=0.5))
                except TimeoutError:
                    continue
                if received["command"] != "pushed_from_mq":
                    continue
                task = msgspec.msgpack.decode(received["data"]["message"])
                if json.loads(task["data"])["article"] % 15 == 14:
                    push(connection, "error", task["id"], b'{"code": 502, "message": "no such article"}', "calculator")
                else:
                    push(connection, "result", task["id"], b'{"price": 42}', "calculator")
                shift.count("prices calculated")

    return work


@contextmanager
def gateway(port: int) -> Iterator[WebSocket]:
    """A connection to MoniQue's gateway, which wants a cookie."""
    with connect(f"ws://127.0.0.1:{port}/", proxy=None, additional_headers={"Cookie": "id=shop"}) as connection:
        yield connection


def send(connection: WebSocket, command: str, data: object) -> None:
    """Send one of the gateway's commands."""
    connection.send(msgspec.msgpack.encode({"command": command, "data": data}))


def push(connection: WebSocket, type: str, pid: str, data: bytes, creator: str) -> None:
    """Publish a message."""
    body = {
        "id": secrets.token_hex(20),
        "pid": pid,
        "creator": creator,
        "created_at": int(time.time() * 1000),
        "expires_at": 0,
        "spec": PRICES,
        "encoding": "JSON",
        "type": type,
        "data": data,
    }
    tag = f"{type}:{PRICES}:{body['id']}:{pid}:{creator}"
    send(connection, "push_to_mq", {"message": msgspec.msgpack.encode(body), "tag": tag})


def main() -> None:
    """Let all work for a while, then tell what was done."""
    parser = argparse.ArgumentParser(description="Work through all doors of a node for a while.")
    parser.add_argument("--seconds", type=float, default=30, help="how long (default 30)")
    parser.add_argument("--etzel-port", type=int, default=8080)
    parser.add_argument("--gateway-port", type=int, default=9160)
    given = parser.parse_args()
    shift = Shift(given.seconds)
    sides = [
        orders,
        images,
        mails(given.etzel_port),
        ask_for_prices(given.gateway_port),
        calculate_prices(given.gateway_port),
    ]
    threads = [threading.Thread(target=side, args=(shift,)) for side in sides]
    print(f"working for {given.seconds:g} seconds ...")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for what, count in sorted(shift.done.items()):
        print(f"  {count:>6}  {what}")


if __name__ == "__main__":
    main()
