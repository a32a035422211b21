"""A torn tail is cut, damage is refused: logs cut at every byte, with flipped bits, with holes, with look-alikes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.errors import Damaged, NewerVersion, OlderVersion, WrongMarker
from penstock.storage.layout import MARKER
from penstock.storage.reading import MemorySource
from penstock.storage.records import (
    MARK_BYTES,
    Entry,
    Walk,
    encode_log,
    encode_mark,
    encode_record,
    encode_segment_start,
)
from penstock.storage.scan import LogScan, scan_live, scan_sealed
from penstock.storage.segmenthead import SALT_BYTES, UNSALTED, SegmentHead

FILE = Path("raft.log")
SALTED = SegmentHead.new(bytes(range(16)), b"salt" * (SALT_BYTES // 4))


class Version:
    """The version of the format that these tests write."""

    head: SegmentHead = SALTED


@pytest.fixture(scope="module", autouse=True, params=[UNSALTED, SALTED], ids=["version2", "version3"])
def _each_version(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on logs of both versions."""
    Version.head = request.param
    yield
    Version.head = SALTED


class Made:
    """A log file put together record by record, and where each lies."""

    def __init__(self, first_index: int = 0) -> None:
        self.head = Version.head
        self.data = encode_segment_start(first_index, 0, self.head)
        self.entries: list[Entry] = []
        self.starts: list[int] = [self.head.size_bytes]
        self.is_mark: list[bool] = [True]
        self.next = first_index

    def add(self, data: bytes, durable: int | None = None) -> None:
        """Add an entry; without `durable` all before it is synced."""
        durable = self.next - 1 if durable is None else durable
        self._record(encode_record(self.next, 1, data, durable, self.head, len(self.data)), False)
        self.entries.append((self.next, 1, data))
        self.next += 1

    def mark(self) -> None:
        self._record(encode_mark(self.next - 1, 1, self.next - 1, self.head, len(self.data)), True)

    def _record(self, record: bytes, is_mark: bool) -> None:
        self.starts.append(len(self.data))
        self.is_mark.append(is_mark)
        self.data += record

    def record_at(self, offset: int) -> int:
        """The number of the record that holds this byte."""
        return max(number for number, start in enumerate(self.starts) if start <= offset)


def scan(data: bytes, first_index: int | None = None, next_after_base: int = 0) -> LogScan:
    return scan_live(MemorySource(data), FILE, first_index, next_after_base)


def scan_or_error(data: bytes, first_index: int | None = None, next_after_base: int = 0) -> LogScan | Damaged:
    try:
        return scan(data, first_index, next_after_base)
    except Damaged as error:
        return error


def entries_of(data: bytes, found: LogScan) -> list[Entry]:
    """What recovery would hand out: the entries up to the end that the scan found."""
    return list(Walk.of_segment(MemorySource(data[: found.end]), found.head))


def flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def typical(count: int, size: Callable[[int], int], marks_every: int = 7) -> Made:
    """A log as a durable node writes it, with a mark now and then and one at the end."""
    made = Made()
    for number in range(count):
        made.add(bytes([number % 255 + 1]) * size(number))
        if number % marks_every == marks_every - 1:
            made.mark()
    made.mark()
    return made


def test_a_log_cut_at_every_byte_of_its_last_64_kib_keeps_every_whole_record() -> None:
    made = typical(60, lambda number: 700 + number * 131 % 1400)
    assert len(made.data) > 64 * 1024
    ends = [*made.starts[1:], len(made.data)]
    for cut in range(len(made.data) - 64 * 1024, len(made.data)):
        found = scan(made.data[:cut])
        whole = sum(end <= cut for end in ends)
        count = whole - sum(made.is_mark[:whole])
        assert found.last_index == count - 1
        assert found.end == ends[whole - 1]
        rest = len(made.data[found.end : cut].rstrip(b"\0"))
        assert (found.torn is None) == (rest == 0)
        if found.torn is not None:
            assert (found.torn.offset, found.torn.length) == (found.end, rest)


def test_a_write_cut_short_in_a_preallocated_file_keeps_every_whole_record() -> None:
    made = typical(30, lambda number: 1 + number * 37 % 300)
    ends = [*made.starts[1:], len(made.data)]
    for cut in range(made.starts[1], len(made.data)):
        data = made.data[:cut] + bytes(5000)
        found = scan(data)
        whole = sum(end <= cut for end in ends)
        # A record whose lost end was zeros anyway is whole.
        if not any(made.data[cut : ends[whole]]):
            whole += 1
        assert found.end == ends[whole - 1]
        assert entries_of(data, found) == made.entries[: whole - sum(made.is_mark[:whole])]


