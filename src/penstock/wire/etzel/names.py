"""Etzel's qnames and the queue names that they stand for.

A qname is any string, a queue name is 0 to 255 bytes in 33..126. So the UTF-8 of a qname is written with `%XX` for each
byte outside that range, and for each `%` that would else be read as the beginning of such a code:

    orders          orders          50%             50%
    two words       two%20words     50%25           50%2525

No two qnames share a queue name. The other way round, a queue that another protocol named `%41` has no qname.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.engine.names import NAME_BYTES_MAX
from penstock.wire.etzel.errors import Nok, RequestError

_TO_ESCAPE = re.compile(rb"[^!-~]|%(?=[0-9A-Fa-f]{2})")
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")


# A connection says the same few names again and again. What is refused is not kept, so an entry is small.
@lru_cache(maxsize=4096)
def queue_name(qname: str) -> str:
    """The queue that a client means by `qname`. Raises RequestError (BAD_QNAME) if there can be none."""
    if len(qname) > NAME_BYTES_MAX:
        raise _too_long()
    try:
        text = qname.encode()
    except UnicodeEncodeError:
        raise RequestError(Nok.BAD_QNAME, "half of a surrogate pair") from None
    name = _TO_ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], text)
    if len(name) > NAME_BYTES_MAX:
        raise _too_long()
    return name.decode("ascii")


def qname_of(queue: str) -> str | None:
    """The qname that stands for a queue, or None if no client can say its name."""
    try:
        qname = _ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), queue.encode("ascii")).decode()
        return qname if queue_name(qname) == queue else None
    except (UnicodeError, RequestError):
        return None


def _too_long() -> RequestError:
    return RequestError(Nok.BAD_QNAME, f"the queue's name has more than {NAME_BYTES_MAX} bytes")
