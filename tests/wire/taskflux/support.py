"""What the tests of the TaskFlux codec share: the byte vectors as messages, and connections past their handshake."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.wire.taskflux import NEED_DATA, ClientConnection, Dialect, Limits, ServerConnection
from penstock.wire.taskflux import messages as m

HANDSHAKE = bytes.fromhex("414e 42 00000001 00000000 00000000")
HANDSHAKE_ACCEPTED = bytes.fromhex("6101 6201")
VECTORS_PATH = Path(__file__).parents[2] / "vectors" / "taskflux.json"

UNFRAMED = (Dialect.SEED000, Dialect.CSHARP)
FRAMED = (Dialect.SEED001, Dialect.SEED001_DATA)


@dataclass(frozen=True)
class Vector:
    """One byte vector: what it says, in which dialect, as a whole packet."""

    id: str
    dialect: Dialect
    packet: bytes
    message: Any
    to_server: bool
    in_handshake: bool

    def __str__(self) -> str:
        return self.id


def vectors() -> list[Vector]:
    """All vectors of conversations; a vector that this table does not know fails."""
    entries = json.loads(VECTORS_PATH.read_text("utf-8"))["vectors"]
    return [_vector(entry) for entry in entries if entry["dialect"] != "seed002-files"]


def file_vectors() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Bytes and fields of the vectors of files, by name."""
    entries = json.loads(VECTORS_PATH.read_text("utf-8"))["vectors"]
    return {e["name"]: (bytes.fromhex(e["hex"]), e["fields"]) for e in entries if e["dialect"] == "seed002-files"}


_DIALECTS = {
    "client-packets": Dialect.SEED000,
    "seed000": Dialect.SEED000,
    "csharp-head": Dialect.CSHARP,
    "seed001": Dialect.SEED001,
    "seed001-datapackets": Dialect.SEED001_DATA,
}


def _vector(entry: dict[str, Any]) -> Vector:
    dialect = _DIALECTS[entry["dialect"]]
    kind, _, name = entry["name"].rpartition(".")
    data = bytes.fromhex(entry["hex"])
    message = _message(kind, name, entry["fields"], dialect)
    to_server = type(message) in m.Request.__args__
    if kind in ("cmd", "rsp"):  # a bare body: put it into its packet by hand
        marker = {Dialect.SEED001_DATA: b"D"}.get(dialect, b"C")
        marker = marker if to_server else marker.lower()
        data = marker + (len(data).to_bytes(4, "big") if dialect.length_framed else b"") + data
    handshake = (m.AuthorizationRequest, m.BootstrapRequest, m.AuthorizationResponse, m.BootstrapResponse)
    return Vector(f"{entry['dialect']}:{entry['name']}", dialect, data, message, to_server, type(message) in handshake)


def _message(kind: str, name: str, fields: dict[str, Any], dialect: Dialect) -> Any:
    if kind in ("cmd", "cmdpkt"):
        return _command(name.partition("_")[0], fields)
    if kind in ("rsp", "rsppkt"):
        return _response(name, fields, dialect)
    return _packet(name, fields)


def _command(name: str, fields: dict[str, Any]) -> Any:
    queue = bytes.fromhex(fields["queue_hex"]) if "queue_hex" in fields else fields.get("queue", "").encode()
    if name == "enqueue":
        return m.Enqueue(queue, fields["key"], bytes.fromhex(fields["data"]))
    if name == "create":
        sizes = [-1 if fields[key] is None else fields[key] for key in ("max_queue_size", "max_payload_size")]
        key_range = None if fields["priority_range"] is None else tuple(fields["priority_range"])
        return m.CreateQueue(queue, fields["code"], *sizes, key_range)
    commands = {
        "dequeue": lambda: m.Dequeue(queue, fields.get("timeout_ms", 0)),
        "count": lambda: m.Count(queue),
        "delete": lambda: m.DeleteQueue(queue),
        "list": m.ListQueues,
    }
    return commands[name]()


