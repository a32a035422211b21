"""Etzel, JSON in the text frames of a WebSocket, as a sans-IO codec: both sides, uids, names and stored records.

    producer                      server                            worker
                                         ◀──  SUB q
                                              oksub           ──▶
    PUB q "hello"  ──▶                   ◀──  FET q
                   ◀──  ok                    msg uid "hello" ──▶   (comes back after its timeout unless acknowledged)
                                         ◀──  ACK q uid
                                              okack           ──▶
                                         ◀──  FET q
                                              nomsg           ──▶
                                         ◀──  ISLP q
                                              okslp           ──▶
    PUB q "more"   ──▶
                   ◀──  ok                    awk q           ──▶   (fetch again)

Every request has exactly one reply, in the order of the requests. A bad one is answered `nok` with a code, and the
connection lives.
"""

from __future__ import annotations

from penstock.wire.etzel.errors import EtzelError, Nok, ReplyError, RequestError, StoredError, UidOutOfRange
from penstock.wire.etzel.names import qname_of, queue_name
from penstock.wire.etzel.replies import encode_reply, message, parse_reply
from penstock.wire.etzel.requests import Request, encode_request, parse_request
from penstock.wire.etzel.stored import Layout, StoredRecord, decode_stored, encode_stored
from penstock.wire.etzel.uids import decode_uid, encode_uid

__all__ = [
    "EtzelError",
    "Layout",
    "Nok",
    "ReplyError",
    "Request",
    "RequestError",
    "StoredError",
    "StoredRecord",
    "UidOutOfRange",
    "decode_stored",
    "decode_uid",
    "encode_reply",
    "encode_request",
    "encode_stored",
    "encode_uid",
    "message",
    "parse_reply",
    "parse_request",
    "qname_of",
    "queue_name",
]
