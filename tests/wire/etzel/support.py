"""The recorded vectors of the original server, as the tests of this folder use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(Path(__file__).parents[2].joinpath("vectors", "etzel.json").read_text("utf-8"))


def steps(op: str) -> list[dict[str, Any]]:
    """All steps of one kind in all recorded dialogues."""
    return [step for scenario in VECTORS["scenarios"] for step in scenario["steps"] if step["op"] == op]
