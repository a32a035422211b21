"""One Spark session for all tests that need one: starting it costs more than most of them. And histories."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.generated.checking import Told

# Spark's programs are short in tests, so what their Java compiles should be compiled quickly, not well. This compiler
# keeps little code unless told otherwise, and then compiles it again and again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")

TOLD_EVENTS = 300_000
TOLD_SEED = 1


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
    """An embedded session on two cores, with a pipeline's settings."""
    from penstock.spark.pipeline.run import SETTINGS
    from penstock.spark.session import open_session

    session = open_session("penstock-tests", master="local[2]", settings=SETTINGS)
    yield session
    session.stop()
    # Nodes that ran in this process have frozen what there was; some libraries complain of it at the end.
    gc.unfreeze()


@pytest.fixture(scope="session")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A history, and one run of the pipeline over all of it, by path. Leave its tables as they are."""
    from penstock.spark.pipeline.run import Pipeline
    from tests.spark.generated.checking import Told, expect
    from tests.spark.generated.history import generate

    folder = tmp_path_factory.mktemp("truth")
    made = generate(folder / "data", TOLD_EVENTS, TOLD_SEED)
    with Pipeline(spark, folder / "data", folder / "tables") as pipeline:
        pipeline.run_once()
    yield Told(made, expect(made, folder / "tables"), folder / "tables")
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a bit of everything, that nobody has open. Read it, copy it, leave it as it is."""
    from tests.spark.source.making import a_bit_of_everything, making

    path = tmp_path_factory.mktemp("history") / "data"
    with making(path) as made:
        a_bit_of_everything(made)
    return path