def test_2000_flipped_bits_in_a_log_that_ends_with_a_mark_never_lose_or_change_an_entry() -> None:
    """Everything is durable: a flip is refused with its place, or hit a mark or the unused space, and all is there."""
    made = typical(80, lambda number: 5 + number * 31 % 200)
    data = made.data + bytes(4096)
    chance = random.Random(20)
    refused = mended = 0
    for _ in range(2000):
        bit = chance.randrange(made.starts[0] * 8, len(data) * 8)
        flipped = flip(data, bit)
        number = made.record_at(bit // 8)
        found = scan_or_error(flipped)
        if isinstance(found, Damaged):
            refused += 1
            assert (found.file, found.offset) == (FILE, made.starts[number])
            continue
        mended += 1
        assert bit // 8 >= len(made.data) or made.is_mark[number]
        for lost in found.lost_marks:
            restored = encode_mark(lost.index, lost.term, lost.index, made.head, lost.offset)
            assert data[lost.offset : lost.offset + MARK_BYTES] == restored
            flipped = flipped[: lost.offset] + restored + flipped[lost.offset + MARK_BYTES :]
        assert entries_of(flipped, found) == made.entries
    assert refused > 1000
    assert mended > 100


def test_a_flipped_bit_in_a_last_record_without_a_mark_cuts_that_record_alone() -> None:
    made = Made()
    for number in range(20):
        made.add(b"entry %d" % number)
    for bit in range(made.starts[-1] * 8, len(made.data) * 8):
        found = scan(flip(made.data, bit) + bytes(512))
        assert found.end == made.starts[-1]
        assert found.torn is not None
        assert found.last_index == 18


def test_2000_flipped_bits_in_a_sealed_segment_are_all_refused() -> None:
    made = typical(80, lambda number: 5 + number * 31 % 200)
    chance = random.Random(21)
    for _ in range(2000):
        bit = chance.randrange(made.starts[0] * 8, len(made.data) * 8)
        with pytest.raises(Damaged) as caught:
            scan_sealed(MemorySource(flip(made.data, bit)), FILE, 0)
        assert caught.value.offset == made.starts[made.record_at(bit // 8)]


def test_bytes_after_the_end_of_a_sealed_segment_are_damage() -> None:
    made = typical(3, lambda _: 10)
    scan_sealed(MemorySource(made.data + bytes(100)), FILE, 0)
    with pytest.raises(Damaged):
        scan_sealed(MemorySource(made.data + bytes(100) + b"x"), FILE, 0)


def test_a_damaged_length_that_leaps_over_the_rest_of_the_log_is_refused() -> None:
    """The length of a record in the middle grows so much that every later record seems to be its payload."""
    made = typical(50, lambda _: 100)
    data = made.data + bytes(1 << 22)
    for exponent in range(10, 22):
        bit = (made.starts[10] + 4) * 8 + exponent
        with pytest.raises(Damaged) as caught:
            scan(flip(data, bit))
        assert caught.value.offset == made.starts[10]


def test_pages_that_reached_the_disk_out_of_order_are_a_torn_tail() -> None:
    """Without syncs a hole can be followed by good records; they do not call it durable, so it is cut there."""
    for hole in (bytes, lambda length: b"\xff" * length):
        made = Made()
        for number in range(40):
            made.add(b"unsynced entry %d" % number, durable=min(9, number - 1))
        start, end = made.starts[21], made.starts[24]
        found = scan(made.data[:start] + hole(end - start) + made.data[end:] + bytes(300))
        assert found.last_index == 19
        assert found.torn is not None
        assert (found.torn.offset, found.torn.length) == (start, len(made.data) - start)


def test_the_same_hole_is_damage_once_a_later_record_calls_it_durable() -> None:
    made = Made()
    for number in range(40):
        made.add(b"entry %d" % number, durable=min(9 if number < 30 else 29, number - 1))
    start, end = made.starts[21], made.starts[24]
    with pytest.raises(Damaged) as caught:
        scan(made.data[:start] + bytes(end - start) + made.data[end:] + bytes(300))
    assert caught.value.offset == start
    assert "29" in caught.value.reason


def test_a_damaged_mark_between_good_records_is_written_again_and_costs_nothing() -> None:
    made = Made()
    for number in range(5):
        made.add(b"entry %d" % number)
    made.mark()
    made.add(b"after the mark")
    offset = made.starts[-2]
    for bit in range(offset * 8, (offset + MARK_BYTES) * 8):
        found = scan(flip(made.data, bit) + bytes(200))
        assert [(lost.offset, lost.index) for lost in found.lost_marks] == [(offset, 4)]
        assert found.last_index == 5
        assert found.torn is None


def test_a_damaged_opening_mark_is_written_again() -> None:
    made = Made(first_index=100)
    made.add(b"the first")
    found = scan(flip(made.data, 8 * (made.starts[0] + 12)), None, 150)
    assert found.first_index == 100
    assert [(lost.offset, lost.index) for lost in found.lost_marks] == [(made.starts[0], 99)]


def test_junk_after_the_end_is_cut_and_not_taken_for_damage() -> None:
    made = typical(10, lambda _: 50)
    found = scan(made.data + bytes(40) + b"junk" + bytes(100))
    assert found.end == len(made.data)
    assert found.torn is not None
    assert found.torn.length == 44
    assert found.last_index == 9


def test_a_torn_record_whose_payload_looks_like_a_log_is_still_a_torn_tail() -> None:
    """Somebody stores log files in the queue; a torn write of such a payload must not look like damage."""
    other = Made()
    for number in range(500):
        other.add(b"from another log %d" % number)
    made = Made()
    for number in range(300):
        made.add(b"entry %d" % number)
    made.add(other.data + b"and more" * 1000)
    found = scan(made.data[:-4000] + bytes(4000 + 512))
    assert found.end == made.starts[-1]
    assert found.last_index == 299


def test_a_payload_of_look_alikes_does_not_make_the_search_long() -> None:
    made = Made()
    made.add(b"entry")
    start = len(made.data)
    lie = encode_record(1, 1, b"x" * 60, 0)[:12] + bytes(20)
    made.add(lie * 30_000)
    found = scan(made.data[:start] + b"\x01" * 32 + made.data[start + 32 :] + bytes(1000))
    assert found.end == start


def test_a_hole_at_the_very_beginning_is_damage_when_what_follows_was_durable() -> None:
    made = typical(10, lambda _: 50)
    start = made.starts[0]
    with pytest.raises(Damaged) as caught:
        scan(made.data[:start] + bytes(200) + made.data[start + 200 :])
    assert caught.value.offset == made.starts[0]


def test_an_index_that_does_not_follow_and_a_term_that_falls_are_bad_records() -> None:
    head = Version.head
    start = encode_segment_start(0, 0, head)
    first = encode_record(0, 5, b"a", -1, head, len(start))
    for second, reason in (
        (encode_record(2, 5, b"b", 0, head, len(start + first)), "index 2 where 1 is expected"),
        (encode_record(1, 4, b"b", 0, head, len(start + first)), "term 4 after term 5"),
        (encode_mark(3, 5, 0, head, len(start + first)), "a mark of index 3 where 0 is expected"),
    ):
        walk = Walk.of_segment(MemorySource(start + first + second), head)
        assert [index for index, _, _ in walk] == [0]
        assert walk.fault == reason
        assert walk.offset == len(start + first)


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"", WrongMarker),
        (MARKER + b"\x02\0\0", WrongMarker),
        (b"\0" * 8, WrongMarker),
        (MARKER + b"\x04\0\0\0", NewerVersion),
        (MARKER + b"\x01\0\0\0", OlderVersion),
        (MARKER + b"\xff\xff\xff\xff", WrongMarker),
        (SALTED.encode()[:-1], Damaged),
        (flip(SALTED.encode(), 8 * 30), Damaged),
    ],
)
def test_a_wrong_beginning_is_refused_with_its_reason(head: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        scan(head)


def test_records_larger_than_the_reading_window_are_read() -> None:
    made = Made()
    for size in (10, 5 << 20, 10, 9 << 20, 3):
        made.add(bytes([size % 200 + 1]) * size)
    found = scan(made.data + bytes(100))
    assert entries_of(made.data, found) == made.entries


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=20), st.integers(0, 1000), st.data())
def test_any_log_survives_any_cut_and_any_flip_is_refused_or_harmless(
    payloads: list[bytes], first_index: int, data: st.DataObject
) -> None:
    head = Version.head
    log = encode_log(first_index, 3, [(first_index + n, 3, payload) for n, payload in enumerate(payloads)], head)
    expected = [(first_index + n, 3, payload) for n, payload in enumerate(payloads)]
    assert entries_of(log, scan(log, None, first_index)) == expected
    cut = data.draw(st.integers(head.size_bytes, len(log)))
    found = scan(log[:cut], first_index, first_index)
    assert entries_of(log, found) == expected[: found.last_index - first_index + 1]
    bit = data.draw(st.integers(head.size_bytes * 8, len(log) * 8 - 1))
    judged = scan_or_error(flip(log, bit), first_index, first_index)
    assert isinstance(judged, Damaged) or judged.last_index == first_index + len(payloads) - 1
