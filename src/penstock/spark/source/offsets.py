"""Offsets of a stream: which history, and the next entry to read.

They lie in Spark's checkpoints, so their form stays: ``{"cluster": "…", "index": 17}``. The cluster's id is in them, so
that a cluster that was wiped, or another one, is noticed and not read as if it were the first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from penstock.spark.errors import AnotherCluster, DataLost, SparkSideError
from penstock.wire.native.messages import Reach

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream has come."""

    cluster: str
    """Empty where files do not tell it."""
    index: int
    """The next entry to read."""

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        return {"cluster": self.cluster, "index": self.index}


def read_offset(value: dict[str, Any]) -> Offset:
    """An offset out of a checkpoint."""
    cluster, index = value.get("cluster"), value.get("index")
    if not isinstance(cluster, str) or not isinstance(index, int) or index < 0:
        raise SparkSideError(f"the checkpoint holds an offset that is not of this source: {value}; use a new one")
    return Offset(cluster, index)


def check_cluster(known: str, reach: Reach) -> None:
    """Raise ``AnotherCluster`` unless this is the history that reading began with, as far as one can tell."""
    if known and reach.cluster and known != reach.cluster:
        raise AnotherCluster(known, reach.cluster)


def first_kept(wanted: int, first_index: int, *, fail_on_data_loss: bool) -> int:
    """Where reading goes on from an entry that may be gone: there, or with the first that is kept."""
    if wanted >= first_index:
        return wanted
    if fail_on_data_loss:
        raise DataLost(wanted, first_index)
    _log.warning("entries %d to %d of the history are gone; reading goes on behind them", wanted, first_index - 1)
    return first_index
