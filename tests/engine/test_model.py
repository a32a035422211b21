"""The engine does what the naive model does, whatever is asked of it and whenever it is restarted.

``PENSTOCK_SOAK=1`` searches long and at random.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.comparing import EngineMachine

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"


@pytest.mark.timeout(7200 if SOAK else 300)
def test_the_engine_agrees_with_the_naive_model() -> None:
    """Answers, figures, contents and order after every entry; snapshots and journals of equal logs to the byte."""
    chosen = settings(max_examples=500, stateful_step_count=30)
    if SOAK:
        chosen = settings(max_examples=20_000, stateful_step_count=100, derandomize=False, print_blob=True)
    run_state_machine_as_test(EngineMachine, settings=chosen)
