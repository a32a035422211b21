"""Uids: how Etzel's clients name a message, computed from the queue's uid and the record's id.

Both numbers are written in 48 bits and these 12 bytes in base64: 16 characters. Should a number ever need more, the
next 6 bits of each stand in front as two characters more: 18, which is all that Etzel allows. 54 bits last for 570
years at a million messages a second.

The alphabet has `.` and `~` for base64's `+` and `/`. It lacks `_`, which is in every uid of the original, so none of
those is ever taken for one of ours; and it lacks `*` and `-`, which part the uid from the qname in stored keys.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from typing import Final

from penstock.wire.etzel.errors import UidOutOfRange

NUMBER_MAX: Final = 2**54 - 1
"""The largest queue uid and the largest record id that a uid can hold."""

_LOW_BITS: Final = 48
_LOW_MASK: Final = 2**_LOW_BITS - 1
_TO_OURS: Final = bytes.maketrans(b"+/", b".~")
_TO_BASE64: Final = bytes.maketrans(b".~", b"+/")
_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.~"
_is_ours = re.compile(r"[A-Za-z0-9.~]{16}(?:[A-Za-z0-9.~]{2})?").fullmatch


def encode_uid(queue_uid: int, record_id: int) -> str:
    """The uid of a message. Raises UidOutOfRange where a number is negative or above NUMBER_MAX."""
    if not (0 <= queue_uid <= NUMBER_MAX and 0 <= record_id <= NUMBER_MAX):
        raise UidOutOfRange(queue_uid, record_id)
    low = (queue_uid & _LOW_MASK) << _LOW_BITS | record_id & _LOW_MASK
    text = b2a_base64(low.to_bytes(12, "big"), newline=False).translate(_TO_OURS).decode("ascii")
    if queue_uid <= _LOW_MASK and record_id <= _LOW_MASK:
        return text
    return _DIGITS[queue_uid >> _LOW_BITS] + _DIGITS[record_id >> _LOW_BITS] + text


def decode_uid(uid: str) -> tuple[int, int] | None:
    """The queue uid and the record id behind a uid, or None if the uid is not one of ours."""
    if not _is_ours(uid):
        return None
    low = int.from_bytes(a2b_base64(uid[-16:].encode("ascii").translate(_TO_BASE64)), "big")
    queue_uid, record_id = low >> _LOW_BITS, low & _LOW_MASK
    if len(uid) == 16:
        return queue_uid, record_id
    high_queue, high_record = _DIGITS.index(uid[0]), _DIGITS.index(uid[1])
    if not (high_queue or high_record):
        return None  # the short form is the only name of these numbers
    return high_queue << _LOW_BITS | queue_uid, high_record << _LOW_BITS | record_id
