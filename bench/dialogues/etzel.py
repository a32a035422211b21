"""Etzel: JSON in WebSocket text frames. PUB in a window, FET with ACK in a window, and workers that sleep."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from bench.dialogues.shapes import PAYLOAD, Ring
from bench.dialogues.websocket import MessageReader, client_frame
from bench.dialogues.websocket import greet as greet_websocket
from bench.errors import UnexpectedAnswer
from bench.load import Dialogue, receive_some

_OK = b'\x81\x0c{"cmd":"ok"}'
_NO_MESSAGE = b'{"cmd":"nomsg"'
_UID = re.compile(rb'\{"cmd":"(?:msg","qname":"[^"]*"|(okack)"),"uid":"([^"]+)"')


def greet(connection: socket.socket) -> None:
    """The handshake of the door."""
    greet_websocket(connection, "/connect")


def request(text: bytes) -> bytes:
    """A request as a frame."""
    return client_frame(text, text=True)


PUB = request(b'{"qname":"","msg":"%s","cmd":"PUB","delay":0,"expires":0}' % PAYLOAD)
"""A publication on the default queue, as the original's client writes it."""
_FET = request(b'{"cmd":"FET","qname":""}')


def put_requests(count: int) -> Ring:
    """Requests that publish a message each."""
    return Ring([PUB] * count)


def ok_counter() -> Callable[[bytes], int]:
    """Counts the answers to publications, all of which must be plain ones."""
    rest = b""

    def count(data: bytes) -> int:
        nonlocal rest
        data = rest + data
        answers = len(data) // len(_OK)
        whole = answers * len(_OK)
        rest = data[whole:]
        if data[:whole] != _OK * answers or not _OK.startswith(rest):
            raise UnexpectedAnswer("PUB", data[:whole].replace(_OK, b"") or rest)
        return answers

    return count


class FetchAndAck(Dialogue):
    """Keeps a window of FETs in flight; each message is acknowledged, and the next FET leaves with that.

    A message is complete when its ACK is answered. It ends when the queue is empty.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self._reader = MessageReader()
        self._empty = False

    def start(self) -> bytes:
        """A whole window."""
        self.waiting = self._window
        return _FET * self._window

    def receive(self, data: bytes) -> bytes:
        """ACK and the next FET for each message."""
        replies: list[bytes] = []
        for answer in self._reader.feed(data):
            found = _UID.match(answer)
            if found is None:
                if not answer.startswith(_NO_MESSAGE):
                    raise UnexpectedAnswer("FET or ACK", answer)
                self._empty = True
                self.waiting -= 1
            elif found[1] is not None:
                self.completed += 1
                self.waiting -= 1
            else:
                replies.append(request(b'{"cmd":"ACK","qname":"","uid":"%s"}' % found[2]))
                if not (self.stopping or self._empty):
                    self.waiting += 1
                    replies.append(_FET)
        self.finished = self.waiting == 0
        return b"".join(replies)


class Sleeper:
    """A worker that has nothing to do: it has subscribed, fetched in vain, and gone to sleep."""

    def __init__(self, connection: socket.socket, queue: bytes) -> None:
        self._connection = connection
        self._queue = queue
        self._reader = MessageReader()

    def fall_asleep(self) -> None:
        """Returns when the server knows that it sleeps."""
        for command, answers in ((b"SUB", (b"oksub",)), (b"FET", (b"nomsg", b"nok")), (b"ISLP", (b"okslp",))):
            self._connection.sendall(request(b'{"cmd":"%s","qname":"%s"}' % (command, self._queue)))
            answer = self._next()
            if not answer.startswith(tuple(b'{"cmd":"%s"' % each for each in answers)):
                raise UnexpectedAnswer(command.decode(), answer)

    def wake(self) -> None:
        """Returns when the server has called."""
        answer = self._next()
        if not answer.startswith(b'{"cmd":"awk"'):
            raise UnexpectedAnswer("ISLP", answer)

    def _next(self) -> bytes:
        answers: list[bytes] = []
        while not answers:
            answers = self._reader.feed(receive_some(self._connection))
        if len(answers) > 1:
            raise UnexpectedAnswer("one request", b" ".join(answers))
        return answers[0]
