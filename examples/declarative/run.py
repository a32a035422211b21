"""Run the declarative pipeline once, with what a second run needs.

    python run.py [--endpoint HOST:PORT] [--to FOLDER] [--dry-run]

Spark's own catalog forgets its tables when it ends, and the next run would find their files and refuse them. So a
metastore is kept beside the tables: Derby, which comes with Spark. The settings for that are static: the pipeline's
file may not have them, and of several --conf of spark-pipelines some get lost on the way to the server that it starts
(Spark 4.3). So they go into a spark-defaults.conf.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

PROJECT = Path(__file__).resolve().parent
SPARK_PIPELINES = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
SPEC = "spark-pipeline.yml"
STORAGE = "file:///tmp/penstock-declarative/storage"
"""What the file says of it: it must be absolute there."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the declarative pipeline once.")
    parser.add_argument("--endpoint", default="127.0.0.1:2602", help="where the node is (default: 127.0.0.1:2602)")
    parser.add_argument("--to", type=Path, default=PROJECT / "warehouse", help="where the tables are kept")
    parser.add_argument("--dry-run", action="store_true", help="only check that the pipeline is sound")
    options = parser.parse_args()
    folder = options.to.resolve()
    write_project(folder)
    command = [SPARK_PIPELINES, "dry-run" if options.dry_run else "run", "--spec", folder / SPEC]
    environment = {**os.environ, **variables(folder, options.endpoint)}
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def write_project(folder: Path) -> None:
    """Put the project into the folder, with its storage there, and its settings."""
    shutil.copytree(PROJECT / "transformations", folder / "transformations", dirs_exist_ok=True)
    spec = (PROJECT / SPEC).read_text(encoding="utf-8")
    assert STORAGE in spec
    (folder / SPEC).write_text(spec.replace(STORAGE, (folder / "storage").as_uri()), encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    lines = [f"{key} {value}\n" for key, value in settings(folder).items()]
    (folder / "conf" / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")


def settings(folder: Path) -> dict[str, str]:
    """What keeps the tables known from one run to the next."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (folder / "tables").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def variables(folder: Path, endpoint: str) -> dict[str, str]:
    """What the definitions and Spark's workers are to know."""
    return {
        "PENSTOCK_ENDPOINT": endpoint,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


if __name__ == "__main__":
    sys.exit(main())
