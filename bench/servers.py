"""The servers under test, each with the command that starts it and the loads that it understands."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.dialogues import beanstalkd, etzel, floor, monique, native, redis, taskflux, zeromq
from bench.dialogues.shapes import KEYS, OneAtATime, Pings, Pipelined, Requests, StampedPuts, Taking
from bench.errors import UnexpectedAnswer
from bench.floor_server import preallocate
from bench.load import Dialogue, connect, receive_some
from bench.process import ServerProcess, free_port, free_ports
from bench.programs import Program, Programs
from penstock.wire.native.messages import NodeStatus

_PROJECT = Path(__file__).resolve().parent.parent
_FILL_WINDOW = 1_000
_BATCH = 100
"""Records per frame, where a protocol has frames with several."""


@dataclass(frozen=True)
class Workshop:
    """What servers are made from: a folder for their data, the programs of others, the command that starts ours."""

    folder: Path
    programs: Programs
    floor_file_bytes: int = 128 * 1024 * 1024
    penstock_command: list[str] = field(default_factory=lambda: [str(Path(sys.executable).with_name("penstock"))])

    @staticmethod
    def command_from(text: str) -> list[str]:
        """A command as it would be typed here; servers run elsewhere, so a path becomes absolute."""
        program, *arguments = shlex.split(text)
        return [str(Path(program).absolute()) if os.sep in program else program, *arguments]


class Floor(ServerProcess):
    """The floor; see floor_server."""

    name = "floor"
    sync: ClassVar[str] = "thread"

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop.folder / self.name)
        # Kept from start to start: filling it anew each time would keep the disk busy for those that follow.
        self._file = workshop.folder / "floor-file"
        preallocate(self._file, workshop.floor_file_bytes)

    def command(self) -> list[str]:
        """Part of ServerProcess."""
        module = ["-m", "bench.floor_server"]
        return [sys.executable, *module, "--port", str(self.port), "--file", str(self._file), "--sync", self.sync]

    def environment(self) -> dict[str, str]:
        """Part of ServerProcess."""
        return {**os.environ, "PYTHONPATH": str(_PROJECT)}

    def puts(self, window: int) -> Dialogue:
        """A load of plain requests."""
        if window == 1:
            return OneAtATime(floor.requests(1), floor.count_answers)
        return Pipelined(floor.requests(window), floor.count_answers, window)

    def pairs(self) -> Dialogue:
        """A load where each message takes two requests, as a take and its acknowledgement do."""
        return OneAtATime(floor.requests(1), floor.count_answers, requests_per_message=2)


class InlineFloor(Floor):
    """The floor with its sync in the loop."""

    name = "floor-inline"
    sync = "inline"


class Broker(ServerProcess):
    """A server with a queue behind it."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop.folder / self.name)

    @abstractmethod
    def puts(self, window: int) -> Dialogue:
        """A load that puts: one at a time, or with a window of requests in flight."""

    @abstractmethod
    def fill(self, records: int) -> Pipelined:
        """A load that puts so many records as fast as it can, and ends."""

    @abstractmethod
    def takes(self, window: int) -> Dialogue:
        """A load that takes and acknowledges until nothing is left: one at a time, or a window at a time."""

    @abstractmethod
    def stamped_puts(self, rate_per_s: float) -> StampedPuts:
        """A load that puts by the clock."""

    @abstractmethod
    def waiting_takes(self) -> Taking:
        """A load that waits for records, takes them as they come and acknowledges them."""


