"""Payloads that look like records of the log never turn a torn tail into damage, whatever their sender knows.

The sender here knows the seed of the segment, as every reader of the history does, and has read records that the node
wrote before. He does not know the salt.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.errors import Damaged
from penstock.storage.reading import MemorySource
from penstock.storage.records import (
    ENVELOPE_BYTES,
    MAGIC,
    MARK_BYTES,
    RECORD,
    encode_mark,
    encode_record,
    encode_segment_start,
)
from penstock.storage.scan import LogScan, scan_live
from penstock.storage.segmenthead import SALT_BYTES, UNSALTED, SegmentHead

FILE = Path("raft.log")
HEAD = SegmentHead.new(bytes(range(16)), bytes(range(50, 50 + SALT_BYTES)))
WRONG_SALT = SegmentHead.new(bytes(range(16)), bytes(SALT_BYTES))
WHOLE = 5
"""The entries before the one that is torn."""


class _KnownSeed(SegmentHead):
    """What a sender can compute: the right seed, and tags of another salt."""

    def __init__(self) -> None:
        super().__init__(HEAD.version, HEAD.cluster_id, WRONG_SALT.salt)
        self.seed = HEAD.seed


def scan(data: bytes) -> LogScan:
    return scan_live(MemorySource(data), FILE, None, 0)


def whole_entries() -> bytes:
    log = encode_segment_start(0, 0, HEAD)
    for index in range(WHOLE):
        log += encode_record(index, 1, b"entry %d" % index, index - 1, HEAD, len(log))
    return log + encode_mark(WHOLE - 1, 1, WHOLE - 1, HEAD, len(log))


def forgeries(log: bytes) -> list[bytes]:
    """Records that claim that entry `WHOLE` was synced, or that replay what the node wrote."""
    seals: list[tuple[SegmentHead, int]] = [(UNSALTED, 0), (_KnownSeed(), len(log) + MARK_BYTES)]
    claims = [
        forged
        for head, offset in seals
        for forged in (
            encode_mark(WHOLE, 1, WHOLE, head, offset),
            encode_mark(WHOLE - 1, 1, WHOLE - 1, head, offset),
            encode_record(WHOLE + 1, 1, b"x", WHOLE, head, offset),
        )
    ]
    return [*claims, log[-MARK_BYTES:]]


def payload_of(forged: bytes, shift: int) -> bytes:
    """The forged record again and again, from a shifted place on, with zeros behind each second one."""
    return b"p" * shift + (forged + forged + bytes(8)) * 3


def test_a_log_cut_anywhere_in_a_payload_of_forged_records_is_a_torn_tail() -> None:
    log = whole_entries()
    for forged in forgeries(log):
        for shift in range(0, MARK_BYTES, 5):
            torn = encode_record(WHOLE, 1, payload_of(forged, shift), WHOLE - 1, HEAD, len(log))
            for cut in range(1, len(torn)):
                found = scan(log + torn[:cut] + bytes(4096))
                is_whole = not any(torn[cut:])
                assert found.last_index == WHOLE - 1 + is_whole
                assert found.end == len(log) + is_whole * len(torn)


def test_a_lost_header_before_a_payload_of_forged_records_is_a_torn_tail() -> None:
    """A power cut may keep the pages of a payload and lose the one with the record's header."""
    log = whole_entries()
    for forged in forgeries(log):
        for shift in range(MARK_BYTES):
            torn = encode_record(WHOLE, 1, payload_of(forged, shift), WHOLE - 1, HEAD, len(log))
            for lost in range(1, MARK_BYTES + shift + 1):
                found = scan(log + bytes(lost) + torn[lost:] + bytes(100))
                assert (found.last_index, found.end) == (WHOLE - 1, len(log))


def test_payloads_in_a_batch_that_was_not_synced_hide_no_real_damage() -> None:
    """The record behind the forged payload is real, and says that the damaged entry was synced: refused."""
    log = whole_entries()
    for forged in forgeries(log):
        bad = encode_record(WHOLE, 1, payload_of(forged, 3), WHOLE - 1, HEAD, len(log))
        follower = encode_record(WHOLE + 1, 1, b"real", WHOLE, HEAD, len(log) + len(bad))
        for damaged in (bad[:40] + b"?" + bad[41:], bytes(MARK_BYTES) + bad[MARK_BYTES:]):
            with pytest.raises(Damaged, match=f"up to index {WHOLE} was safely on disk"):
                scan(log + damaged + follower + bytes(100))


def test_many_candidates_neither_exhaust_the_search_nor_stop_the_start() -> None:
    """Each claims a length of megabytes: none is read to its end, since its tag is wrong."""
    log = whole_entries()
    claim = RECORD.pack(1, ENVELOPE_BYTES + (3 << 20), MAGIC, 0, WHOLE, 1)
    torn = encode_record(WHOLE, 1, claim * 100_000, WHOLE - 1, HEAD, len(log))
    found = scan(log + bytes(MARK_BYTES) + torn[MARK_BYTES:] + bytes(4 << 20))
    assert (found.last_index, found.end) == (WHOLE - 1, len(log))
