"""A Spark driver that writes a stream into a queue and is killed again and again: `python -m soak --spark-kills 20`.

The driver is a process of its own that reads files, a few with each micro-batch, and writes their rows with the format
`penstock` to a node that is a process, too. It is killed at random moments, with its JVM; Python workers may live on
for a moment, and what they still send is part of the trial. Between lives the last commit file of the checkpoint is
lost now and then, so that a batch which was published is written again. In the end every row must be in the queue once.

`python -m soak.spark_sink '{…}'` is the driver. The tests of the sink (tests/spark/sink) use the same parts.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from penstock.client.events import read_events
from penstock.client.history import HistoryReader
from penstock.engine import commands as c
from penstock.engine.views import EventView
from penstock.wire.native import messages as m
from soak.client import Connection
from soak.process import ROOT, ServedFailed, wait_until

QUEUE: Final = "rows"
DRIVER_S_MAX: Final = 240.0
_FILES_PER_BATCH: Final = 2
_FIRST_BATCH_S: Final = 5.0
"""About as long as a driver needs for its first batch, from the moment when its query runs."""
_BATCH_S: Final = 0.7
_ROWS_BEFORE_FAILURE: Final = 4_000
"""With their payloads more than fits into the buffers on the way to the sink, so that some are staged."""

Say = Callable[[str], None]


class Broker:
    """`penstock serve` as users start it: on one port, however often it is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._data_dir = directory / "data"
        self._errors_path = directory / "broker.errors"
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"penstock://{self.endpoint}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        doors = ["--taskflux-port", str(self.port), "--no-etzel", "--no-monique"]
        with self._errors_path.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--data-dir", str(self._data_dir), *doors],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if line.rstrip().endswith("is ready."):
                return
        raise ServedFailed("the broker ended before it was ready", self._errors_path.read_text(errors="replace"))

    def kill(self) -> None:
        """Kill it without a chance to do anything, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, request: Any) -> Any:
        """The answer to one request, over a connection of its own."""
        with Connection(self.port) as connection:
            return connection.ask(request)

    def payloads(self, queue: str) -> list[bytes]:
        """All that is in a queue, in the order in which it came."""
        found: list[bytes] = []
        cursor = 0
        with Connection(self.port) as connection:
            while True:
                page = connection.ask(m.Browse(queue, None, None, cursor, 1000))
                found += [record.payload for record in page.records]
                cursor = page.cursor
                if not cursor:
                    return found

    def events(self, kind: int) -> list[EventView]:
        """All events of a kind, in order."""
        with HistoryReader(self.url) as reader:
            reach = reader.reach()
            events = read_events(reader, reach.first_index, reach.applied_index)
            return [event.view for event in events if event.view.kind == kind]


class Plan(msgspec.Struct):
    """What a driver does."""

    endpoint: str
    files: str
    checkpoint: str
    master: str = "local[2]"
    marker: str = ""
    """A file that does not exist yet: the task that makes it fails after some of its rows were staged."""


def drive(plan: Plan) -> None:
    """Write all files to the queue, batch by batch, and say "running" when that begins."""
    from penstock.spark.session import open_session

    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_BEFORE_FAILURE // 4)}
    spark = open_session("sink-driver", master=plan.master, settings=settings if plan.marker else {})
    rows = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", _FILES_PER_BATCH).json(plan.files)
    rows = rows.selectExpr("number % 5 AS key", "lpad(CAST(number AS string), 100, '0') AS payload")
    if plan.marker:
        rows = rows.mapInArrow(failing_once(plan.marker, plan.endpoint), "key bigint, payload string")
    writer = rows.writeStream.format("penstock").option("endpoint", plan.endpoint).option("queue", QUEUE)
    query = writer.option("checkpointLocation", plan.checkpoint).trigger(availableNow=True).start()
    sys.stdout.write("running\n")
    sys.stdout.flush()
    query.awaitTermination()
    spark.stop()


def failing_once(marker: str, endpoint: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Passes rows on, but the first task to have passed some fails when a part of them is staged."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        passed = 0
        with HistoryReader(f"penstock://{endpoint}") as history:
            before = history.reach().applied_index
            for batch in batches:
                if passed >= _ROWS_BEFORE_FAILURE and not os.path.exists(marker):
                    history.reach(before, wait_seconds=30.0)
                    with open(marker, "x"):
                        raise RuntimeError("this task fails once")
                passed += batch.num_rows
                yield batch

    return work


def write_files(directory: Path, files: int, rows_per_file: int) -> list[bytes]:
    """Files of consecutive numbers; the payloads that come of them."""
    directory.mkdir()
    for n in range(files):
        numbers = range(n * rows_per_file, (n + 1) * rows_per_file)
        (directory / f"{n:05d}.json").write_text("".join(f'{{"number": {number}}}\n' for number in numbers))
    return [b"%0100d" % number for number in range(files * rows_per_file)]


@contextmanager
def driving(plan: Plan, errors: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver whose query runs; it and its JVM are killed at the end."""
    with errors.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "soak.spark_sink", msgspec.json.encode(plan).decode()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            start_new_session=True,  # so that its JVM is in its process group
        )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "running\n":
            raise ServedFailed("the driver did not run its query", errors.read_text(errors="replace")[-20_000:])
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def run_to_end(plan: Plan, errors: Path) -> None:
    """Let a driver do all there is to do."""
    with driving(plan, errors) as process:
        try:
            code = process.wait(DRIVER_S_MAX)
        except subprocess.TimeoutExpired:
            code = -1
        if code:
            raise ServedFailed("the driver did not come to its end", errors.read_text(errors="replace")[-20_000:])


