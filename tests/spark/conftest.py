"""One Spark session for all tests that need one: starting it costs more than most of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def java() -> None:
    """Java is there. Where it is missing the tests are left out, but never where changes are judged."""
    from penstock.spark.errors import JavaMissing
    from penstock.spark.session import check_java

    try:
        check_java()
    except JavaMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """An embedded session on two cores."""
    from penstock.spark.session import open_session

    session = open_session("penstock-tests", master="local[2]")
    yield session
    session.stop()
    # Nodes that ran in this process have frozen what there was; some libraries complain of it at the end.
    gc.unfreeze()
