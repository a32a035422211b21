"""The floor's protocol: a length and a body, answered by one byte."""

from __future__ import annotations

from bench.dialogues.shapes import PAYLOAD, Ring
from bench.errors import UnexpectedAnswer


def requests(count: int) -> Ring:
    """Requests that carry a payload."""
    return Ring([len(PAYLOAD).to_bytes(4, "big") + PAYLOAD] * count)


def count_answers(data: bytes) -> int:
    """One byte each."""
    if data.strip(b"\1"):
        raise UnexpectedAnswer("a request to the floor", data)
    return len(data)
