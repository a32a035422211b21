"""The schema: every setting there is, with its type, default, range and meaning. All else is derived from it.

To add a setting, add a field here: its TOML key, `PENSTOCK_*` variable, command line flag, its line in `penstock config
show` and the checks of its value follow (see fields.py). The end of the name is the unit and decides which texts are
read: `_bytes` takes sizes such as "64MiB", `_ms` and `_hours` take durations such as "90s" or "7d".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct, field

from penstock.settings.source import DEFAULT, Source

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
TIB: Final = 1024 * GIB

_DAY_MS: Final = 24 * 60 * 60 * 1000

StorageMode = Literal["durable", "interval", "none"]
SyncThread = Literal["auto", "never", "always"]
TaskfluxDialect = Literal["seed000", "csharp"]
MoniqueDialect = Literal["auto", "current", "legacy"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class StorageSettings(Struct, frozen=True, kw_only=True):
    """How the log is kept on disk."""

    mode: Annotated[
        StorageMode,
        Meta(
            description="When an answer is given: durable = after the log is synced; interval = before, losing up to "
            "storage.interval_ms on power loss; none = the system syncs when it likes"
        ),
    ] = "durable"
    interval_ms: Annotated[int, Meta(ge=1, le=60_000, description="Time between syncs in mode interval")] = 50
    segment_bytes: Annotated[
        int, Meta(ge=4 * KIB, le=2 * GIB, description="Length at which raft.log is sealed and moved to the archive")
    ] = 64 * MIB
    retention_hours: Annotated[
        int, Meta(ge=0, le=87_600, description="Age from which an archived segment may be deleted")
    ] = 168
    retention_bytes: Annotated[
        int, Meta(ge=0, le=1024 * TIB, description="Size of the archive from which its oldest segments may be deleted")
    ] = 8 * GIB
    snapshot_bytes: Annotated[
        int, Meta(ge=4 * KIB, le=TIB, description="Log bytes since the last snapshot that start a new one")
    ] = 256 * MIB
    reserve_bytes: Annotated[
        int, Meta(ge=0, le=TIB, description="Disk space set aside so that takes and acks go on when the disk is full")
    ] = 64 * MIB
    sync_thread: Annotated[
        SyncThread, Meta(description="Whether syncs run on a thread of their own; auto decides by the load")
    ] = "auto"
    parquet: Annotated[
        bool, Meta(description="Sealed segments are written as Parquet, too; needs pyarrow, of the extra spark")
    ] = False


class LimitsSettings(Struct, frozen=True, kw_only=True):
    """What the node refuses, so that no client can make it grow without bound."""

    memory_bytes: Annotated[
        int, Meta(ge=0, le=1024 * TIB, description="Memory beyond which puts are refused; 0 is half of the machine's")
    ] = 0
    payload_bytes: Annotated[int, Meta(ge=1, le=48 * MIB, description="Longest payload of one message")] = 16 * MIB
    staged_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * TIB,
            description="Memory of staged messages beyond which staging is refused; 0 is a quarter of "
            "limits.memory_bytes",
        ),
    ] = 0
    staged_ms: Annotated[
        int, Meta(ge=60_000, le=7 * _DAY_MS, description="How long what is staged and not published is kept")
    ] = _DAY_MS // 4
    connections: Annotated[int, Meta(ge=1, le=1_000_000, description="Connections at a time, over all doors")] = 10_000
    connections_per_address: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Connections from one address; 0 is nine tenths of limits.connections"),
    ] = 0
    connections_per_door: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Connections of one door; 0 is nine tenths of limits.connections")
    ] = 0
    first_request_ms: Annotated[
        int, Meta(ge=1, le=_DAY_MS, description="Longest wait for the first request of a connection")
    ] = 60_000
    queues: Annotated[int, Meta(ge=1, le=1_000_000, description="Queues that may exist")] = 10_000
    inflight_bytes: Annotated[
        int, Meta(ge=4 * KIB, le=TIB, description="Bytes of unanswered requests per connection before reading pauses")
    ] = 64 * MIB
    buffer_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=TIB,
            description="Memory for the buffers of all connections; beyond it the slowest are closed; 0 is a quarter "
            "of limits.memory_bytes, at least 64 MiB",
        ),
    ] = 0


class Place(NamedTuple):
    """An address on which a door listens, with the keys of the settings that it comes from."""

    door: str
    host_key: str
    host: str
    port_key: str
    port: int


class ListenerSettings(Struct, frozen=True, kw_only=True):
    """One address on which the TaskFlux door listens, and how it answers there."""

    host: Annotated[
        str, Meta(description="Address to listen on; other than loopback needs --insecure", extra={"kind": "host"})
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes any free one")] = 2602
    dialect: Annotated[
        TaskfluxDialect,
        Meta(description="Whose answers are given; older clients are recognised by their first command in both"),
    ] = "seed000"
    acks: Annotated[
        bool,
        Meta(description="Enqueue and Dequeue wait for the client's acknowledgement; off: both take effect at once"),
    ] = True
    idle_timeout_ms: Annotated[
        int, Meta(ge=1, le=_DAY_MS, description="Longest wait for a client's next packet before it is disconnected")
    ] = 60_000
    ack_timeout_ms: Annotated[
        int, Meta(ge=1, le=_DAY_MS, description="Longest wait for a client's acknowledgement before the record returns")
    ] = 60_000


class TaskfluxSettings(ListenerSettings, frozen=True, kw_only=True):
    """The TaskFlux door. Its own host and port are the first listener; `listeners` are further ones, TOML only."""

    enabled: Annotated[bool, Meta(description="The TaskFlux door is open")] = True
    advertise: Annotated[
        str,
        Meta(
            description="host:port that clients are told to connect to; empty: the first listener's own",
            extra={"kind": "address"},
        ),
    ] = ""
    listeners: tuple[ListenerSettings, ...] = ()

    def open_listeners(self) -> list[tuple[str, ListenerSettings]]:
        """All listeners of the door with the key of each, the first one first; none if the door is off."""
        if not self.enabled:
            return []
        return [
            ("taskflux", self),
            *((f"taskflux.listeners[{number}]", listener) for number, listener in enumerate(self.listeners)),
        ]

    def places(self) -> list[Place]:
        """Where it listens; nowhere if it is off."""
        return [
            Place("taskflux", f"{key}.host", each.host, f"{key}.port", each.port) for key, each in self.open_listeners()
        ]


class EtzelSettings(Struct, frozen=True, kw_only=True):
    """The Etzel door: JSON over WebSocket."""

    enabled: Annotated[bool, Meta(description="The Etzel door is open")] = True
    host: Annotated[
        str, Meta(description="Address to listen on; other than loopback needs --insecure", extra={"kind": "host"})
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes any free one")] = 8080
    origins: Annotated[
        str,
        Meta(
            max_length=64 * KIB,
            description="Origins whose web pages may connect, with commas, * for all; programs need none",
            extra={"kind": "origins"},
        ),
    ] = ""

    def places(self) -> list[Place]:
        """Where it listens; nowhere if it is off."""
        return [Place("etzel", "etzel.host", self.host, "etzel.port", self.port)] if self.enabled else []


class MoniqueSettings(Struct, frozen=True, kw_only=True):
    """The MoniQue door: a WebSocket gateway, and the scheduler and controller of ZeroMQ components."""

    enabled: Annotated[bool, Meta(description="The MoniQue door is open")] = True
    config: Annotated[
        str,
        Meta(
            max_length=4096, description="A config.json of MoniQue's own; what is set here besides it takes precedence"
        ),
    ] = ""
    host: Annotated[
        str, Meta(description="Address to listen on; other than loopback needs --insecure", extra={"kind": "host"})
    ] = "127.0.0.1"
    gateway_host: Annotated[
        str, Meta(description="Address of the gateway; empty: monique.host", extra={"kind": "host"})
    ] = ""
    gateway_port: Annotated[int, Meta(ge=0, le=65_535, description="Port of the WebSocket gateway; 0: any")] = 9160
    origins: Annotated[
        str,
        Meta(
            max_length=64 * KIB,
            description="Origins whose web pages may use the gateway, with commas, * for all; its own page always may",
            extra={"kind": "origins"},
        ),
    ] = ""
    in_host: Annotated[
        str, Meta(description="Address where components push; empty: monique.host", extra={"kind": "host"})
    ] = ""
    com_in_port: Annotated[int, Meta(ge=0, le=65_535, description="Where components push messages; 0: any")] = 9000
    tech_in_port: Annotated[int, Meta(ge=0, le=65_535, description="The same as com_in, technical; 0: any")] = 9024
    out_host: Annotated[
        str, Meta(description="Address where components subscribe; empty: monique.host", extra={"kind": "host"})
    ] = ""
    com_out_port: Annotated[int, Meta(ge=0, le=65_535, description="Where components subscribe; 0: any")] = 9001
    tech_out_port: Annotated[int, Meta(ge=0, le=65_535, description="The same as com_out, technical; 0: any")] = 9025
    inner: Annotated[
        bool,
        Meta(description="Leave the rules between in and out to scheduler-logic programs on the inner ports"),
    ] = False
    inner_com_in_port: Annotated[
        int, Meta(ge=0, le=65_535, description="Where scheduler-logic pulls what came in; 0: any")
    ] = 9010
    inner_tech_in_port: Annotated[
        int, Meta(ge=0, le=65_535, description="The same as inner_com_in, technical; 0: any")
    ] = 9034
    inner_com_out_port: Annotated[
        int, Meta(ge=0, le=65_535, description="Where scheduler-logic pushes what goes out; 0: any")
    ] = 9011
    inner_tech_out_port: Annotated[
        int, Meta(ge=0, le=65_535, description="The same as inner_com_out, technical; 0: any")
    ] = 9035
    controller_host: Annotated[
        str, Meta(description="Address of the controller's ports; empty: monique.host", extra={"kind": "host"})
    ] = ""
    connections: Annotated[
        str,
        Meta(max_length=64 * KIB, description="The controller's ports, where workers pull tasks: spec=port,spec=port"),
    ] = ""
    task_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=365 * _DAY_MS, description="How long a worker may be silent on a task before another gets it"),
    ] = 3_600_000
    worker_tasks: Annotated[
        int, Meta(ge=1, le=1000, description="Tasks of the controller that one worker has at a time")
    ] = 1
    allow_messages: Annotated[
        str, Meta(max_length=64 * KIB, description="Specs that may be published on com, with commas; empty: all")
    ] = ""
    dialect: Annotated[
        MoniqueDialect, Meta(description="In which form tags go out; auto: to each client in its own, as they came in")
    ] = "auto"
    strict_cookie: Annotated[bool, Meta(description="The gateway refuses clients that send no cookie named id")] = False
    gateway_unsent_bytes: Annotated[
        int,
        Meta(ge=4 * KIB, le=TIB, description="Bytes that may wait for a gateway subscriber before it is disconnected"),
    ] = 32 * MIB
    zeromq_unsent: Annotated[
        int, Meta(ge=1, le=2**31 - 1, description="Messages that may wait for a ZeroMQ subscriber; more are lost to it")
    ] = 10_000

    def places(self) -> list[Place]:
        """Where it listens; nowhere if it is off."""
        if not self.enabled:
            return []
        ports = [("gateway_host", "gateway_port"), ("in_host", "com_in_port"), ("out_host", "com_out_port")]
        ports += [("in_host", "tech_in_port"), ("out_host", "tech_out_port")]
        if self.inner:
            ports += [("in_host", "inner_com_in_port"), ("out_host", "inner_com_out_port")]
            ports += [("in_host", "inner_tech_in_port"), ("out_host", "inner_tech_out_port")]
        found = [self._place(host_name, f"monique.{name}", getattr(self, name)) for host_name, name in ports]
        return found + [self.controller_place(spec, port) for spec, port in self.open_connections().items()]

    def controller_place(self, spec: str, port: int) -> Place:
        """Where the workers of a spec connect."""
        return self._place("controller_host", f"monique.connections[{spec}]", port)

    def _place(self, host_name: str, port_key: str, port: int) -> Place:
        own = getattr(self, host_name)
        host_key = f"monique.{host_name if own else 'host'}"
        return Place("monique", host_key, own or self.host, port_key, port)

    def open_connections(self) -> dict[str, int]:
        """The controller's port for each spec. Raises ValueError with what is wrong in the text."""
        found: dict[str, int] = {}
        for part in filter(None, map(str.strip, self.connections.split(","))):
            spec, equals, port = part.rpartition("=")
            if not equals or not spec or not port.isascii() or not port.isdigit() or int(port) > 65_535:
                raise ValueError(f"{part!r} is not spec=port")
            found[spec] = int(port)
        return found

    def allowed_specs(self) -> frozenset[str]:
        """The specs that may be published on com; none means all."""
        return frozenset(filter(None, map(str.strip, self.allow_messages.split(","))))


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of a node, checked, with the source of each value that is not a default."""

    data_dir: Annotated[
        str, Meta(min_length=1, max_length=4096, description="Folder of the node's data; its files are in consensus/")
    ] = "penstock-data"
    node_id: Annotated[int, Meta(ge=0, le=255, description="Number of this node in its cluster")] = 0
    insecure: Annotated[
        bool, Meta(description="Listen on public addresses though nobody is asked for a name or password")
    ] = False
    log_level: Annotated[LogLevel, Meta(description="Least severe messages that are logged")] = "info"
    log_format: Annotated[LogFormat, Meta(description="Log lines for people (text) or for programs (json)")] = "text"
    storage: StorageSettings = field(default_factory=StorageSettings)
    limits: LimitsSettings = field(default_factory=LimitsSettings)
    taskflux: TaskfluxSettings = field(default_factory=TaskfluxSettings)
    etzel: EtzelSettings = field(default_factory=EtzelSettings)
    monique: MoniqueSettings = field(default_factory=MoniqueSettings)
    sources: Mapping[str, Source] = field(default_factory=dict)

    def places(self) -> list[Place]:
        """Every address on which a door listens."""
        return [*self.taskflux.places(), *self.etzel.places(), *self.monique.places()]

    def source_of(self, key: str) -> Source:
        """Where the value of this dotted key came from."""
        return self.sources.get(key, DEFAULT)
