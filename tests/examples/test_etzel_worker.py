"""The worker and the publisher in JavaScript, under node, against a node process with its files on disk."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from penstock.client import connect_sync
from penstock.client.sync import Client

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "etzel_worker"
PATIENCE_S = 60.0
"""How long anything may take on a busy machine before it counts as stuck."""

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (FOLDER / "node_modules" / "ws").is_dir(),
    reason="needs node and the package ws: sudo apt-get install nodejs npm, then make test",
)


class Process:
    """A process whose lines are read as they come. Killed at the end if it still runs."""

    def __init__(self, *command: str, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.process = subprocess.Popen(
            command, env={**kept, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, beginning: str) -> str:
        """Read on until a line begins so."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.said.append(line)
            if line.startswith(beginning):
                return line
        raise AssertionError(f"it ended and did not say {beginning!r}: {self.said}")

    def end(self, code: int = 0) -> list[str]:
        """Wait for its end; all that it said."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.said.append(line)
        assert self.process.wait(PATIENCE_S) == code, self.said
        return self.said

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)


class Node(Process):
    """A node with its Etzel door open."""

    def __init__(self, data_dir: Path) -> None:
        ports = ["--taskflux-port", "0", "--etzel-port", "0", "--no-monique"]
        small = ["--storage-segment-bytes", "4MiB", "--storage-reserve-bytes", "0"]
        super().__init__(sys.executable, "-m", "penstock", "serve", "--data-dir", str(data_dir), *ports, *small)
        self.wait_for("Penstock ")
        addresses = {line.split()[0]: line.split()[1] for line in self.said if line.startswith(("taskflux", "etzel"))}
        self.url = f"ws://{addresses['etzel']}/connect"
        self.native_url = f"penstock://{addresses['taskflux']}"

    def worker(self, *args: str) -> Process:
        """The worker, which works."""
        return Process("node", str(FOLDER / "worker.js"), *args, ETZEL_URL=self.url)

    def publish(self, *args: str, code: int = 0) -> str:
        """Run the publisher to its end; what it said last."""
        with Process("node", str(FOLDER / "publisher.js"), *args, ETZEL_URL=self.url) as publisher:
            return publisher.end(code)[-1]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with connect_sync(node.native_url) as connected:
        yield connected


def figures(line: str) -> dict[str, int]:
    """How many frames of each command went out and came in, by the worker's last words."""
    assert re.match(r"[0-9]+ messages; sent: .*; received: ", line), line
    return {name: int(count) for name, count in re.findall(r"([A-Za-z]+) ([0-9]+)", line)}


def texts(lines: list[str]) -> list[str]:
    """What the worker got, in order."""
    return [found[1] for line in lines if (found := re.match(r'(?:done|got) "([^"]*)"', line))]


@needs_node
def test_a_worker_and_a_thousand_messages(node: Node, client: Client) -> None:
    """Started before there is a queue, it receives everything, once and in order, and every request has its reply."""
    with node.worker("thousand") as worker:
        worker.wait_for("nothing in thousand")  # told Q_NOT_FOUND
        assert node.publish("thousand", "1000").endswith(": ok 1000")
        worker.wait_for('done "hello 1000"')
        worker.wait_for("nothing in thousand")
        worker.process.terminate()
        lines = worker.end()
    assert texts(lines) == [f"hello {n}" for n in range(1, 1001)]
    counts = figures(lines[-1])
    assert counts["SUB"] == counts["oksub"] == 1
    assert counts["msg"] == counts["ACK"] == counts["okack"] == 1000
    assert counts["nomsg"] == counts["ISLP"] == counts["okslp"] >= 1
    assert counts["nok"] == 1
    assert counts["FET"] == counts["msg"] + counts["nomsg"] + counts["nok"]
    assert counts["awk"] <= counts["okslp"] + counts["nok"]
    info = client.queue("thousand").info()
    assert (info.put, info.acked + info.ended_otherwise, info.ready, info.leased) == (1000, 1000, 0, 0)


@needs_node
def test_several_workers_share_the_messages(node: Node, client: Client) -> None:
    with node.worker("shared") as first, node.worker("shared") as second:
        for worker in (first, second):
            worker.wait_for("nothing in shared")
        node.publish("shared", "500")
        while (info := client.queue("shared").info()).ready + info.leased:
            time.sleep(0.01)
        for worker in (first, second):
            worker.process.terminate()
        got = [*texts(first.end()), *texts(second.end())]
    assert sorted(got) == sorted(f"hello {n}" for n in range(1, 501))


@needs_node
def test_a_worker_ends_when_nothing_comes(node: Node) -> None:
    node.publish("brief", "3")
    with node.worker("brief", "--idle", "1") as worker:
        assert len(texts(worker.end())) == 3


