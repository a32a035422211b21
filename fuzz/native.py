"""Damaged frames of the native protocol, as the node and as a client would get them, and damaged pieces of history."""

from __future__ import annotations

from array import array
from itertools import accumulate

import msgspec

from fuzz.runner import Target
from penstock.engine import commands as c
from penstock.engine.answers import Delivery, PutAnswer, Taken
from penstock.engine.entries import decode_args
from penstock.engine.errors import Refusal
from penstock.engine.journal import ROW_BYTES
from penstock.storage.journalfile import encode_block
from penstock.storage.records import encode_record
from penstock.wire.native import messages as m
from penstock.wire.native.errors import BadPiece, FrameError
from penstock.wire.native.frames import FrameReader, encode_frame
from penstock.wire.native.pieces import check_piece, spans

_OPTIONS = c.Options(5, 6, msgspec.Raw(msgspec.msgpack.encode({"a": "b"})), "once")
_REQUESTS = [
    c.Put("emails", [c.Item(5, b"payload"), c.Item(-1, b"", _OPTIONS)]),
    c.PutMany([("a", [c.Item(1, b"x")]), ("b", [c.Item(2, b"y")])]),
    c.Take("emails", 10, 500, 1000),
    c.Ack("emails", [(1, 2), (3, 4)]),
    c.AckTake("emails", [(1, 2)], 5),
    c.Return("emails", [(1, 2)], c.NACK, 100),
    c.CreateQueue("emails", c.QueueSettings(c.QA, 5, 10, (-3, 3))),
    c.ChangeQueue("emails", c.QueueChanges(size_max=3)),
    c.Redrive("dead", None, (1, 2), 3, 4, 5, 6),
    c.Stage("query", 1, 2, 3, 4, [("a", [c.Item(1, b"x")])]),
    c.Publish("query", 1, [(2, 3)], 1, True),
    c.Broadcast(0, b"tag", b"body", "spec", "type"),
    m.Browse("emails", 2, (-5, 5), 7, 8),
    m.Subscribe("emails", 10, None),
    m.Hello(7, "fuzz"),
]
_ANSWERS: list[tuple[int, int, object]] = [
    (m.ANSWER, c.PUT, PutAnswer(1, 2, [(1, 0, 5)])),
    (m.PUSH, c.TAKE, Taken(9, [Delivery(1, 2, b"payload", 1, 5)])),
    (m.REFUSED, c.ACK, Refusal(20, "no such record", (1,))),
]
_REFUSAL = msgspec.msgpack.Decoder(Refusal)
_PIECE = msgspec.msgpack.Decoder(m.JournalPiece)


def _requests() -> list[bytes]:
    frames = [encode_frame(m.CODES[type(args)], 1, msgspec.msgpack.encode(args)) for args in _REQUESTS]
    return [*frames, b"".join(frames)]


def _read_requests(data: bytes) -> None:
    for code, _, body in FrameReader().feed(data):
        if code in m.DECODERS:
            try:
                m.DECODERS[code].decode(body)
            except (ValueError, RecursionError):
                continue  # answered BAD_REQUEST
        else:
            decode_args(code, body)


def _answers() -> list[bytes]:
    return [encode_frame(status, op, msgspec.msgpack.encode(answer)) for status, op, answer in _ANSWERS]


def _read_answers(data: bytes) -> None:
    for status, request, body in FrameReader().feed(data):
        decoder = _REFUSAL if status == m.REFUSED else m.ANSWER_DECODERS.get(request & 0xFF)
        if decoder is not None:
            decoder.decode(body)


def _pieces() -> list[bytes]:
    blocks = encode_block(3, 4, bytes(ROW_BYTES) * 2, ROW_BYTES) + encode_block(5, 5, b"", ROW_BYTES)
    records = [encode_record(index, 1, b"an entry", -1) for index in (3, 4, 5)]
    offsets = array("q", accumulate(map(len, records), initial=64)).tobytes()
    return [
        msgspec.msgpack.encode(m.JournalPiece(3, 5, blocks, offsets, b"".join(records))),
        msgspec.msgpack.encode(m.JournalPiece(3, 5, blocks, b"", b"")),
    ]


def _read_piece(data: bytes) -> None:
    """A damaged piece is told; one that is not can be gone through."""
    piece = _PIECE.decode(data)
    check_piece(piece)
    for block in spans(piece.blocks):
        assert block.end <= len(piece.blocks)


TARGETS = (
    Target("native-requests", _requests, _read_requests, (FrameError,)),
    Target("native-answers", _answers, _read_answers, (FrameError, ValueError, RecursionError)),
    Target("native-pieces", _pieces, _read_piece, (BadPiece, msgspec.DecodeError)),
)
