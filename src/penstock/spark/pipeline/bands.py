"""Bands of keys: priorities in powers of ten, so that queues with few and with many of them can be told in one table.

Spark is imported only where an expression is made, so that a reader of the tables can have the order of the bands
without it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

_EDGES: Final = (0, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

BANDS: Final = (
    "< 0",
    *(f"{low:,} to {high - 1:,}" for low, high in pairwise(_EDGES)),
    f"{_EDGES[-1]:,} and more",
)
"""The names of all bands, smallest keys first: the order in which a queue serves them unless it is descending."""


def band_of(key: Column) -> Column:
    """The name of the band that a key lies in."""
    from pyspark.sql import functions as F

    band = F.when(key < _EDGES[0], BANDS[0])
    for edge, name in zip(_EDGES[1:], BANDS[1:-1], strict=True):
        band = band.when(key < edge, name)
    return band.when(key.isNotNull(), BANDS[-1])
