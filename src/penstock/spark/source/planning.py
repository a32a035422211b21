"""Which entries are read, and in which parts: decided on the driver, from figures alone, without reading a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.spark.source.history import History
from penstock.spark.source.offsets import first_kept
from penstock.spark.source.options import SourceOptions

PARTITIONS_DEFAULT: Final = 8
"""What is read is cut into so many parts where it is large; the planner does not know how many cores there are."""
ROWS_MIN: Final = 50_000
"""A part of fewer events would cost more to start than to read. An option minPartitions overrules this."""
ROWS_MAX: Final = 2_000_000
"""A part of more events would take long to repeat when it fails."""
BYTES_MAX: Final = 512 * 1024 * 1024
_UNEVEN: Final = 2
"""Parts are even by events; one may have so many times its share of the bytes."""


@dataclass(frozen=True, slots=True)
class Range:
    """Entries of a cluster's history, both ends included; none where the last comes before the first."""

    cluster: str
    first_index: int
    last_index: int


class EntriesPartition(InputPartition):
    """Entries that one task reads."""

    def __init__(self, cluster: str, first_index: int, last_index: int) -> None:
        self.cluster = cluster
        self.first_index = first_index
        self.last_index = last_index


def choose_range(history: History, options: SourceOptions) -> Range:
    """The entries that the options ask for, as far as they are there. Raises ``DataLost`` where the first are gone."""
    reach = history.reach()
    first, last = choose_start(history, options), reach.applied_index
    if options.ending_index is not None:
        last = min(last, options.ending_index)
    if options.ending_us is not None:
        last = min(last, history.find_time(options.ending_us + 1) - 1)
    return Range(reach.cluster, first, last)


def choose_start(history: History, options: SourceOptions) -> int:
    """The first entry that the options ask for. Raises ``DataLost`` where it is gone."""
    if options.starting_us is not None:
        return history.find_time(options.starting_us)
    first = history.reach().first_index
    if options.starting_index is None:
        return first
    return first_kept(options.starting_index, first, fail_on_data_loss=options.fail_on_data_loss)


def plan(history: History, entries: Range, partitions_min: int) -> list[EntriesPartition]:
    """The parts in which these entries are read, even by events."""
    first, last = entries.first_index, entries.last_index
    if last < first:
        return []
    (whole,) = history.cuts(first, last, count_max=1)
    parts = max(-(-whole.rows // ROWS_MAX), -(-whole.bytes // BYTES_MAX), 1)
    parts = max(parts, partitions_min or min(PARTITIONS_DEFAULT, whole.rows // ROWS_MIN))
    rows_max = -(-whole.rows // parts)
    bytes_max = -(-whole.bytes * _UNEVEN // parts)
    found: list[EntriesPartition] = []
    while first <= last:
        # An answer has a limited number of ranges; what it leaves is asked for again.
        for cut in history.cuts(first, last, rows_max=rows_max, bytes_max=bytes_max):
            found.append(EntriesPartition(entries.cluster, first, cut.last_index))
            first = cut.last_index + 1
    return found
