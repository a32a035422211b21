"""Etzel: JSON by hand in the text frames of a real WebSocket client."""

from __future__ import annotations

import base64
import json
from typing import Any

from websockets.sync.client import connect

from tests.conformance.driving import Closing, Door, Refused, Taken, Worker, unsaid_unless
from tests.conformance.hosting import WITHIN_S, Hosted

PORT = "etzel.port"
TIMEOUT_S = 60.0
"""After so long a message that was fetched comes back, if nothing else was said when it was published."""


class Conversation(Closing):
    """One connection: a request, its reply. What is pushed meanwhile is counted."""

    def __init__(self, hosted: Hosted) -> None:
        address = f"ws://127.0.0.1:{hosted.port(PORT)}/connect"
        opening = connect(address, max_size=None, proxy=None, compression=None, open_timeout=WITHIN_S)
        self._socket = opening.__enter__()  # left without its closing handshake: see `leave`
        self.awoken = 0

    def hear(self) -> dict[str, Any]:
        """The next frame, whatever it is."""
        reply: dict[str, Any] = json.loads(self._socket.recv(WITHIN_S))
        return reply

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its reply. Raises Refused."""
        self._socket.send(json.dumps(request))
        while (reply := self.hear())["cmd"] == "awk":
            self.awoken += 1
        if reply["cmd"] == "nok":
            raise Refused(reply["err"])
        return reply

    def leave(self) -> None:
        # No closing handshake: the client goes as one that crashes.
        self._socket.close_socket()


class EtzelWorker(Conversation, Worker):
    """Subscribes, fetches, and sleeps where it is told to wait."""

    def __init__(self, hosted: Hosted, queue: str) -> None:
        super().__init__(hosted)
        self._queue = queue
        self._waits = False
        self.ask(cmd="SUB", qname=queue)

    def take(self) -> Taken:
        while self._waits and not self.awoken:
            assert self.hear()["cmd"] == "awk"
            self.awoken += 1
        self._waits = False
        reply = self.ask(cmd="FET", qname=self._queue)
        assert reply["cmd"] == "msg", "there was nothing to take"
        payload = base64.b64decode(reply["msg"]) if reply.get("encoding") == "base64" else reply["msg"].encode()
        return Taken(payload, reply["uid"], None, reply["uid"], reply["error_count"] + 1)

    def finds_nothing(self) -> None:
        assert self.ask(cmd="FET", qname=self._queue)["cmd"] == "nomsg"

    def wait(self) -> None:
        self.finds_nothing()
        self.awoken = 0
        assert self.ask(cmd="ISLP", qname=self._queue)["cmd"] == "okslp"
        self._waits = True

    def ack(self, taken: Taken) -> None:
        reply = self.ask(cmd="ACK", qname=self._queue, uid=taken.handle)
        assert reply == {"cmd": "okack", "uid": taken.handle, "qname": self._queue}


class EtzelDoor(Door):
    """The Etzel protocol."""

    name = "etzel"
    title = "Etzel"
    lease_s = TIMEOUT_S
    returns_to_tail = True
    waits_for_queues = True

    def put(self, queue: str, payload: bytes, *, key: int = 0, delay_s: float = 0, expires_s: float = 0) -> None:
        request: dict[str, Any] = {"cmd": "PUB", "qname": queue, "delay": delay_s, "expires": expires_s}
        if key:
            request["priority"] = key
        try:
            request["msg"] = payload.decode()
        except UnicodeDecodeError:
            request |= {"msg": base64.b64encode(payload).decode(), "encoding": "base64"}
        with Conversation(self.hosted) as conversation:
            assert conversation.ask(**request) == {"cmd": "ok"}

    def worker(self, queue: str, *, bound: bool | None = None) -> EtzelWorker:
        unsaid_unless(bound is not True, "a lease that ends with its connection")
        return self._stack.enter_context(EtzelWorker(self.hosted, queue))

    def ack_elsewhere(self, queue: str, taken: Taken) -> None:
        self.worker(queue).ack(taken)

    def again(self, worker: Worker, taken: Taken) -> str:
        worker.ack(taken)
        return "okack"

    def late(self, worker: Worker, taken: Taken) -> tuple[str, bool]:
        worker.ack(taken)
        return "okack", True
