"""MoniQue as a queue: what the gateway is pushed becomes a task of the controller, which a ZeroMQ worker pulls.

A task is put through the WebSocket gateway, because that one answers; it is taken by a real PULL socket from the
controller's port, and is done when the worker has pushed a result that names it to the scheduler.
"""

from __future__ import annotations

import random
import string
from contextlib import ExitStack
from typing import Any

import msgspec
import zmq
from websockets.sync.client import connect

from penstock.engine.views import BindingView
from tests.conformance.driving import Closing, Door, Refused, Taken, Worker, unsaid_unless, until
from tests.conformance.hosting import WITHIN_S, Hosted

PREFIX = "conformance_"
TASK_TIMEOUT_S = 3600.0
LOOKED_AFTER_S = 60.0
"""In less time than this the controller looks after its bindings, and its workers ask again for tasks."""
_SETTLED_MS = 20
"""How long a worker listens for what should not come; the operator sees, too, that it was not sent."""
_WITHIN_MS = int(WITHIN_S * 1000)
_random = random.Random(2018)


def spec_of(name: str) -> str:
    """The spec of the tasks of a cell."""
    return PREFIX + name.replace("_", "-")


def new_id() -> str:
    """An id as components make them."""
    return "".join(_random.choices(string.ascii_letters + string.digits, k=40))


def message(
    type: str, spec: str, data: bytes, now_ms: int, *, pid: str = "", expires_at_ms: int = 0
) -> tuple[str, bytes]:
    """A message: its tag and its body."""
    fields: dict[str, Any] = {
        "created_at": now_ms,
        "creator": "conformance",
        "data": data,
        "encoding": "JSON",
        "expires_at": expires_at_ms,
        "id": new_id(),
        "pid": pid,
        "spec": spec,
        "type": type,
    }
    return tag_of(fields), msgspec.msgpack.encode(fields)


def tag_of(fields: dict[str, Any]) -> str:
    """The tag that belongs to a body."""
    return ":".join(fields[name] for name in ("type", "spec", "id", "pid", "creator"))


class Results(Closing):
    """A PUSH socket to the scheduler, as workers have it for their results."""

    def __init__(self, door: MoniqueDoor) -> None:
        self._door = door
        self._socket = door.connected(zmq.PUSH, "monique.com_in_port")

    def finish(self, queue: str, taken: Taken) -> None:
        """Say that a task is done. Nobody answers that: the operator sees it."""
        spec, now_ms = self._door.spec_of_queue(queue), self._door.hosted.now_ms()
        tag, body = message("result", spec, b"done", now_ms, pid=taken.handle)
        self._socket.send_multipart([tag.encode(), body])
        until(lambda: taken.handle not in self._door.tasks_in(queue) or None, "the end of the task")

    def leave(self) -> None:
        self._socket.close(0)


class MoniqueWorker(Closing, Worker):
    """A PULL socket on the controller's port of a spec. Without a task it always waits for one."""

    def __init__(self, door: MoniqueDoor, queue: str) -> None:
        self._door = door
        self._queue = queue
        self._results = Results(door)
        self._socket = door.connected(zmq.PULL, f"monique.connections[{door.spec_of_queue(queue)}]")
        door.operator.ping()  # by now the node has read the end of the handshake, too

    def take(self) -> Taken:
        assert self._socket.poll(_WITHIN_MS), "there was nothing to take"
        tag, body = self._socket.recv_multipart()
        fields = msgspec.msgpack.decode(body)
        assert tag.decode() == tag_of(fields)
        self._door.seen.add(fields["id"])
        return Taken(fields["data"], fields["id"], id=fields["id"])

    def finds_nothing(self) -> None:
        def nothing() -> bool | None:
            assert not self._socket.poll(_SETTLED_MS), "a task came"
            # One that is out and was not seen is on its way: to this worker, or to one that has just left.
            return True if self._door.tasks_in(self._queue, state="leased") <= self._door.seen else None

        until(nothing, "a task is out, and no worker has it")

    def wait(self) -> None:
        """It does."""

    def ack(self, taken: Taken) -> None:
        self._results.finish(self._queue, taken)

    def leave(self) -> None:
        self._results.leave()
        self._socket.close(0)


