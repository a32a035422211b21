"""Whole sessions against a running node, and the proof that what would be wrong with it is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from fuzz.sessions.health import Unhealthy, check_health
from fuzz.sessions.run import fuzz_sessions
from fuzz.sessions.scripts import make_script
from fuzz.sessions.serving import NodeFailed, ServedNode
from fuzz.sessions.values import Values
from penstock.engine import commands as c
from penstock.testing import TestServer
from penstock.wire.native import messages as m

INPUTS = 20_000


def test_a_node_is_well_after_many_bad_sessions_and_starts_again(tmp_path: Path) -> None:
    assert fuzz_sessions(tmp_path, INPUTS, seed=1) >= INPUTS


def test_arguments_can_be_made_for_every_request_and_most_are_valid() -> None:
    values = Values(Random(1))
    decoders = {**c.DECODERS, **m.DECODERS}
    for kind, code in m.CODES.items():
        bodies = [c.encode(values.arguments(kind)) for _ in range(50)]
        valid = 0
        for body in bodies:
            try:
                decoders[code].decode(body)
                valid += 1
            except ValueError:
                continue
        assert valid > 25, f"{kind.__name__}: only {valid} of 50 can be decoded"


def test_equal_seeds_make_equal_sessions() -> None:
    def sessions(seed: int) -> list[tuple[str, list[bytes]]]:
        random = Random(seed)
        made = [make_script(Random(random.getrandbits(64))) for _ in range(20)]
        return [(script.door, list(script.inputs)) for script in made]

    assert sessions(1) == sessions(1)
    assert sessions(1) != sessions(2)


def test_a_node_that_ended_or_logged_a_traceback_is_noticed(tmp_path: Path) -> None:
    with ServedNode(tmp_path) as node:
        node.check()
        (tmp_path / "errors.log").write_text("Traceback (most recent call last):")
        with pytest.raises(NodeFailed, match="traceback"):
            node.check()
        node.process.kill()
        node.process.wait()
        with pytest.raises(NodeFailed, match="ended with code -9"):
            node.check()


def test_a_node_whose_timers_stand_still_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.sessions.health._WITHIN_S", 1.0)
    monkeypatch.setattr("penstock.engine.timers.Timers.any_due", lambda _self, _now_us: False)
    with TestServer() as server, pytest.raises(Unhealthy, match="delay"):
        asyncio.run(check_health(server.url))
