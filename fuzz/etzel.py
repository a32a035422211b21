"""Targets: Etzel's requests, replies and stored records. What was read must be written and read again as the same."""

from __future__ import annotations

from fuzz.runner import Target
from penstock.wire.etzel import (
    Layout,
    ReplyError,
    RequestError,
    StoredError,
    StoredRecord,
    decode_stored,
    encode_reply,
    encode_request,
    encode_stored,
    message,
    parse_reply,
    parse_request,
)
from penstock.wire.etzel import replies as r

_REQUESTS = [
    b'{"cmd":"SUB","qname":"q"}',
    b'{"qname":"q","cmd":"FET"}',
    b'{"cmd":"ISLP","qname":""}',
    b'{"cmd":"ACK","qname":"q","uid":"AO1794782188_250"}',
    b'{"cmd":"DEL","qname":"50%25 \\u00e9","uid":"nosuch","more":[[[{}]]]}',
    b'{"qname":"q","msg":"hello","cmd":"PUB","delay":0,"expires":0}',
    b'{"cmd":"PUB","qname":"q","message":"\\ud83d\\ude00","delay":1.5,"expires":2e3,"timeout":5.25,"uid":true}',
    b'{"cmd":"PUB","qname":"q","msg":"/w==","encoding":"base64","priority":-9223372036854775808,"x":"\\ud800"}',
]
_REPLIES: list[r.Reply] = [
    r.Subscribed("q"),
    r.Published(),
    r.Published("AO1794782188_250"),
    message("q", "AO1794782188_250", 0, "hellö".encode()),
    message("q", "AO1794782188_250", 7, b"\xff\x00"),
    r.NoMessage(""),
    r.Sleeping("q"),
    r.Acknowledged("nosuch", "q"),
    r.Refused("Q_NOT_FOUND"),
    r.Awake("q"),
]
_RECORDS = [
    StoredRecord("a*b-c", "AO1794782188_250", b"payload", 3, 1_794_782_649, 1_794_783_249, 30),
    StoredRecord("", "u", b""),
]


def _run_request(data: bytes) -> None:
    request = parse_request(data)
    assert parse_request(encode_request(request)) == request, "the request does not survive"


def _run_reply(data: bytes) -> None:
    reply = parse_reply(data)
    assert parse_reply(encode_reply(reply)) == reply, "the reply does not survive"
    if isinstance(reply, r.Message):
        assert isinstance(reply.payload, bytes)


def _stored(layout: Layout) -> Target:
    """The target for one layout: key and value in one input, parted by a line feed."""

    def run(data: bytes) -> None:
        key, _, value = data.partition(b"\n")
        record = decode_stored(key, value, layout)
        again = encode_stored(record, layout)
        assert again[1] == value, "the value is written otherwise than it was read"
        assert decode_stored(*again, layout) == record, "the record does not survive"

    corpus = [b"\n".join(encode_stored(record, layout)) for record in _RECORDS]
    return Target(f"etzel-stored-{layout}", lambda: corpus, run, (StoredError,))


TARGETS = (
    Target("etzel-requests", lambda: list(_REQUESTS), _run_request, (RequestError,)),
    Target("etzel-replies", lambda: [encode_reply(reply) for reply in _REPLIES], _run_reply, (ReplyError,)),
    _stored(Layout.ETZEL),
    _stored(Layout.SEED),
)
