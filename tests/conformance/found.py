"""The matrix of this run."""

from __future__ import annotations

from typing import Final

from tests.conformance.matrix import Matrix

FOUND: Final = Matrix()
