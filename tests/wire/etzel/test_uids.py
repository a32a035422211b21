"""Uids: 14 to 18 ASCII characters, one for each message, and nobody else's is taken for ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.etzel import UidOutOfRange, decode_uid, encode_uid
from penstock.wire.etzel.uids import NUMBER_MAX
from tests.wire.etzel.support import VECTORS, steps

NUMBERS = st.integers(0, NUMBER_MAX) | st.sampled_from([0, 1, 2**48 - 1, 2**48, NUMBER_MAX])


@given(NUMBERS, NUMBERS)
def test_a_uid_gives_its_numbers_back(queue_uid: int, record_id: int) -> None:
    uid = encode_uid(queue_uid, record_id)
    assert re.fullmatch(r"[A-Za-z0-9.~]{14,18}", uid)
    assert decode_uid(uid) == (queue_uid, record_id)


@given(st.from_regex(r"[A-Za-z0-9.~]{13,19}", fullmatch=True) | st.text(st.characters(), max_size=20))
def test_a_message_has_one_uid(uid: str) -> None:
    numbers = decode_uid(uid)
    assert numbers is None or encode_uid(*numbers) == uid


@pytest.mark.parametrize(
    "uid",
    [
        *["", "nosuch", "ZZ0000000000_1", "AO1794782188_250", "A" * 14, "A" * 15, "A" * 17, "A" * 18, "A" * 20],
        *["é" * 16, "A" * 15 + "+", "A" * 15 + "/", "A" * 15 + "=", "A" * 16 + "\n", "\ud800" * 16, "\u0660" * 16],
    ],
)
def test_what_is_not_ours(uid: str) -> None:
    assert decode_uid(uid) is None


def test_no_uid_of_the_original_is_ours() -> None:
    recorded = {m["uid"] for step in steps("recv") if "raw" in step for m in [_uid_of(step["raw"])] if m}
    recorded |= {record["key"].rpartition("*")[2] for record in VECTORS["disk"]["records"]}
    assert len(recorded) > 20
    assert [uid for uid in recorded if decode_uid(uid) is not None] == []


def _uid_of(frame: str) -> re.Match[str] | None:
    return re.search(r'"uid":"(?P<uid>[^"]+)"', frame)


@pytest.mark.parametrize("numbers", [(-1, 0), (0, -1), (NUMBER_MAX + 1, 0), (0, NUMBER_MAX + 1)])
def test_what_no_uid_can_hold(numbers: tuple[int, int]) -> None:
    with pytest.raises(UidOutOfRange) as raised:
        encode_uid(*numbers)
    assert (raised.value.queue_uid, raised.value.record_id) == numbers
