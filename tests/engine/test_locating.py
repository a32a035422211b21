"""The places of payloads in their entries: always the same bytes, found without a search through large ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import commands as c
from penstock.engine.locating import LARGE_BYTES, find_part
from tests.engine.driving import Drive, events_of, item

SIZES = (0, 1, 31, 32, 255, 256, LARGE_BYTES - 1, LARGE_BYTES, 65_535, 65_536, 200_000)


@pytest.mark.parametrize("filling", [b"\0", b"\xc6\0\1\0\0", b"x"], ids=["zeros", "headers", "plain"])
def test_every_row_names_the_bytes_of_its_payload(filling: bytes) -> None:
    drive = Drive()
    payloads = [(filling * size)[:size] for size in SIZES]
    items = [item(key, payload, {"a": "b" * key} if key % 2 else None) for key, payload in enumerate(payloads)]
    drive.do(c.Put("", items))
    drive.do(c.Put("", [item(0, payload) for payload in reversed(payloads)]))
    drive.do(c.PutMany([("", items)]))
    drive.do(c.Stage("q", 1, 0, 0, 0, [("", items)]))
    drive.do(c.Publish("q", 1, [(0, 0)]))
    drive.do(c.Bind("b", "", "", ""))
    drive.do(c.Broadcast(1, b"tag" * 300, payloads[-1]))
    expected = [*payloads, *reversed(payloads), *payloads, *payloads, payloads[-1]]
    rows = [event for event in events_of(drive.rows) if event.name == "put"]
    assert len(rows) == len(expected)
    for event, payload in zip(rows, expected, strict=True):
        entry = drive.log[event.payload_index][1]
        assert entry[event.payload_offset : event.payload_offset + event.payload_bytes] == payload


@given(s.binary(max_size=40), s.sampled_from((1, LARGE_BYTES, 70_000)), s.binary(max_size=40), s.integers(0, 60))
def test_what_is_in_the_body_is_found_from_the_start_on(before: bytes, size: int, after: bytes, start: int) -> None:
    part = bytes(range(256)) * (size // 256) + b"end"
    for framed in (part, c.encode(part)):
        body = before + framed + after
        found = find_part(body, part, start)
        if start <= body.index(part):
            assert body[found : found + len(part)] == part
            assert found >= start
        else:
            assert found == body.find(part, start)


def test_the_place_of_a_large_payload_is_compared_and_not_searched_for() -> None:
    """A search for a part prepares a table as long as the part; the header before it is five bytes."""

    class Watched(bytes):
        searched_bytes = 0

        def find(self, part: bytes, *limits: int) -> int:  # type: ignore[override]
            Watched.searched_bytes = max(Watched.searched_bytes, len(part))
            return super().find(part, *limits)

    payload = bytes(1 << 20)
    body = Watched(c.encode(c.Put("queue", [item(7, payload)])))
    assert body[find_part(body, payload, 0) :].startswith(payload)
    assert Watched.searched_bytes == 5
