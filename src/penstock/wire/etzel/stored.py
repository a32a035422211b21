"""The records that Etzel keeps on disk, for taking them over and for handing them back.

    key      qname, a separator, uid
    value    error count  8 bits    deliveries so far
             timeout     64 bits    seconds to redelivery; in the layout `seed` alone
             delay       64 bits    the unix second from which the message is available
             expires     64 bits    the unix second at which it ends
             item                   the payload, to the end

Numbers are big-endian. The original's code separates by `*` and has no timeout (layout `etzel`); its design separates
by `-` and has one (layout `seed`). No uid has either sign, so a key of any layout is parted at the last of both.
"""

from __future__ import annotations

import re
import struct
from enum import StrEnum
from typing import Final

from msgspec import Struct

from penstock.wire.etzel.errors import StoredError

ERROR_COUNT_MAX: Final = 255
_TIMEOUT_S_DEFAULT: Final = 60
_UINT64_MAX: Final = 2**64 - 1
_ETZEL_HEADER: Final = struct.Struct(">BQQ")
_SEED_HEADER: Final = struct.Struct(">BQQQ")
_part_key = re.compile(rb"(.*)[*-]([^*-]+)", re.DOTALL).fullmatch
_is_uid = re.compile(r"[^*-]+").fullmatch


class Layout(StrEnum):
    """Which of the two forms a record has."""

    ETZEL = "etzel"
    SEED = "seed"


class StoredRecord(Struct, frozen=True, gc=False):
    """One message as it lies on disk."""

    qname: str
    uid: str
    payload: bytes
    error_count: int = 0
    available_at_s: int = 0
    expires_at_s: int = 0
    timeout_s: int = _TIMEOUT_S_DEFAULT
    """Where the layout has none, the 60 seconds that the original always waits."""


def decode_stored(key: bytes, value: bytes, layout: Layout) -> StoredRecord:
    """Read one record. Raises StoredError."""
    parts = _part_key(key)
    if parts is None:
        raise StoredError(key, "the key has no qname and uid")
    try:
        qname, uid = parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        raise StoredError(key, "the key is not UTF-8") from None
    header = _ETZEL_HEADER if layout is Layout.ETZEL else _SEED_HEADER
    if len(value) < header.size:
        raise StoredError(key, f"{len(value)} bytes cannot hold the header of {header.size}")
    error_count, *timeout_s, available_at_s, expires_at_s = header.unpack_from(value)
    payload = value[header.size :]
    return StoredRecord(qname, uid, payload, error_count, available_at_s, expires_at_s, *timeout_s)


def encode_stored(record: StoredRecord, layout: Layout) -> tuple[bytes, bytes]:
    """Write one record as key and value; the count of errors stops at 255. Raises StoredError."""
    separator = "*" if layout is Layout.ETZEL else "-"
    name = f"{record.qname}{separator}{record.uid}"
    try:
        key = name.encode()
    except UnicodeEncodeError:
        raise StoredError(name.encode(errors="replace"), "half of a surrogate pair") from None
    if not _is_uid(record.uid):
        raise StoredError(key, "the uid is empty or has a sign that ends the qname")
    numbers = (record.error_count, record.timeout_s, record.available_at_s, record.expires_at_s)
    if not all(0 <= number <= _UINT64_MAX for number in numbers):
        raise StoredError(key, "a number is negative or has more than 64 bits")
    error_count, timeout_s, *moments = numbers
    error_count = min(error_count, ERROR_COUNT_MAX)
    if layout is Layout.ETZEL:
        return key, _ETZEL_HEADER.pack(error_count, *moments) + record.payload
    return key, _SEED_HEADER.pack(error_count, timeout_s, *moments) + record.payload
