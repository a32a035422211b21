"""What the suite found is printed at the end of every run in which it took part."""

from __future__ import annotations

import pytest

from tests.conformance.found import FOUND
from tests.conformance.showing import as_text


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the matrix."""
    if FOUND.cells or FOUND.crossings:
        terminalreporter.section("conformance: rule × door")
        terminalreporter.write_line(as_text(FOUND))