class Redis(Broker):
    """Redis with a sync for each batch of commands, used as a queue through a stream and a consumer group."""

    name = "redis"

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop)
        self._program: Program = workshop.programs.find("redis-server")

    def command(self) -> list[str]:
        """Part of ServerProcess."""
        address = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--daemonize", "no"]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0"]
        return [str(self._program.path), *address, *durable]

    def environment(self) -> dict[str, str]:
        """Part of ServerProcess."""
        return self._program.environment()

    def prepare(self) -> None:
        """Makes the consumer group."""
        with connect(self.port) as connection:
            connection.sendall(redis.CREATE_GROUP)
            answer = receive_some(connection)
            if answer != b"+OK\r\n":
                raise UnexpectedAnswer("XGROUP CREATE", answer)

    def puts(self, window: int) -> Dialogue:
        """Part of Broker."""
        if window == 1:
            return OneAtATime(redis.put_requests(1), redis.count_put_answers)
        return Pipelined(redis.put_requests(window), redis.count_put_answers, window)

    def large_puts(self, payload_bytes: int) -> Dialogue:
        """A load that puts payloads of this size, one at a time."""
        return OneAtATime(redis.put_requests(1, b"x" * payload_bytes), redis.count_put_answers)

    def fill(self, records: int) -> Pipelined:
        """Part of Broker."""
        requests = redis.put_requests(_FILL_WINDOW)
        return Pipelined(requests, redis.count_put_answers, _FILL_WINDOW, requests_max=records)

    def takes(self, window: int) -> Dialogue:
        """Part of Broker."""
        return redis.Take(window)

    def stamped_puts(self, rate_per_s: float) -> StampedPuts:
        """Part of Broker."""
        return StampedPuts(rate_per_s, redis.encode_put, redis.count_put_answers)

    def waiting_takes(self) -> Taking:
        """Part of Broker."""
        return redis.Take(_BATCH, wait=True)


class Beanstalkd(Broker):
    """beanstalkd with a sync for each job."""

    name = "beanstalkd"

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop)
        self._program: Program = workshop.programs.find("beanstalkd")

    def command(self) -> list[str]:
        """Part of ServerProcess."""
        address = ["-l", "127.0.0.1", "-p", str(self.port)]
        return [str(self._program.path), *address, "-b", str(self.folder), "-f0"]

    def environment(self) -> dict[str, str]:
        """Part of ServerProcess."""
        return self._program.environment()

    def puts(self, window: int) -> Dialogue:
        """Part of Broker."""
        if window == 1:
            return OneAtATime(beanstalkd.put_requests(1), beanstalkd.count_put_answers)
        return Pipelined(beanstalkd.put_requests(window), beanstalkd.count_put_answers, window)

    def fill(self, records: int) -> Pipelined:
        """Part of Broker."""
        requests = beanstalkd.put_requests(_FILL_WINDOW)
        return Pipelined(requests, beanstalkd.count_put_answers, _FILL_WINDOW, requests_max=records)

    def takes(self, window: int) -> Dialogue:
        """Part of Broker."""
        return beanstalkd.Take(window)

    def stamped_puts(self, rate_per_s: float) -> StampedPuts:
        """Part of Broker."""
        return StampedPuts(rate_per_s, beanstalkd.encode_put, beanstalkd.count_put_answers)

    def waiting_takes(self) -> Taking:
        """Part of Broker."""
        return beanstalkd.Take(1, wait=True)


