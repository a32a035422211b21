"""Entries that are not applied: named by index and bytes, and kept in a file that is believed only if it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.errors import UnreadableData
from penstock.storage.skipped import NOTHING_SKIPPED, decode_skipped, encode_skipped

FILE = Path("skipped")
SKIPPED = NOTHING_SKIPPED.with_entry(5, b"first").with_entry(900, b"second")


def test_an_entry_is_skipped_only_with_the_bytes_that_it_had() -> None:
    assert SKIPPED.covers(5, b"first")
    assert SKIPPED.covers(900, b"second")
    assert not SKIPPED.covers(5, b"another entry in its place")
    assert not SKIPPED.covers(6, b"first")


def test_the_file_is_read_as_it_was_written_and_refused_otherwise() -> None:
    data = encode_skipped(SKIPPED)
    assert decode_skipped(data, FILE) == SKIPPED
    for position in range(len(data)):
        with pytest.raises(UnreadableData):
            decode_skipped(data[:position], FILE)
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(UnreadableData):
            decode_skipped(flipped, FILE)
