"""What Spark says when something fails, in one sentence.

An error that a task raised comes to the driver as the text of its trace, wrapped several times. What a user needs of it
is its last line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.spark.errors import PipelineError

_RAISED: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: (.*))?$")
_TRACE: Final = "Traceback (most recent call last):"
_TEXT_CHARACTERS_MAX: Final = 500
_UNCHANGED: Final = "the tables are as they were"


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn whatever Spark, and what it runs, raises into a ``PipelineError``."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"{reason_of(str(error))}; {_UNCHANGED}") from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise PipelineError(f"{where}{error.strerror or error}; {_UNCHANGED}") from error


def reason_of(text: str) -> str:
    """The error that a task raised, out of Spark's text; the first line of the text where there is none."""
    lines = text.partition(_TRACE)[2].splitlines()
    raised = [match for line in lines if not line.startswith(" ") and (match := _RAISED.match(line.rstrip()))]
    if raised:
        name, said = raised[0].groups()
        return said or name
    first = next((line for line in text.splitlines() if line.strip()), "Spark failed")
    return first.strip()[:_TEXT_CHARACTERS_MAX]
