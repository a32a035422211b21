"""What can go wrong between Penstock and Spark.

    SparkSideError            code "spark"
    ├── ExtraMissing          code "extra_missing"      a package of the extra `spark` or `delta` is not installed
    ├── JavaMissing           code "java_missing"       no Java 17 or newer
    ├── BadOption             code "bad_option"         an option of the data source that is unknown or cannot be read
    ├── BadRow                code "bad_row"            a row that cannot become a message
    ├── NotWritten            code "not_written"        a batch that was not published
    ├── DataLost              code "data_lost"          part of what was asked for is no longer there
    ├── AnotherCluster        code "another_cluster"    the history is not the one that reading began with
    └── PipelineError         code "pipeline"           the tables of a pipeline cannot be gone on with
        ├── NoTables          code "no_tables"          there is no pipeline's directory where one was named
        └── TablesInUse       code "tables_in_use"      another process writes these tables

Each error says what would be right. Errors that Spark carries over to the driver lose their type there and keep their
text, so everything a user needs is in the text.
"""

from __future__ import annotations

from typing import ClassVar


class SparkSideError(Exception):
    """Base of all errors of this package."""

    code: ClassVar[str] = "spark"


class ExtraMissing(SparkSideError):
    """A package that an extra brings is not installed."""

    code = "extra_missing"

    def __init__(self, package: str, extra: str = "spark") -> None:
        super().__init__(f"{package} is not installed; it comes with: pip install 'penstock[{extra}]'")
        self.package = package
        self.extra = extra


class JavaMissing(SparkSideError):
    """Spark needs a Java runtime that is not there, or one that is newer."""

    code = "java_missing"

    def __init__(self, found: str | None) -> None:
        have = "there is none" if found is None else f"this one is {found}"
        super().__init__(
            f"Spark needs Java 17 or newer, and {have}; "
            "on Debian or Ubuntu: sudo apt-get install default-jre-headless; or let JAVA_HOME name one"
        )
        self.found = found


class BadOption(SparkSideError):
    """An option of the data source that is unknown, missing or cannot be read."""

    code = "bad_option"

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option
        self.reason = reason


class BadRow(SparkSideError):
    """A row that cannot become a message."""

    code = "bad_row"


class NotWritten(SparkSideError):
    """A batch of rows was not published, or nobody can tell whether it was."""

    code = "not_written"


class DataLost(SparkSideError):
    """Part of the history that was asked for is no longer there."""

    code = "data_lost"

    def __init__(self, wanted: int, first: int) -> None:
        super().__init__(
            f"entry {wanted} of the history is gone, what is kept begins at {first}; "
            "to go on without what lies between, set failOnDataLoss=false; to begin anew, use a new checkpoint "
            f"or startingIndex={first}. The node keeps more with storage.retention_hours and storage.retention_bytes"
        )
        self.wanted = wanted
        self.first = first


class AnotherCluster(SparkSideError):
    """The history is not the one that reading began with: the cluster was wiped, or this is another one."""

    code = "another_cluster"

    def __init__(self, known: str, found: str) -> None:
        super().__init__(
            f"this is the history of cluster {found}, reading began with {known}: it was wiped, or another answers; "
            "to read this one from its beginning, use a new checkpoint or a new directory"
        )
        self.known = known
        self.found = found


class PipelineError(SparkSideError):
    """The tables of a pipeline cannot be gone on with as they are."""

    code = "pipeline"


class NoTables(PipelineError):
    """There is no pipeline's directory where one was named."""

    code = "no_tables"

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} has no tables yet; `penstock pipeline run --to {directory}` makes them")
        self.directory = directory


class TablesInUse(PipelineError):
    """Another process writes these tables."""

    code = "tables_in_use"

    def __init__(self, directory: str, holder: str) -> None:
        super().__init__(f"{directory} is being written by another pipeline ({holder}); stop that one first")
        self.directory = directory
        self.holder = holder
