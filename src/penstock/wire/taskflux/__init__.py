"""The TaskFlux protocols as a sans-IO codec: ServerConnection and ClientConnection, and the messages between them.

Four dialects (see Dialect) share one handshake:

    client                                              server
    'A' 'N'                 AuthorizationRequest   ──▶
                                                   ◀──  'a' 1            AuthorizationResponse
    'B' 1 0 x               BootstrapRequest       ──▶
                                                   ◀──  'b' 1            BootstrapResponse (or a reason, and it closes)

In seed000 and csharp a conversation then goes like this. Requests may be sent ahead; the server answers strictly in
order.

    Enqueue                 ──▶                         ClusterMetadataRequest  ──▶
                            ◀──  Ok: "acknowledge it"                           ◀──  ClusterMetadata
    Acknowledge             ──▶  (now it is executed)
                            ◀──  Ok | ErrorResult | a policy violation | NotLeader
    or NegativeAcknowledge  ──▶  (nothing is stored)    CreateQueue | DeleteQueue  ──▶
                            ◀──  Ok                                             ◀──  Ok | ErrorResult | NotLeader

    Dequeue                 ──▶                         Count | ListQueues      ──▶
                            ◀──  DequeueResult                                  ◀──  CountResult | ListResult
    Acknowledge             ──▶  (now it is removed)                                 | ErrorResult | NotLeader
    or NegativeAcknowledge  ──▶  (it goes back)
                            ◀──  Ok | NotLeader
    Dequeue                 ──▶
                            ◀──  DequeueEmpty | ErrorResult | NotLeader: nothing to acknowledge

A server without acknowledgements answers Enqueue once, when it is done, and removes at Dequeue.

A parameter that is wrong in itself (a bad name, a range upside down) is a ParameterError: the csharp dialect answers
it with an ErrorPacket, the others with the ErrorResult of a Command Response. The connection lives on.

seed001 and seed001-datapackets put a length before each body, and have only Enqueue, Dequeue and Count: each is
executed at once and answered once (EnqueueResult, DequeueResult or DequeueEmpty, CountResult, ErrorResult,
NotLeader). A server recognises them on the first command of a connection.
"""

from __future__ import annotations

from penstock.wire.taskflux.client import ClientConnection
from penstock.wire.taskflux.fields import valid_queue_name
from penstock.wire.taskflux.messages import NATIVE_MAJOR, NEED_DATA, Dialect, ErrorCode, Limits, NeedData
from penstock.wire.taskflux.server import ServerConnection

__all__ = [
    "NATIVE_MAJOR",
    "NEED_DATA",
    "ClientConnection",
    "Dialect",
    "ErrorCode",
    "Limits",
    "NeedData",
    "ServerConnection",
    "valid_queue_name",
]
