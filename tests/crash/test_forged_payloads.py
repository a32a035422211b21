"""A client fills its messages with forged records of the log; a torn write of such a message never stops a start."""

from __future__ import annotations

from pathlib import Path
from random import Random

from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.records import RECORD_HEADER_BYTES, encode_mark, encode_record
from penstock.storage.scan import scan_live
from soak.client import Connection
from tests.crash.nodes import KIB, browse, put, served

KILLS = 6
STORAGE = {"segment_bytes": 4 * 1024 * KIB, "reserve_bytes": 0}


def forged(next_index: int) -> bytes:
    """Marks and records that claim that the next entries are synced, each with zeros behind it as at a log's end."""
    claims = []
    for index in range(next_index - 1, next_index + 8):
        claims += [encode_mark(index, term, index) + bytes(8) for term in range(1, KILLS + 2)]
        claims += [encode_record(index + 1, 1, b"x", index) + bytes(8)]
    return b"p" * (next_index % 37) + b"".join(claims) * 16


def tear(log: Path, random: Random) -> None:
    """Leave a part of the last record, as a write that a kill cut short does."""
    with FileSource(log) as source:
        start = scan_live(source, log, None, 0).offsets[-1]
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))
    cut = random.randrange(start + RECORD_HEADER_BYTES + 100, end - 100)
    log.write_bytes(data[:cut] + bytes(len(data) - cut))


def test_kills_amid_forged_records_neither_refuse_a_start_nor_lose_a_message(tmp_path: Path) -> None:
    log, random = Layout(tmp_path / "data").log, Random(4)
    whole: list[bytes] = []
    for life in range(KILLS):
        with served(tmp_path, storage=STORAGE) as node:
            assert [record.payload for record in browse(node.port)] == whole
            with Connection(node.port) as connection:
                whole.append(b"whole %d" % life)
                put(connection, whole[-1])
                with FileSource(log) as source:
                    last_index = scan_live(source, log, None, 0).last_index
                put(connection, forged(last_index + 1))
                node.kill()  # before the end of the connection is another entry
        tear(log, random)
    with served(tmp_path, storage=STORAGE) as node:
        assert [record.payload for record in browse(node.port)] == whole