@needs_node
def test_a_worker_that_never_acknowledges_gets_each_message_again_after_its_timeout(node: Node) -> None:
    with node.worker("forgetful", "--no-ack", "--count", "40") as worker:
        worker.wait_for("nothing in forgetful")
        node.publish("forgetful", "20", "--timeout", "5")
        for n in range(1, 21):
            worker.wait_for(f'got "hello {n}"')
        first_s = time.monotonic()
        worker.wait_for('got "hello 1"')
        came_back_s = time.monotonic()
        lines = worker.end()
    deliveries = [line for line in lines if line.startswith("got ")]
    assert texts(deliveries[:20]) == texts(deliveries[20:])
    uids = [line.partition("(")[2].partition(")")[0] for line in deliveries]
    assert [f"{uid}, delivered 1 times before" for uid in uids[:20]] == uids[20:]
    # The first was fetched a while before the last of them was said.
    assert came_back_s - first_s > 4


@needs_node
def test_a_delay_is_waited_for_and_what_has_expired_is_never_seen(node: Node, client: Client) -> None:
    with node.worker("later", "--count", "1") as worker:
        worker.wait_for("nothing in later")
        node.publish("later", "--text", "expired", "--delay", "1", "--expires", "0.5")
        began_s = time.monotonic()
        node.publish("later", "--text", "delayed", "--delay", "2")
        worker.wait_for('done "delayed 1"')
        assert time.monotonic() - began_s >= 2
        assert texts(worker.end()) == ["delayed 1"]
    assert client.queue("later").info().expired == 1


@needs_node
def test_the_smallest_priority_goes_first(node: Node) -> None:
    for priority in (20, 0, -20):
        node.publish("hospital", "2", f"--priority={priority}", "--text", f"p{priority}")
    with node.worker("hospital", "--count", "6") as worker:
        assert texts(worker.end()) == ["p-20 1", "p-20 2", "p0 1", "p0 2", "p20 1", "p20 2"]


@needs_node
def test_a_burst_whose_answers_are_not_read_is_stored_whole(node: Node, client: Client) -> None:
    assert node.publish("burst", "--burst", "20000").endswith(": ok 20000")
    assert client.queue("burst").info().ready == 20_000
    texts = [record.text for record in client.queue("burst").browse(page=1000)]
    assert texts == [f"hello {n}" for n in range(1, 20_001)]


@needs_node
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node:
        with node.worker("durable", "--no-ack", "--count", "10") as worker:
            worker.wait_for("nothing in durable")
            node.publish("durable", "100")
            worker.end()
        node.process.kill()
        node.process.wait(PATIENCE_S)
    with Node(tmp_path / "data") as node, node.worker("durable", "--count", "90") as worker:
        assert texts(worker.end()) == [f"hello {n}" for n in range(11, 101)]
        with connect_sync(node.native_url) as client:
            kept = [record.text for record in client.queue("durable").browse()]
    assert kept == [f"hello {n}" for n in range(1, 11)], "what was fetched and not acknowledged comes back later"


@needs_node
def test_messages_of_other_doors_are_taken_too(node: Node, client: Client) -> None:
    client.queue("mixed").put("by the SDK", create=True)
    client.queue("mixed").put(b"\xff no text")
    node.publish("mixed", "--text", "by Etzel")
    with node.worker("mixed", "--count", "3") as worker:
        assert texts(worker.end()) == ["by the SDK", "\ufffd no text", "by Etzel 1"]


@needs_node
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_that_sleeps(node: Node, number: signal.Signals) -> None:
    with node.worker(f"quiet-{number}") as worker:
        worker.wait_for("nothing in quiet")
        worker.process.send_signal(number)
        assert worker.end()[-1].startswith("0 messages; ")


@needs_node
def test_a_lost_connection_ends_a_worker_with_1(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node, node.worker("quiet") as worker:
        worker.wait_for("nothing in quiet")
        node.process.kill()
        assert "the connection has ended" in worker.end(code=1)[-1]


@needs_node
def test_what_is_refused_is_told(node: Node) -> None:
    assert node.publish("q", "--timeout", "3", code=1) == "publisher: the server refused: BAD_TIMEOUT"
    assert node.publish("q", "--delay", "soon", code=1) == "publisher: the server refused: BAD_DELAY"
    assert "ECONNREFUSED" in node.publish("q", "--url", "ws://127.0.0.1:1/connect", code=1)


@needs_node
@pytest.mark.parametrize("args", [[], ["q", "0"], ["q", "1.5"], ["q", "1", "2"], ["q", "--no-such-option"]])
def test_mistakes_at_the_publisher_end_with_2(node: Node, args: list[str]) -> None:
    node.publish(*args, code=2)


@needs_node
@pytest.mark.parametrize("args", [[], ["q", "--count", "0"], ["q", "--idle", "x"], ["q", "r"], ["q", "--ack"]])
def test_mistakes_at_the_worker_end_with_2(node: Node, args: list[str]) -> None:
    with node.worker(*args) as worker:
        worker.end(code=2)


def test_the_lock_pins_by_hash_and_no_file_names_a_place_to_download_from() -> None:
    lock = (FOLDER / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity": "sha512-' in lock
    assert "resolved" not in lock
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert {"etzel.js", "worker.js", "publisher.js", "package.json", ".npmrc"} <= {path.name for path in files}
    for path in files:
        assert not re.search(r"https?://|registry[.=]|npmjs", path.read_text(encoding="utf-8")), path.name


def test_every_program_is_listed() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.js"):
        assert f"[{path.name}]({path.name})" in readme
