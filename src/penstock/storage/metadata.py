"""raft.metadata: the term, the vote, and whose directory this is. 41 bytes, replaced whole at each change.

    marker, Int32 version 2, Int32 term, Byte has-vote, Int32 vote, 16 bytes cluster id, Int32 node id, UInt32 crc32c

The first 17 bytes are those of version 1 but for the version; the checksum covers all before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged
from penstock.storage.layout import MARKER, VERSION, Layout, check_file_header
from penstock.storage.reading import FileSource

CLUSTER_ID_BYTES: Final = 16

_FIELDS: Final = struct.Struct("<4siiBi16si")
_CHECKSUM: Final = struct.Struct("<I")
METADATA_BYTES: Final = _FIELDS.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a node must never forget between two elections."""

    term: int
    vote: int | None
    cluster_id: bytes
    node_id: int


def encode_metadata(metadata: Metadata) -> bytes:
    """The file's bytes."""
    if len(metadata.cluster_id) != CLUSTER_ID_BYTES:
        raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(metadata.cluster_id)}")
    has_vote = metadata.vote is not None
    vote = metadata.vote or 0
    fields = _FIELDS.pack(MARKER, VERSION, metadata.term, has_vote, vote, metadata.cluster_id, metadata.node_id)
    return fields + _CHECKSUM.pack(crc32c(fields))


def decode_metadata(data: bytes, file: Path) -> Metadata:
    """Read the file's bytes; anything but exactly what ``encode_metadata`` writes is refused."""
    check_file_header(data, file)
    if len(data) != METADATA_BYTES:
        raise Damaged(file, f"has {len(data)} bytes, not {METADATA_BYTES}", min(len(data), METADATA_BYTES))
    (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    if checksum != crc32c(data[: _FIELDS.size]):
        raise Damaged(file, "wrong checksum", _FIELDS.size)
    _, _, term, has_vote, vote, cluster_id, node_id = _FIELDS.unpack_from(data)
    metadata = Metadata(term, vote if has_vote else None, cluster_id, node_id)
    if term < 0 or encode_metadata(metadata) != data:
        raise Damaged(file, "the checksum is right, the fields are impossible", 8)
    return metadata


def load_metadata(layout: Layout) -> Metadata | None:
    """The node's metadata, or None if there is no such file."""
    if not layout.metadata.exists():
        return None
    with FileSource(layout.metadata) as source:
        # One byte more than there may be, so that a longer file is noticed.
        return decode_metadata(source.read(0, METADATA_BYTES + 1), layout.metadata)


def save_metadata(disk: Disk, layout: Layout, metadata: Metadata) -> None:
    """Replace the file; when this returns, the new one is what a restart finds."""
    temporary = layout.temp / layout.metadata.name
    replace_file(disk, temporary, layout.metadata, encode_metadata(metadata), "metadata")
