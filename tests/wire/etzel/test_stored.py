"""Stored records: what lay on the original's disk is read and written byte for byte, in both layouts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.etzel import Layout, StoredError, StoredRecord, decode_stored, encode_stored
from tests.wire.etzel.support import VECTORS

UINT64 = st.integers(0, 2**64 - 1)
RECORDS = st.builds(
    StoredRecord,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="*-"), min_size=1),
    st.binary(),
    st.integers(0, 255),
    UINT64,
    UINT64,
    UINT64,
)


@pytest.mark.parametrize("vector", VECTORS["disk"]["records"], ids=lambda vector: vector["key"])
def test_recorded_records(vector: dict[str, Any]) -> None:
    key, value = vector["key"].encode(), bytes.fromhex(vector["value_hex"])
    record = decode_stored(key, value, Layout.ETZEL)
    qname, uid = vector["key"].split("*")
    expected = (vector["error_count"], vector["delay_abs"], vector["expires_abs"])
    assert record == StoredRecord(qname, uid, vector["item"].encode(), *expected, timeout_s=60)
    assert encode_stored(record, Layout.ETZEL) == (key, value)
    for length in range(17):
        with pytest.raises(StoredError):
            decode_stored(key, value[:length], Layout.ETZEL)


def test_the_layout_of_the_design() -> None:
    """Status, timeout, delay, expires, item; and a hyphen in the key."""
    value = bytes.fromhex("02" + "000000000000001e" + "000000006afa35b9" + "000000006afa3811") + b"item"
    record = decode_stored(b"q-u", value, Layout.SEED)
    assert record == StoredRecord("q", "u", b"item", 2, 1794782649, 1794783249, 30)
    assert encode_stored(record, Layout.SEED) == (b"q-u", value)
    for length in range(25):
        with pytest.raises(StoredError):
            decode_stored(b"q-u", value[:length], Layout.SEED)


@pytest.mark.parametrize("layout", Layout)
@given(record=RECORDS)
def test_a_record_comes_back(layout: Layout, record: StoredRecord) -> None:
    again = decode_stored(*encode_stored(record, layout), layout)
    if layout is Layout.ETZEL:
        assert again.timeout_s == 60
        again = msgspec.structs.replace(again, timeout_s=record.timeout_s)
    assert again == record


@pytest.mark.parametrize(
    ("key", "qname"),
    [(b"a*b*u", "a*b"), (b"a-b*u", "a-b"), (b"a*b-u", "a*b"), (b"*u", ""), (b"-*u", "-"), (b"a\n*u", "a\n")],
)
def test_a_key_is_parted_at_its_last_sign(key: bytes, qname: str) -> None:
    record = decode_stored(key, bytes(17), Layout.ETZEL)
    assert (record.qname, record.uid) == (qname, "u")


@pytest.mark.parametrize("key", [b"", b"qu", b"q*", b"q-", b"*", b"\xff*u", b"q*\xff"])
def test_keys_that_are_none(key: bytes) -> None:
    with pytest.raises(StoredError) as raised:
        decode_stored(key, bytes(25), Layout.ETZEL)
    assert raised.value.key == key


def test_the_count_of_errors_stops_at_255() -> None:
    """The original starts again at 0, as if the message had never failed."""
    _, value = encode_stored(StoredRecord("q", "u", b"", 256), Layout.ETZEL)
    assert value[0] == 255


@pytest.mark.parametrize(
    "record",
    [
        StoredRecord("q", "", b""),
        StoredRecord("q", "a-b", b""),
        StoredRecord("q", "a*b", b""),
        StoredRecord("\ud800", "u", b""),
        StoredRecord("q", "u", b"", -1),
        StoredRecord("q", "u", b"", 0, 2**64),
        StoredRecord("q", "u", b"", 0, 0, -1),
        StoredRecord("q", "u", b"", 0, 0, 0, 2**64),
    ],
)
@pytest.mark.parametrize("layout", Layout)
def test_what_cannot_be_stored(record: StoredRecord, layout: Layout) -> None:
    with pytest.raises(StoredError):
        encode_stored(record, layout)
