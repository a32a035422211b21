"""A Spark session as this package wants it: embedded by default, or on a cluster that is named.

What a session needs besides pyspark is looked for first, so that a missing package or an old Java is told in a sentence
with the command that helps, and not by a page of traces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.errors import ExtraMissing, JavaMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN: Final = 17
_SHUFFLE_PARTITIONS: Final = 4
_LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")


def check_spark() -> None:
    """Raise ``ExtraMissing`` unless the packages of the extra are installed."""
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        if find_spec(package) is None:
            raise ExtraMissing(package)


def java_major() -> int | None:
    """The major version of the Java that Spark would start; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match[1]) if match else None


def check_java() -> None:
    """Raise ``JavaMissing`` unless there is a Java that runs Spark."""
    found = java_major()
    if found is None or found < JAVA_MAJOR_MIN:
        raise JavaMissing(None if found is None else str(found))


def open_session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """A session: embedded on this machine's cores, on a cluster (`master`), or on a Connect server (`remote`)."""
    check_spark()
    # Workers would otherwise run whatever python3 comes first, which may not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        check_java()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master or "local[*]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.driver.memory", "1g")
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.shuffle.partitions", str(_SHUFFLE_PARTITIONS))
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if remote is None:
        session.sparkContext.setLogLevel("ERROR")
    return session