def _response(name: str, fields: dict[str, Any], dialect: Dialect) -> Any:
    name = name.partition("_")[0] if not name.startswith(("policy", "no_result")) else name
    if name == "dequeue":
        if not fields["success"]:
            return m.DequeueEmpty()
        return m.DequeueResult(fields["key"], bytes.fromhex(fields["data"]), fields.get("id", 0))
    responses = {
        "enqueue": lambda: m.EnqueueResult(fields["success"]),
        "count": lambda: m.CountResult(fields["count"]),
        "error": lambda: m.ErrorResult(
            fields.get("code", fields.get("type")), fields.get("details", fields.get("message"))
        ),
        "list": lambda: m.ListResult(
            [m.QueueInfo(queue["name"].encode(), queue["count"], queue["policies"]) for queue in fields["queues"]]
        ),
        "policy_generic": lambda: m.GenericViolation(fields["message"]),
        "policy_max_queue_size": lambda: m.QueueSizeViolation(fields["max"]),
        "policy_max_payload_size": lambda: m.PayloadSizeViolation(fields["max"]),
        "policy_priority_range": lambda: m.KeyRangeViolation(fields["min"], fields["max"]),
        "no_result": m.NoResult,
    }
    return responses[name]()


def _packet(name: str, fields: dict[str, Any]) -> Any:
    packets = {
        "auth_request_none": m.AuthorizationRequest,
        "auth_response_ok": m.AuthorizationResponse,
        "auth_response_error": lambda: m.AuthorizationResponse(False, fields["reason"]),
        "bootstrap_request_1_0_0": m.BootstrapRequest,
        "bootstrap_response_ok": m.BootstrapResponse,
        "bootstrap_response_error": lambda: m.BootstrapResponse(False, fields["reason"]),
        "ack": m.Acknowledge,
        "ok": m.Ok,
        "error": lambda: m.ErrorPacket(fields["code"], fields["details"]),
        "not_leader_2": lambda: m.NotLeader(fields["leader"]),
        "cluster_metadata_request": m.ClusterMetadataRequest,
        "cluster_metadata_response": lambda: m.ClusterMetadata(fields["addresses"], fields["leader"], fields["self"]),
        "cluster_metadata_response_noleader": lambda: m.ClusterMetadata(fields["addresses"], None, fields["self"]),
    }
    return packets[name]()


def drain(connection: ServerConnection | ClientConnection) -> list[Any]:
    """All events that a connection has to report."""
    events: list[Any] = []
    while (event := connection.next_event()) is not NEED_DATA:
        events.append(event)
    return events


def server_for(dialect: Dialect, limits: Limits | None = None) -> ServerConnection:
    """A server past its handshake that has recognised `dialect`."""
    server = ServerConnection(Dialect.CSHARP if dialect is Dialect.CSHARP else Dialect.SEED000, limits)
    first_count = {
        Dialect.SEED001: bytes.fromhex("43 00000005 43 00000000"),
        Dialect.SEED001_DATA: bytes.fromhex("44 00000005 43 00000000"),
    }.get(dialect, bytes.fromhex("43 43 00"))
    server.receive_data(HANDSHAKE + first_count)
    assert drain(server) == [m.AuthorizationRequest(), m.BootstrapRequest(), m.Count(b"")]
    assert server.dialect is dialect
    return server


def fresh_server(limits: Limits | None = None) -> ServerConnection:
    """A server past its handshake that has seen no command yet."""
    server = ServerConnection(Dialect.SEED000, limits)
    server.receive_data(HANDSHAKE)
    assert drain(server) == [m.AuthorizationRequest(), m.BootstrapRequest()]
    return server


def client_for(dialect: Dialect, limits: Limits | None = None) -> ClientConnection:
    """A client past its handshake."""
    client = ClientConnection(dialect, limits)
    client.receive_data(HANDSHAKE_ACCEPTED)
    assert drain(client) == [m.AuthorizationResponse(), m.BootstrapResponse()]
    return client


def pieces_of(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut `data` into pieces of the given sizes, over and over."""
    pieces: list[bytes] = []
    offset = number = 0
    while offset < len(data):
        size = sizes[number % len(sizes)]
        pieces.append(data[offset : offset + size])
        offset += size
        number += 1
    return pieces
