"""The feedback example with a real node and a real pipeline: who starves or fails comes back once, with a new key."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.spark.pipeline.run import Pipeline
from penstock.testing import TestServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.sync import Client

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "feedback" / "redrive.py"


@pytest.fixture(scope="module")
def redrive() -> ModuleType:
    spec = importlib.util.spec_from_file_location("redrive", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def node() -> Iterator[TestServer]:
    with TestServer() as server:
        yield server


def fill(client: Client) -> None:
    """Messages that starve, are dead letters or fail and are still there; one that had its try; some that are fine."""
    dead, orders, reports = (client.queue(name) for name in ("orders-dead", "orders", "reports"))
    dead.create()
    orders.create(deliveries_max=2, dead_letter="orders-dead")
    reports.create(deliveries_max=9)
    orders.put(b"\x00dies\xff", key=5, headers={"kind": "order"})
    for _ in range(2):
        message = orders.take()
        assert message is not None
        message.nack()
    reports.put("fails", key=1)
    for _ in range(2):
        message = reports.take()
        assert message is not None
        message.nack()
    reports.put("starves", key=7)
    reports.put("was given a try", key=8, headers={"redriven": "1"})
    reports.put("is worked on", key=0)
    assert reports.take(lease=600) is not None
    orders.put("was done", key=6)
    message = orders.take()
    assert message is not None
    message.ack()


def waiting(client: Client, name: str) -> list[tuple[bytes, int]]:
    return sorted((record.payload, record.key) for record in client.queue(name).browse() if record.state == "ready")


@pytest.mark.long
def test_each_gets_another_try_once(
    spark: SparkSession,
    redrive: ModuleType,
    node: TestServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--tables", str(tmp_path / "tables"), "--endpoint", f"{node.host}:{node.port}"]
    monkeypatch.setattr("sys.argv", ["redrive.py", *place, "--waited", "0", "--failures", "2", "--times", "1"])
    args = redrive.arguments()
    with penstock.connect_sync(node.url) as client, Pipeline(spark, node.url, args.tables) as pipeline:
        fill(client)
        pipeline.run_once()

        chosen = redrive.choose(spark, args)
        found = {(row["why"], row["source"], row["queue"], row["payload"]) for row in chosen.to_pylist()}
        assert found == {
            ("failed", "orders-dead", "orders", b"\x00dies\xff"),
            ("failed", "reports", "reports", b"fails"),
            ("starved", "reports", "reports", b"starves"),
        }
        redrive.send(spark, args, chosen)
        _check_sent(client)
        # The tables still tell the old story; the node does not.
        redrive.main()
        assert capsys.readouterr().out == "re-drove 0\n"
        # As if it had ended before the old ones were deleted: copies that are there are not sent again.
        redrive.send(spark, args, chosen)
        _check_sent(client)


def _check_sent(client: Client) -> None:
    assert waiting(client, "orders") == [(b"\x00dies\xff", 1000)]
    assert waiting(client, "reports") == [(b"fails", 1000), (b"starves", -1), (b"was given a try", 8)]
    assert waiting(client, "orders-dead") == []
    (record,) = client.queue("orders").peek(1)
    assert record.headers == {"kind": "order", "redriven": "1"}
