"""What a client may ask: one JSON object in one text frame.

    {"cmd":"SUB","qname":Q}              Sub           {"cmd":"PUB","qname":Q,"msg":M}                   Publish
    {"cmd":"FET","qname":Q}              Fetch           "delay":0, "expires":0, "timeout":60 (seconds)
    {"cmd":"ISLP","qname":Q}             Sleep           "priority":0 (smallest first), "uid":true
    {"cmd":"ACK","qname":Q,"uid":U}      Acknowledge     "encoding":"base64" (then M is base64)
    or "DEL"                                           "message" is another word for "msg", which wins if both are there

Keys come in any order, those that are not known are ignored, and null is as good as absent. Each problem is a
RequestError with the code to answer; no other exception comes out of `parse_request`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
from msgspec import Struct

from penstock.engine.commands import DURATION_MS_MAX, INT64_MAX, INT64_MIN
from penstock.wire.etzel.errors import Nok, RequestError
from penstock.wire.etzel.names import queue_name

TIMEOUT_S_MIN: Final = 5
TIMEOUT_S_MAX: Final = 86_400
DELAY_S_MAX: Final = 365 * 86_400
UID_CHARS_MAX: Final = 255
"""Far more than any uid has, and little enough that the reply, which repeats it, is short."""
EXPIRES_S_MAX: Final = DURATION_MS_MAX // 1000
_NUMBERS: Final = (int, float)


class Sub(Struct, frozen=True, gc=False):
    """Join the subscribers of a queue; only they can be woken."""

    qname: str


class Fetch(Struct, frozen=True, gc=False):
    """Take one message."""

    qname: str


class Sleep(Struct, frozen=True, gc=False):
    """Ask to be woken when the queue has a message."""

    qname: str


class Acknowledge(Struct, frozen=True, gc=False):
    """End a message. Any short string is a uid: of one that names nothing there is nothing left to end."""

    qname: str
    uid: str


class Publish(Struct, frozen=True, gc=False):
    """Put one message into a queue, which is made if it is missing."""

    qname: str
    payload: bytes
    timeout_ms: int = 0
    """How long after it was fetched the message comes back, unless it is acknowledged; 0 leaves it to the queue, which
    waits for 60 s unless it was told otherwise."""
    delay_ms: int = 0
    expires_ms: int = 0
    """How long it is kept; 0 is for ever."""
    priority: int = 0
    """The key: the smallest goes first."""
    wants_uid: bool = False
    """The reply shall tell the uid."""


Request: TypeAlias = Sub | Fetch | Sleep | Acknowledge | Publish


class _Fields(Struct, gc=False):
    """A frame as it came. Types are checked field by field, because each has a code of its own."""

    cmd: Any = None
    qname: Any = None
    uid: Any = None
    msg: Any = None
    message: Any = None
    encoding: Any = None
    delay: Any = None
    expires: Any = None
    timeout: Any = None
    priority: Any = None


_decode_fields = msgspec.json.Decoder(_Fields).decode


def parse_request(frame: bytes | str) -> Request:
    """Read one text frame. Raises RequestError, whose `nok` is the code to answer."""
    try:
        fields = _decode_fields(frame)
    except ValueError:
        fields = _read_again(frame)
    except RecursionError:
        raise RequestError(Nok.BAD_JSON, "nested too deeply") from None
    if not isinstance(fields.cmd, str):
        raise RequestError(Nok.BAD_REQUEST, "there is no cmd")
    parse = _PARSERS.get(fields.cmd)
    if parse is None:
        raise RequestError(Nok.UNKNOWN_CMD, "there is no such command")
    if fields.qname is None:
        raise RequestError(Nok.BAD_REQUEST, "there is no qname")
    if not isinstance(fields.qname, str):
        raise RequestError(Nok.BAD_QNAME, "the qname is not a string")
    queue_name(fields.qname)
    return parse(fields)


def _read_again(frame: bytes | str) -> _Fields:
    """Read a frame that the fast decoder refused, to tell what is wrong with it.

    That decoder takes half a surrogate pair, or a number beyond all ranges, for broken JSON. It is neither: the field
    that holds it is bad, or is one that nobody reads.
    """
    try:
        text = frame if isinstance(frame, str) else frame.decode()
        # 400 digits are out of every range, and thousands are slow to convert.
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=lambda digits: int(digits[:400]))
    except (ValueError, RecursionError):
        raise RequestError(Nok.BAD_JSON, "the text is not JSON") from None
    if not isinstance(value, dict):
        raise RequestError(Nok.BAD_REQUEST, "the text is not a JSON object")
    return _Fields(**{name: value.get(name) for name in _Fields.__struct_fields__})


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_acknowledge(fields: _Fields) -> Acknowledge:
    if not isinstance(fields.uid, str):
        raise RequestError(Nok.BAD_REQUEST, "there is no uid")
    if len(fields.uid) > UID_CHARS_MAX:
        raise RequestError(Nok.BAD_REQUEST, f"the uid has more than {UID_CHARS_MAX} characters")
    if not _is_text(fields.uid):
        raise RequestError(Nok.BAD_REQUEST, "the uid has half of a surrogate pair")
    return Acknowledge(fields.qname, fields.uid)


def _parse_publish(fields: _Fields) -> Publish:
    payload = _payload(fields)
    delay_ms = _milliseconds(fields.delay, 0, 0, DELAY_S_MAX, Nok.BAD_DELAY)
    expires_ms = _milliseconds(fields.expires, 0, 0, EXPIRES_S_MAX, Nok.BAD_EXPIRES)
    if fields.expires and not expires_ms:
        expires_ms = 1  # a moment is not for ever
    timeout_ms = _milliseconds(fields.timeout, 0, TIMEOUT_S_MIN, TIMEOUT_S_MAX, Nok.BAD_TIMEOUT)
    priority = 0 if fields.priority is None else fields.priority
    if type(priority) is not int or not INT64_MIN <= priority <= INT64_MAX:
        raise RequestError(Nok.BAD_REQUEST, "the priority is not an integer of 64 bits")
    # The original ignores a uid in PUB whatever it is, so only the one value that asks has a meaning.
    return Publish(fields.qname, payload, timeout_ms, delay_ms, expires_ms, priority, fields.uid is True)


def _payload(fields: _Fields) -> bytes:
    text = fields.message if fields.msg is None else fields.msg
    if text is None:
        raise RequestError(Nok.BAD_REQUEST, "there is no msg")
    if not isinstance(text, str):
        raise RequestError(Nok.BAD_MSG, "the msg is not a string")
    try:
        if fields.encoding is None:
            return text.encode()
        if fields.encoding == "base64":
            return b64decode(text, validate=True)
    except ValueError:
        raise RequestError(Nok.BAD_MSG, "the msg has half of a surrogate pair, or is not base64") from None
    raise RequestError(Nok.BAD_MSG, "the encoding is not base64")


def _milliseconds(value: Any, default_ms: int, min_s: int, max_s: int, nok: Nok) -> int:
    if value is None:
        return default_ms
    # A bool is an int to Python, but true is no time. Ranges come first: they also stop infinity.
    if type(value) not in _NUMBERS or not min_s <= value <= max_s:
        raise RequestError(nok, f"not a number of seconds from {min_s} to {max_s}")
    duration_ms: int = round(value * 1000)
    return duration_ms


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_PARSERS: Final[dict[str, Callable[[_Fields], Request]]] = {
    "SUB": lambda fields: Sub(fields.qname),
    "FET": lambda fields: Fetch(fields.qname),
    "ISLP": lambda fields: Sleep(fields.qname),
    "ACK": _parse_acknowledge,
    "DEL": _parse_acknowledge,
    "PUB": _parse_publish,
}


def encode_request(request: Request) -> bytes:
    """The text frame of a request, as a client sends it. Raises RequestError if its strings cannot be said in JSON."""
    try:
        return msgspec.json.encode(_fields_of(request))
    except UnicodeEncodeError:
        raise RequestError(Nok.BAD_REQUEST, "half of a surrogate pair") from None


def _fields_of(request: Request) -> dict[str, object]:
    match request:
        case Sub(qname):
            return {"cmd": "SUB", "qname": qname}
        case Fetch(qname):
            return {"cmd": "FET", "qname": qname}
        case Sleep(qname):
            return {"cmd": "ISLP", "qname": qname}
        case Acknowledge(qname, uid):
            return {"cmd": "ACK", "qname": qname, "uid": uid}
        case Publish():
            return _fields_of_publish(request)


def _fields_of_publish(request: Publish) -> dict[str, object]:
    # The original must have delay and expires; the rest is said only where it says something.
    fields: dict[str, object] = {"cmd": "PUB", "qname": request.qname}
    try:
        fields["msg"] = request.payload.decode()
    except UnicodeDecodeError:
        fields |= {"msg": b64encode(request.payload).decode("ascii"), "encoding": "base64"}
    fields |= {"delay": _seconds(request.delay_ms), "expires": _seconds(request.expires_ms)}
    if request.timeout_ms:
        fields["timeout"] = _seconds(request.timeout_ms)
    if request.priority:
        fields["priority"] = request.priority
    if request.wants_uid:
        fields["uid"] = True
    return fields


def _seconds(duration_ms: int) -> int | float:
    return duration_ms / 1000 if duration_ms % 1000 else duration_ms // 1000
