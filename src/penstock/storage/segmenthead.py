"""The head of a segment of the log: which cluster it belongs to, and the secret that its records are checked with.

    version 2   marker, Int32 2
    version 3   marker, Int32 3, 16 bytes cluster id, 16 bytes salt, UInt32 crc32c of all before it

New segments have version 3. A live raft.log of version 2 is continued as version 2 until the next roll, so that an
upgrade does not move the boundaries of segments and journal blocks.

The salt is random and never leaves the data directory. Two values are derived from it:

- the *seed*, from which the checksum of each record starts. Readers of the history get it with each piece, to check the
  records. So a client can know it.
- the *tag* of each record, a keyed hash of the record's offset and header. A client cannot compute it, and the tag of a
  record that a client has read is wrong at any other offset. Recovery believes a record that it finds by searching
  only if its tag is right: bytes inside a payload cannot pass for a record of the log (``scan``).

A record of version 3 also says whether it was written in mode durable, in which an entry is applied and answered only
after it was synced (``evidence``).
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.errors import Damaged, WrongCluster
from penstock.storage.layout import FILE_HEADER, FILE_HEADER_BYTES, MARKER, check_file_header
from penstock.storage.reading import Source

LOG_VERSION: Final = 3
"""The version of new segments, and the newest one that can be read."""
SALT_BYTES: Final = 16

_HEAD: Final = struct.Struct("<4si16s16s")
_CHECKSUM: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
"""The length of the head of a new segment."""
_TAGGED: Final = struct.Struct("<qiiqI")
_DURABLE: Final = struct.Struct("<q")
_PROOF: Final = struct.Struct("<I4s")
_TAG_BYTES: Final = 4
_LOW_MASK: Final = 0xFFFFFFFF
_PROMISED: Final = 1 << 31
_DISTANCE_MASK: Final = _PROMISED - 1


class SegmentHead:
    """The first bytes of a segment, and how its records are checked."""

    __slots__ = ("_tags", "cluster_id", "salt", "seed", "size_bytes", "version")

    def __init__(self, version: int, cluster_id: bytes | None, salt: bytes) -> None:
        self.version = version
        self.cluster_id = cluster_id
        """The cluster that wrote the segment; None in version 2, which does not say."""
        self.salt = salt
        is_salted = version >= LOG_VERSION
        self.size_bytes = HEAD_BYTES if is_salted else FILE_HEADER_BYTES
        """Where the first record begins."""
        self.seed = 0
        """What the checksum of each record starts from."""
        self._tags = None
        if is_salted:
            self.seed = int.from_bytes(blake2b(key=salt, person=b"seed", digest_size=4).digest(), "little")
            self._tags = blake2b(key=salt, person=b"tag", digest_size=_TAG_BYTES)

    @classmethod
    def new(cls, cluster_id: bytes, salt: bytes) -> SegmentHead:
        """The head of a new segment; `salt` is random."""
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        return cls(LOG_VERSION, cluster_id, salt)

    def encode(self) -> bytes:
        """The bytes of the head."""
        if self.cluster_id is None:
            return FILE_HEADER.pack(MARKER, self.version)
        fields = _HEAD.pack(MARKER, self.version, self.cluster_id, self.salt)
        return fields + _CHECKSUM.pack(crc32c(fields))

    def proof(self, offset: int, term: int, length: int, index: int, durable: int, is_promised: bool) -> bytes:
        """The last eight bytes of a record's header: how far the log was synced, and the tag.

        `is_promised` says whether the record is written in mode durable.
        """
        if self._tags is None:
            return _DURABLE.pack(durable)
        low = index - durable | (_PROMISED if is_promised else 0)
        hasher = self._tags.copy()
        hasher.update(_TAGGED.pack(offset, term, length, index, low))
        return _PROOF.pack(low, hasher.digest())

    def is_promised(self, proof: int) -> bool:
        """Whether a record was written in mode durable; those of version 2 count as such."""
        return self._tags is None or bool(proof & _PROMISED)

    def durable(self, index: int, proof: int) -> int:
        """The last index that was known to be synced when the record of this index was written."""
        return proof if self._tags is None else index - (proof & _DISTANCE_MASK)

    def is_genuine(self, offset: int, term: int, length: int, index: int, proof: int) -> bool:
        """Whether this node wrote a record's header at this offset; always True in version 2, which has no tags."""
        if self._tags is None:
            return True
        low = proof & _LOW_MASK
        hasher = self._tags.copy()
        hasher.update(_TAGGED.pack(offset, term, length, index, low))
        return _DURABLE.pack(proof) == _PROOF.pack(low, hasher.digest())

    @property
    def is_salted(self) -> bool:
        """Whether ``is_genuine`` can tell."""
        return self._tags is not None

    def check_cluster(self, cluster_id: bytes, file: Path) -> None:
        """Raise ``WrongCluster`` if the segment says that another cluster wrote it."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise WrongCluster(file, self.cluster_id, cluster_id)


UNSALTED: Final = SegmentHead(2, None, b"")
"""The head of every segment of version 2."""


def read_segment_head(source: Source, file: Path) -> SegmentHead:
    """The head of a segment's file. Raises an ``UnreadableData`` unless it is one of ours, of version 2 or 3."""
    data = source.read(0, HEAD_BYTES)
    version = check_file_header(data, file, newest=LOG_VERSION)
    if version < LOG_VERSION:
        # As a version 2 none of its records could be read, and all of them would be cut as a torn tail.
        if _is_whole(FILE_HEADER.pack(MARKER, LOG_VERSION) + data[FILE_HEADER_BYTES:]):
            raise Damaged(file, f"says version {version}, but has the head of version {LOG_VERSION}", len(MARKER))
        return UNSALTED
    if len(data) < HEAD_BYTES:
        raise Damaged(file, "ends inside its head", len(data))
    if not _is_whole(data):
        raise Damaged(file, "wrong checksum of the segment's head", _HEAD.size)
    _, _, cluster_id, salt = _HEAD.unpack_from(data)
    return SegmentHead(version, cluster_id, salt)


def _is_whole(head: bytes) -> bool:
    """Whether these bytes begin with the head of a new segment, undamaged."""
    if len(head) < HEAD_BYTES:
        return False
    checksum: int = _CHECKSUM.unpack_from(head, _HEAD.size)[0]
    return checksum == crc32c(head[: _HEAD.size])