class MoniqueDoor(Door):
    """The MoniQue protocols, as far as they make a queue."""

    name = "monique"
    title = "MoniQue"
    lease_s = TASK_TIMEOUT_S
    lease_is_bound = True
    names_queues = False
    waits_for_queues = True
    encloses = True

    def __init__(self, hosted: Hosted, stack: ExitStack) -> None:
        super().__init__(hosted, stack)
        self._context: zmq.Context[Any] = stack.enter_context(zmq.Context())
        self.seen: set[str] = set()
        """The tasks that workers got."""

    def connected(self, kind: int, key: str) -> zmq.Socket[bytes]:
        """A socket whose handshake is done."""
        made: zmq.Socket[bytes] = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        monitor = made.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        made.connect(f"tcp://127.0.0.1:{self.hosted.port(key)}")
        assert monitor.poll(_WITHIN_MS), f"no handshake on {key}"
        made.disable_monitor()
        monitor.close(0)
        return made

    def tasks_in(self, queue: str, state: str | None = None) -> set[str]:
        """The ids of the tasks that are in a queue."""
        records = self.operator.queue(queue).browse(state=state)
        return {msgspec.msgpack.decode(record.payload)["id"] for record in records}

    # Queues are those of the controller's bindings; each has its spec.

    def queue(self, rule: str) -> str:
        return until(lambda: self._bound(spec=spec_of(rule)), f"a binding for {rule}").queue

    def spec_of_queue(self, queue: str) -> str:
        """The spec whose tasks go into a queue."""
        return until(lambda: self._bound(queue=queue), f"a binding for {queue}").spec

    def _bound(self, **wanted: str) -> BindingView | None:
        found = [each for each in self.operator.bindings() if wanted.items() <= msgspec.structs.asdict(each).items()]
        assert len(found) <= 1, f"{len(found)} bindings have {wanted}"
        return found[0] if found else None

    def make_queue(self, queue: str, **limits: Any) -> None:
        unsaid_unless("key_range" not in limits, "a key")
        if not self._exists(queue):
            self.hosted.advance(LOOKED_AFTER_S)
            until(lambda: self._exists(queue) or None, f"the queue {queue}")
            self.hosted.advance(LOOKED_AFTER_S)
        if limits:
            self.operator.queue(queue).set(**limits)

    def _exists(self, queue: str) -> bool:
        return queue in {each.name for each in self.operator.queues()}

    # Messages.

    def put(self, queue: str, payload: bytes, *, key: int = 0, delay_s: float = 0, expires_s: float = 0) -> None:
        unsaid_unless(not key, "a key")
        unsaid_unless(not delay_s, "delay")
        now_ms, put_before = self.hosted.now_ms(), self.operator.queue(queue).info().put
        expires_at_ms = now_ms + int(expires_s * 1000) if expires_s else 0
        tag, body = message("config", self.spec_of_queue(queue), payload, now_ms, expires_at_ms=expires_at_ms)
        reply = self._ask({"command": "push_to_mq", "data": {"message": body, "tag": tag}})
        if "error" in reply:
            raise Refused("error")
        assert reply == {"command": "pushed_to_mq", "data": tag}
        put = self.operator.queue(queue).info().put - put_before
        unsaid_unless(put == 1, "that one queue did not take a message which is published for all")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        address = f"ws://127.0.0.1:{self.hosted.port('monique.gateway_port')}"
        with connect(address, max_size=None, proxy=None, compression=None, open_timeout=WITHIN_S) as gateway:
            gateway.send(msgspec.msgpack.encode(request))
            reply = gateway.recv(WITHIN_S)
        assert isinstance(reply, bytes)
        answer: dict[str, Any] = msgspec.msgpack.decode(reply)
        return answer

    def operator_puts(self, queue: str, payload: bytes, **options: Any) -> int:
        body = self.enclose(queue, payload)
        headers = {"tag": tag_of(msgspec.msgpack.decode(body)), "channel": "0"}
        return self.operator.queue(queue).put(body, headers=headers, **options).id

    def worker(self, queue: str, *, bound: bool | None = None) -> MoniqueWorker:
        unsaid_unless(bound is not False, "a lease that outlives its connection")
        return self._stack.enter_context(MoniqueWorker(self, queue))

    def ack_elsewhere(self, queue: str, taken: Taken) -> None:
        with Results(self) as results:
            results.finish(queue, taken)

    def again(self, worker: Worker, taken: Taken) -> str:
        worker.ack(taken)
        return "no answer"

    def late(self, worker: Worker, taken: Taken) -> tuple[str, bool]:
        worker.ack(taken)
        return "its result counts", True

    def note_held(self, queue: str) -> None:
        self.seen |= self.tasks_in(queue, state="leased")

    def enclose(self, queue: str, payload: bytes) -> bytes:
        return message("config", self.spec_of_queue(queue), payload, self.hosted.now_ms())[1]

    def opened(self, payload: bytes) -> bytes:
        data: bytes = msgspec.msgpack.decode(payload)["data"]
        return data
