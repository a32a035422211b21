"""The files byte for byte. A change of these examples is a change of the format, and needs a new version.

The checksums in the examples are computed here by the plain definition of CRC-32C, not by the library that writes them.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.storage import journalfile, snapshot
from penstock.storage.errors import Damaged, NewerVersion, OlderVersion, WrongMarker
from penstock.storage.metadata import Metadata, decode_metadata, encode_metadata
from penstock.storage.reading import MemorySource
from penstock.storage.records import (
    encode_log,
    encode_mark,
    encode_record,
    encode_record_header,
    encode_segment_start,
    index_of_mark,
)
from penstock.storage.segmenthead import HEAD_BYTES, SegmentHead
from tests.storage.support import FastDisk

FILE = Path("file")
MARKER = "2f0f6f2f"


def plain_crc32c(data: bytes) -> int:
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def crc(*parts: str | bytes) -> str:
    """The checksum of these bytes as it stands in a file."""
    data = b"".join(part if isinstance(part, bytes) else bytes.fromhex(part) for part in parts)
    return plain_crc32c(data).to_bytes(4, "little").hex()


def test_the_plain_checksum_is_crc_32c() -> None:
    assert plain_crc32c(b"123456789") == 0xE3069283


def test_a_record_of_the_log() -> None:
    """Term, length of envelope and entry, magic, checksum, index, durable, entry."""
    front, back = "03000000 1d000000 504e534b", "0500000000000000 0400000000000000" + b"entry".hex()
    assert encode_record(5, 3, b"entry", 4) == bytes.fromhex(front + crc(front, back) + back)
    assert crc(front, back) == "815b322c"


def test_a_mark_is_a_record_without_an_entry() -> None:
    front, back = "03000000 18000000 504e534b", "0500000000000000 0500000000000000"
    assert encode_mark(5, 3, 5) == bytes.fromhex(front + crc(front, back) + back)
    assert crc(front, back) == "7b21f480"
    assert index_of_mark(encode_mark(5, 3, 5)) == 5
    assert index_of_mark(encode_record(5, 3, b"", 5)[:-1] + b"\1") is None


def test_a_segment_begins_with_marker_version_and_opening_mark() -> None:
    front, back = "00000000 18000000 504e534b", "ffffffffffffffff ffffffffffffffff"
    expected = MARKER + "02000000" + front + crc(front, back) + back
    assert encode_segment_start(0, 0) == bytes.fromhex(expected)


def test_a_segment_of_version_3_names_its_cluster_and_its_records_carry_seed_and_tag() -> None:
    """The seed and the tags are computed here with the key as the documentation of the format has it."""
    cluster, salt = bytes(range(16)), bytes(range(100, 116))
    head = SegmentHead.new(cluster, salt)
    fields = MARKER + "03000000" + cluster.hex() + salt.hex()
    assert head.encode() == bytes.fromhex(fields + crc(fields))
    assert (head.size_bytes, HEAD_BYTES) == (44, 44)
    seed = hashlib.blake2b(key=salt, person=b"seed", digest_size=4).digest()
    assert head.seed == int.from_bytes(seed, "little")
    tagged = struct.pack("<qiiqI", 76, 3, 29, 5, 2 | 1 << 31)
    tag = hashlib.blake2b(tagged, key=salt, person=b"tag", digest_size=4).digest()
    front, back = "03000000 1d000000 504e534b", "0500000000000000 02000080" + tag.hex() + b"entry".hex()
    record = bytes.fromhex(front + "00000000" + back)
    found = encode_record(5, 3, b"entry", 3, head, 76)
    assert found[:12] + bytes(4) + found[16:] == record
    relaxed = encode_record_header(5, 3, b"entry", 3, head, 76, is_promised=False)
    assert relaxed[24:28].hex() == "02000000", "a record of another mode than durable says so"
    checked = bytes.fromhex(front + back)
    assert int.from_bytes(found[12:16], "little") == crc32c(checked, head.seed) != crc32c(checked)


def test_a_whole_log_for_an_import_calls_every_entry_durable() -> None:
    log = encode_log(10, 2, [(10, 2, b"a"), (11, 3, b"b")])
    assert log == (
        encode_segment_start(10, 2)
        + encode_record(10, 2, b"a", 9)
        + encode_record(11, 3, b"b", 10)
        + encode_mark(11, 3, 11)
    )
    with pytest.raises(ValueError, match="contiguous"):
        encode_log(0, 0, [(1, 1, b"a")])
    with pytest.raises(ValueError, match="have bytes"):
        encode_log(0, 0, [(0, 1, b"")])


def test_metadata_with_and_without_a_vote() -> None:
    ids = bytes(range(16)).hex() + "07000000"
    voted = MARKER + "02000000 09000000 01 02000000" + ids
    assert encode_metadata(Metadata(9, 2, bytes(range(16)), 7)) == bytes.fromhex(voted + crc(voted))
    assert len(bytes.fromhex(voted)) == 17 + 20
    without = MARKER + "02000000 00000000 00 00000000" + ids
    assert encode_metadata(Metadata(0, None, bytes(range(16)), 7)) == bytes.fromhex(without + crc(without))
    for text in (voted, without):
        data = bytes.fromhex(text + crc(text))
        assert encode_metadata(decode_metadata(data, FILE)) == data


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (MARKER + "02000000 09000000 02 02000000" + "00" * 20, Damaged),  # has-vote is neither 0 nor 1
        (MARKER + "02000000 09000000 00 02000000" + "00" * 20, Damaged),  # a vote without has-vote
        (MARKER + "02000000 ffffffff 00 00000000" + "00" * 20, Damaged),  # a term below 0
        (MARKER + "03000000 09000000 00 00000000" + "00" * 20, NewerVersion),
        (MARKER + "01000000 09000000 00 00000000", OlderVersion),
        ("00000000 02000000 09000000 00 00000000" + "00" * 20, WrongMarker),
        ("2f0f6f", WrongMarker),
    ],
)
def test_metadata_that_cannot_be(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_metadata(bytes.fromhex(text + crc(text)), FILE)


def test_metadata_of_another_length_is_damaged() -> None:
    data = encode_metadata(Metadata(9, 2, bytes(16), 7))
    for wrong in (data[:-1], data + b"\0", data[:17]):
        with pytest.raises(Damaged):
            decode_metadata(wrong, FILE)


def test_a_cluster_id_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        encode_metadata(Metadata(1, None, b"short", 7))


def written_snapshot(path: Path, blocks: list[bytes]) -> bytes:
    file = snapshot.SnapshotFile(FastDisk(), path, 41, 3, "snapshot")
    for block in blocks:
        file.write_block(block)
    file.finish()
    return path.read_bytes()


def test_a_snapshot_of_two_blocks(tmp_path: Path) -> None:
    header = MARKER + "feffffff 02000000 2900000000000000 0300000000000000"
    first, second, end = crc("03000000", b"one"), crc("06000000", b"blocks"), crc("00000000")
    count = "0200000000000000"
    expected = (
        (header + crc(header))
        + ("03000000" + first + b"one".hex())
        + ("06000000" + second + b"blocks".hex())
        + ("00000000" + end + count + crc(crc(header), first, second, end, count))
    )
    data = written_snapshot(tmp_path / "raft.snapshot", [b"one", b"blocks"])
    assert data == bytes.fromhex(expected)
    reader = snapshot.SnapshotReader(tmp_path / "raft.snapshot")
    assert (reader.last_index, reader.last_term, reader.size_bytes) == (41, 3, len(data))
    assert list(reader) == [b"one", b"blocks"]


def test_a_snapshot_cut_anywhere_or_longer_or_with_blocks_out_of_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    data = written_snapshot(path, [b"one", b"two", b"six"])
    blocks = [data[32 + 11 * number : 43 + 11 * number] for number in range(3)]
    wrong = [data[:cut] for cut in range(len(data))]
    wrong.append(data + b"\0")
    wrong.append(data[:32] + blocks[1] + blocks[0] + blocks[2] + data[65:])
    wrong.append(data[:32] + blocks[0] + blocks[0] + blocks[2] + data[65:])
    for bad in wrong:
        path.write_bytes(bad)
        with pytest.raises((Damaged, WrongMarker)):
            list(snapshot.SnapshotReader(path))


def test_a_snapshot_of_version_1_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "raft.snapshot"
    for last_index in ("ffffffff", "00000000", "07000000"):
        path.write_bytes(bytes.fromhex(MARKER + last_index + "01000000"))
        with pytest.raises(OlderVersion):
            snapshot.SnapshotReader(path)
    newer = MARKER + "feffffff 03000000 2900000000000000 0300000000000000"
    path.write_bytes(bytes.fromhex(newer + crc(newer)))
    with pytest.raises(NewerVersion):
        snapshot.SnapshotReader(path)


def test_blocks_have_bytes(tmp_path: Path) -> None:
    file = snapshot.SnapshotFile(FastDisk(), tmp_path / "s", 1, 1, "snapshot")
    with pytest.raises(ValueError, match="1 to"):
        file.write_block(b"")
    file.close()


def test_a_journal_file() -> None:
    header = MARKER + "02000000 10000000 00000000 6400000000000000"
    assert journalfile.encode_header(100, 16) == bytes.fromhex(header)
    assert journalfile.decode_header(bytes.fromhex(header), FILE) == (100, 16)
    rows = bytes(range(32))
    back = "6400000000000000 6500000000000000 02000000 00000000" + rows.hex()
    block = journalfile.encode_block(100, 101, rows, 16)
    assert block == bytes.fromhex("56424c4b" + crc("56424c4b", back) + back)
    source = MemorySource(bytes.fromhex(header) + block)
    (found,) = journalfile.iterate_blocks(source, FILE)
    assert (found.first_index, found.last_index, found.row_count, found.end) == (100, 101, 2, source.size_bytes)
    assert journalfile.read_block_rows(source, found) == rows


def test_the_side_file_with_rows_from_memory() -> None:
    tail = journalfile.Tail(102, 103, bytes(range(16)))
    front, back = MARKER + "02000000", "6600000000000000 6700000000000000" + tail.rows.hex()
    data = bytes.fromhex(front + crc(front, back) + back)
    assert journalfile.encode_tail(tail) == data
    assert journalfile.decode_tail(data, FILE, 16) == tail
    for wrong in (data[:-1], data[:-16], data + bytes(16), data[:20]):
        with pytest.raises(Damaged):
            journalfile.decode_tail(wrong, FILE, 16)


def test_rows_are_found_by_their_entries() -> None:
    rows = b"".join(index.to_bytes(8, "little") + bytes([n] * 8) for n, index in enumerate([3, 3, 4, 7, 7, 7, 9]))
    assert journalfile.rows_between(rows, 16, 0, 100) == rows
    assert journalfile.rows_between(rows, 16, 4, 7) == rows[2 * 16 : 6 * 16]
    assert journalfile.rows_between(rows, 16, 5, 6) == b""
    assert journalfile.rows_between(b"", 16, 0, 9) == b""
