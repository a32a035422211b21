"""`penstock bench`: it measures, and leaves nothing behind."""

from __future__ import annotations

import pytest

from penstock.cli.bench import Result
from penstock.client.sync import Client
from tests.cli.support import Command


def test_it_measures_every_kind_of_work_and_deletes_its_queue(penstock: Command, client: Client) -> None:
    before = {view.name for view in client.queues()}
    documents = penstock.json("bench", "--seconds", "0.2", "--connections", "2", "--batch", "10", "--size", "10")
    assert [document["work"].split(",")[0] for document in documents] == [
        "put",
        "take and ack",
        "put",
        "take and ack",
        "put to a waiting take and ack",
    ]
    for document in documents:
        assert document["messages"] > 0
        assert document["per_second"] > 0
        assert 0 < document["p50_ms"] <= document["p99_ms"]
    assert {view.name for view in client.queues()} == before


def test_the_table_for_people(penstock: Command) -> None:
    lines = penstock("bench", "--seconds", "50ms", "--connections", "1").stdout.splitlines()
    assert lines[0].split() == "MESSAGES/S P50 MS P99 MS MESSAGES WORK".split()
    assert len(lines) == 6


@pytest.mark.parametrize("args", [["--seconds", "0"], ["--seconds", "1d"], ["--batch", "0"]])
def test_it_keeps_within_bounds(penstock: Command, args: list[str]) -> None:
    penstock("bench", *args, code=2)


def test_percentiles() -> None:
    result = Result("x", 200, 2.0, [number / 1000 for number in range(100, 0, -1)])
    assert result.per_second == 100
    assert result.percentile_ms(50) == pytest.approx(51)
    assert result.percentile_ms(99) == pytest.approx(100)
    assert Result("x", 0, 0.0, []).percentile_ms(99) == 0