@dataclass(slots=True)
class Outcome:
    """What a loop of kills has come to."""

    rows: int
    kills: int = 0
    commits_lost: int = 0
    published_at_kills: list[int] = field(default_factory=list)
    missing: int = 0
    doubled: int = 0
    strange: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether every row is there once."""
        return not (self.missing or self.doubled or self.strange)


def kill_drivers(
    directory: Path, seed: int, kills: int, *, files: int, rows_per_file: int, say: Say = lambda _: None
) -> Outcome:
    """Kill so many drivers one after the other, let the last one finish, and count what is in the queue."""
    chance = random.Random(seed)
    expected = write_files(directory / "files", files, rows_per_file)
    outcome = Outcome(len(expected))
    with Broker(directory) as broker:
        broker.ask(c.CreateQueue(QUEUE, c.QueueSettings()))
        plan = Plan(broker.endpoint, str(directory / "files"), str(directory / "checkpoint"))
        for _ in range(kills):
            with driving(plan, directory / "driver.errors") as process:
                _wait_for_the_moment(broker, process, chance, rows_per_file * _FILES_PER_BATCH)
            if process.returncode == -signal.SIGKILL:
                outcome.kills += 1
            outcome.published_at_kills.append(broker.ask(m.ShowQueue(QUEUE)).put)
            outcome.commits_lost += chance.random() < 0.5 and lose_last_commit(Path(plan.checkpoint))
            say(f"killed {outcome.kills} of {kills} drivers, {outcome.published_at_kills[-1]:,} rows are in the queue")
        run_to_end(plan, directory / "driver.errors")
        wait_until(lambda: broker.ask(m.ShowQueue(QUEUE)).put >= len(expected), 60, 0.05)
        _compare(broker.payloads(QUEUE), expected, outcome)
    return outcome


def _wait_for_the_moment(
    broker: Broker, process: subprocess.Popen[str], chance: random.Random, rows_per_batch: int
) -> None:
    """Until some batches were published, none perhaps, and then for a time that has nothing to do with them."""
    batches = chance.choice((0, 1, 1, 2))
    goal = broker.ask(m.ShowQueue(QUEUE)).put + batches * rows_per_batch
    wait_until(
        lambda: process.poll() is not None or broker.ask(m.ShowQueue(QUEUE)).put >= goal, DRIVER_S_MAX, every_s=0.01
    )
    time.sleep(chance.uniform(0, _BATCH_S if batches else _FIRST_BATCH_S))


def lose_last_commit(checkpoint: Path) -> bool:
    """Remove the newest file that says that a batch is done; false where there is none."""
    commits = [path for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not commits:
        return False
    newest = max(commits, key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return True


def _compare(found: list[bytes], expected: list[bytes], outcome: Outcome) -> None:
    counts = Counter(found)
    outcome.missing = sum(payload not in counts for payload in expected)
    outcome.doubled = sum(count - 1 for count in counts.values())
    outcome.strange = len(counts.keys() - set(expected))


if __name__ == "__main__":
    drive(msgspec.json.decode(sys.argv[1], type=Plan))