class Penstock(Broker):
    """Penstock as it is by default: durable, one node."""

    name = "penstock"

    def __init__(self, workshop: Workshop, flags: tuple[str, ...] = ()) -> None:
        super().__init__(workshop)
        self._command = workshop.penstock_command
        self.flags = flags
        """Further flags; those of the next start where they are changed after one."""

    def command(self) -> list[str]:
        """Part of ServerProcess."""
        places = ["--data-dir", str(self.folder / "data"), "--taskflux-port", str(self.port)]
        return [*self._command, "serve", *places, *self.door_flags(), *self.flags]

    def door_flags(self) -> list[str]:
        """Which other doors are open, and where: none."""
        return ["--no-etzel", "--no-monique"]

    def environment(self) -> dict[str, str]:
        """Part of ServerProcess. Nobody's private settings may change the figures."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}

    def greet(self, connection: socket.socket) -> None:
        """Part of ServerProcess."""
        native.greet(connection)

    def connect_taskflux(self) -> socket.socket:
        """A connection that speaks TaskFlux."""
        return _greeted(connect(self.port), taskflux.greet)

    def status(self) -> NodeStatus:
        """The node's own figures."""
        with self.connect() as connection:
            return native.ask_status(connection)

    def puts(self, window: int) -> Dialogue:
        """Part of Broker."""
        if window == 1:
            return OneAtATime(native.put_requests(KEYS), native.put_counter())
        return Pipelined(native.put_requests(2 * window), native.put_counter(), window)

    def large_puts(self, payload_bytes: int) -> Dialogue:
        """A load that puts payloads of this size, one at a time."""
        return OneAtATime(native.put_requests(1, payload=b"x" * payload_bytes), native.put_counter())

    def create_queues(self, count: int) -> None:
        """Make queues that nothing is put into."""
        with self.connect() as connection:
            native.create_queues(connection, count)

    def batched_puts(self, frames_in_flight: int) -> Dialogue:
        """A load that puts frames of a hundred records."""
        requests = native.put_requests(2 * frames_in_flight, _BATCH)
        return Pipelined(requests, native.put_counter(_BATCH), frames_in_flight, _BATCH)

    def fill(self, records: int, requests: Requests | None = None) -> Pipelined:
        """Part of Broker; `requests` are others than those with ten keys in turn."""
        in_flight = _FILL_WINDOW // _BATCH
        if requests is None:
            requests = native.put_requests(2 * in_flight, _BATCH)
        return Pipelined(
            requests, native.put_counter(_BATCH), in_flight, _BATCH, requests_max=max(1, records // _BATCH)
        )

    def fill_distinct(self, records: int) -> Pipelined:
        """As fill, with no two keys alike."""
        return self.fill(records, native.DistinctKeyRequests(_BATCH))

    def takes(self, window: int) -> Dialogue:
        """Part of Broker."""
        return native.TakeThenAck() if window == 1 else native.AckAndTake(window)

    def ack_and_takes(self) -> Dialogue:
        """A load that takes the next record with the acknowledgement of the last."""
        return native.AckAndTake(1)

    def stamped_puts(self, rate_per_s: float) -> StampedPuts:
        """Part of Broker."""
        return StampedPuts(rate_per_s, native.encode_put, native.put_counter())

    def waiting_takes(self) -> Taking:
        """Part of Broker."""
        return native.AckAndTake(_BATCH, wait=True)

    def subscription(self) -> Taking:
        """As waiting_takes, by subscription."""
        return native.Subscribed(_BATCH)

    def pings(self, interval_s: float) -> Pings:
        """A load that asks for a sign of life by the clock."""
        return Pings(interval_s, native.PING_REQUEST, native.answer_counter("PING"))

    def snapshot_watch(self, interval_s: float) -> native.SnapshotWatch:
        """A load that counts the snapshots made meanwhile."""
        return native.SnapshotWatch(interval_s)


class EtzelPenstock(Penstock):
    """Penstock with its Etzel door open."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop)
        self.etzel_port = free_port()

    def door_flags(self) -> list[str]:
        """Part of Penstock."""
        return ["--etzel", "--etzel-port", str(self.etzel_port), "--no-monique"]

    def prepare(self) -> None:
        """Part of ServerProcess."""
        self.wait_until_open(self.etzel_port)

    def connect_etzel(self, receive_buffer_bytes: int | None = None) -> socket.socket:
        """A connection that speaks Etzel."""
        return _greeted(connect(self.etzel_port, receive_buffer_bytes), etzel.greet)


class MoniquePenstock(Penstock):
    """Penstock with its MoniQue door open: gateway and scheduler."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop)
        names = ("gateway", "com-in", "com-out", "tech-in", "tech-out")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))

    def door_flags(self) -> list[str]:
        """Part of Penstock."""
        ports = [text for name, port in self.ports.items() for text in (f"--monique-{name}-port", str(port))]
        return ["--no-etzel", "--monique", *ports]

    def prepare(self) -> None:
        """Part of ServerProcess."""
        for port in self.ports.values():
            self.wait_until_open(port)

    def connect_component(self) -> socket.socket:
        """A connection on which messages are pushed to the scheduler."""
        return _greeted(connect(self.ports["com-in"]), lambda connection: zeromq.greet(connection, b"PUSH"))

    def connect_zeromq_subscriber(self) -> socket.socket:
        """A connection that receives what is published, from the scheduler."""
        return _greeted(connect(self.ports["com-out"]), monique.subscribe_by_zeromq)

    def connect_websocket_subscriber(self) -> socket.socket:
        """A connection that receives what is published, from the gateway."""
        return _greeted(connect(self.ports["gateway"]), monique.subscribe_by_websocket)


def _greeted(connection: socket.socket, greet: Callable[[socket.socket], None]) -> socket.socket:
    try:
        greet(connection)
    except BaseException:
        connection.close()
        raise
    return connection
