"""The manifest: which files are which table, and up to which entry of the log each table is complete.

`manifest.json` in the directory of the tables is the only commit point. Files are written first, under names that were
never used before; then the manifest is replaced as a whole. What no manifest names does not exist, so a run that was
killed has changed nothing, and a reader sees all of a run or nothing of it.

    {"version": 1, "cluster": …, "tables": {…}, …, "crc32c": N}     the checksum is that of all bytes before its comma

A file that leaves the manifest stays on disk until the next publication after `KEPT_SECONDS`, for readers that have
just read the older manifest. Until then it is listed as dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import crc32c
import msgspec
from msgspec import Struct

from penstock.spark.errors import NoTables, PipelineError
from penstock.spark.schemas import PIPELINE_TABLES
from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk

NAME: Final = "manifest.json"
VERSION: Final = 1
KEPT_SECONDS: Final = 600
_OPEN: Final = "open-"
_CHECKSUM: Final = b',"crc32c":'
_ADVICE: Final = "restore it, or remove the directory: the tables are made anew from the history"


class File(Struct, frozen=True):
    """A Parquet file of a table."""

    path: str
    """Relative to the directory of the tables."""
    part: str
    """The day that its rows belong to (ISO), or the bucket of open rows, `open-07`."""
    rows: int
    bytes: int
    first_index: int = -1
    """The first and last log entry of events, or the first and last that ended something; -1 where that says nothing.
    """
    last_index: int = -1
    first_us: int = 0
    """The smallest and largest time of an event, of an end, or of a minute."""
    last_us: int = 0
    broadcasts: int = 0
    """How many of its events are broadcasts."""
    owner_events: int = -1
    """How many of its events change which connections have names; -1 where nobody counted."""

    @property
    def is_open(self) -> bool:
        """Whether its rows are open messages or tasks."""
        return self.part.startswith(_OPEN)


class Table(Struct, frozen=True):
    """One table: it holds everything that follows from the log up to its watermark, and nothing else."""

    watermark: int
    """The last log entry that it contains, -1 for none."""
    time_us: int = 0
    """The time of the last event up to there."""
    files: tuple[File, ...] = ()
    owner_names: dict[int, str] = {}
    """Of silver.messages: the names of the connections that live at its watermark, by their numbers."""


class Gap(Struct, frozen=True):
    """Entries that were gone from the history before they were read; both included."""

    first_index: int
    last_index: int


class Dropped(Struct, frozen=True):
    """A file that is no longer part of a table, and since when, in seconds since 1970."""

    path: str
    time: float


class Manifest(Struct, frozen=True):
    """All tables of a pipeline at one moment."""

    cluster: str
    """Whose history it is."""
    first_index: int
    """Where the history began when the first run read it."""
    generation: int
    """How often a manifest was published."""
    format: str
    """parquet, or delta where each table is also a Delta table."""
    buckets: int
    """How many buckets the open rows are spread over."""
    tables: dict[str, Table]
    gaps: tuple[Gap, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    version: int = VERSION


class _Versioned(Struct):
    version: int


def bucket_part(bucket: int) -> str:
    """The part of the open rows of a bucket."""
    return f"{_OPEN}{bucket:02d}"


def new_manifest(cluster: str, first_index: int, *, format: str, buckets: int) -> Manifest:
    """The manifest of tables that are empty and complete up to the entry before the history's first."""
    tables = {name: Table(first_index - 1) for name in PIPELINE_TABLES}
    return Manifest(cluster, first_index, 0, format, buckets, tables)


def encode_manifest(manifest: Manifest) -> bytes:
    """As bytes of a file."""
    body = msgspec.json.encode(manifest)[:-1]
    return b"%b%b%d}" % (body, _CHECKSUM, crc32c.crc32c(body))


def decode_manifest(data: bytes, path: Path) -> Manifest:
    """From bytes of a file; anything that is not exactly what was written is a ``PipelineError``."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except msgspec.MsgspecError as error:
        raise PipelineError(f"{path} is damaged ({error}); {_ADVICE}") from error
    if version > VERSION:
        raise PipelineError(f"{path} has version {version}, this program reads up to {VERSION}; use a newer release")
    body, _, checksum = data.rpartition(_CHECKSUM)
    if checksum != b"%d}" % crc32c.crc32c(body):
        raise PipelineError(f"{path} is damaged (its checksum is wrong); {_ADVICE}")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise PipelineError(f"{path} cannot be read ({error}); {_ADVICE}") from error
    missing = PIPELINE_TABLES.keys() - manifest.tables.keys()
    if missing:
        raise PipelineError(f"{path} lacks the table {min(missing)}; {_ADVICE}")
    return manifest


def load_manifest(directory: Path) -> Manifest:
    """The manifest of a directory; ``NoTables`` where there is none."""
    path = directory / NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NoTables(str(directory)) from None
    return decode_manifest(data, path)


def store_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest so that a reader, and a crash, find the old one or the new one."""
    replace_file(Disk(), directory / f"{NAME}.new", directory / NAME, encode_manifest(manifest), "manifest")
