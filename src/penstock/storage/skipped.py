"""skipped: entries of the log that an operator decided not to apply, because applying them raises an error.

    marker, Int32 version 2, UInt32 count, count × (Int64 index, UInt32 crc32c of the entry's bytes), UInt32 crc32c

Such an entry is applied as an unreadable one: nothing happens but an event that says so. The decision must hold for
every later start and for every reader that builds the state from the log, so it is kept with the log. An entry is
recognised by its bytes as well: if it is ever dropped, what takes its place is applied. The last checksum covers
everything before it. Without the file nothing is skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.engine.entries import Entry, decode_entry
from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged
from penstock.storage.layout import FILE_HEADER, MARKER, VERSION, Layout, check_file_header
from penstock.storage.reading import FileSource

ENTRIES_MAX: Final = 10_000
"""Far more than an operator would name."""

_COUNT: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<qI")
_CHECKSUM: Final = struct.Struct("<I")
_HEAD_BYTES: Final = FILE_HEADER.size + _COUNT.size
_FILE_BYTES_MAX: Final = _HEAD_BYTES + ENTRIES_MAX * _ENTRY.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Skipped:
    """The entries that are skipped."""

    checksums: Mapping[int, int] = field(default_factory=dict)
    """By index: the checksum of the entry's bytes."""

    def covers(self, index: int, data: bytes) -> bool:
        """Whether this entry is skipped."""
        return index in self.checksums and self.checksums[index] == crc32c(data)

    def entry_to_apply(self, index: int, data: bytes) -> Entry | None:
        """The entry for the engine; None, which stands for an unreadable one, where it is skipped."""
        return None if self.covers(index, data) else decode_entry(data)

    def with_entry(self, index: int, data: bytes) -> Skipped:
        """The same and one more."""
        return Skipped({**self.checksums, index: crc32c(data)})


NOTHING_SKIPPED: Final = Skipped()


def encode_skipped(skipped: Skipped) -> bytes:
    """The file's bytes."""
    parts = [FILE_HEADER.pack(MARKER, VERSION), _COUNT.pack(len(skipped.checksums))]
    parts += [_ENTRY.pack(index, checksum) for index, checksum in sorted(skipped.checksums.items())]
    data = b"".join(parts)
    return data + _CHECKSUM.pack(crc32c(data))


def decode_skipped(data: bytes, file: Path) -> Skipped:
    """Read the file's bytes; anything but exactly what ``encode_skipped`` writes is refused."""
    check_file_header(data, file)
    if len(data) < _HEAD_BYTES + _CHECKSUM.size or crc32c(data[:-4]) != _CHECKSUM.unpack(data[-4:])[0]:
        raise Damaged(file, "wrong checksum", max(0, len(data) - _CHECKSUM.size))
    (count,) = _COUNT.unpack_from(data, FILE_HEADER.size)
    body = data[_HEAD_BYTES : -_CHECKSUM.size]
    if len(body) != count * _ENTRY.size:
        raise Damaged(file, f"has {len(body)} bytes of entries, not {count * _ENTRY.size}", _HEAD_BYTES)
    return Skipped(dict(_ENTRY.iter_unpack(body)))


def load_skipped(layout: Layout) -> Skipped:
    """The entries that are skipped in a data directory."""
    if not layout.skipped.exists():
        return NOTHING_SKIPPED
    with FileSource(layout.skipped) as source:
        return decode_skipped(source.read(0, _FILE_BYTES_MAX), layout.skipped)


def save_skipped(disk: Disk, layout: Layout, skipped: Skipped) -> None:
    """Replace the file; when this returns, the new one is what a restart finds."""
    replace_file(disk, layout.temp / layout.skipped.name, layout.skipped, encode_skipped(skipped), "skipped")
