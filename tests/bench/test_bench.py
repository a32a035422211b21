"""The benchmark measures what it says: every row yields its figures, processes end, verdicts follow the goals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bench import __main__ as command
from bench.cpu import cpu_seconds, memory_bytes, peak_memory_bytes, process_tree
from bench.errors import BenchError, ServerFailed, ServerMissing
from bench.judge import judge, medians
from bench.load import drive, receive_exactly
from bench.machine import describe_machine, measure_sync
from bench.model import Bench, Bound, Entry, Goal, Outcome, Plan, Row, Sample
from bench.process import ServerProcess
from bench.programs import Program, Programs
from bench.quantiles import quantile
from bench.report import print_row, print_summary, write_json
from bench.rows import all_rows
from bench.run import run_row
from bench.servers import EtzelPenstock, Floor, InlineFloor, Penstock, Workshop

FAKE = Path(__file__).with_name("fake_penstock.py")
TINY = Plan(
    rounds=1,
    seconds=0.1,
    backlog_records=2_000,
    full_records=3_000,
    fill_records_max=500,
    sleepers=20,
    burst_messages=2_000,
    full_burst_messages=3_000,
    spark_events=120_000,
    single_events=60_000,
    sink_records=2_000,
    increment_events=5_000,
    short_events=5_000,
    long_events=10_000,
)


class NoPrograms(Programs):
    """A machine without anybody else's servers."""

    def find(self, package: str) -> Program:
        raise ServerMissing(package, "not for tests")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A tiny plan with a stand-in for the node."""
    workshop = Workshop(
        tmp_path,
        NoPrograms(tmp_path),
        floor_file_bytes=1 << 20,
        penstock_command=[sys.executable, str(FAKE)],
    )
    return Bench(TINY, workshop)


def test_a_process_tree_holds_grandchildren_and_their_memory() -> None:
    program = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        try:
            tree = process_tree(os.getpid())
            assert {parent.pid, grandchild} <= set(tree)
            assert memory_bytes([parent.pid, grandchild]) > memory_bytes([grandchild]) > 0
            assert peak_memory_bytes([parent.pid, grandchild]) > peak_memory_bytes([parent.pid]) > 0
            assert cpu_seconds(parent.pid) > 0
        finally:
            os.kill(grandchild, 9)
            parent.communicate()


def test_what_is_gone_uses_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert cpu_seconds(process.pid) == 0
    assert memory_bytes([process.pid]) == peak_memory_bytes([process.pid]) == 0


class Script(ServerProcess):
    """A server that is a line of Python."""

    name = "script"

    def __init__(self, folder: Path, code: str) -> None:
        super().__init__(folder)
        self.code = code

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]


def test_a_server_that_does_not_start_fails_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match=r"exit status 3.*no luck"),
        Script(tmp_path / "script", "print('no luck', flush=True); raise SystemExit(3)"),
    ):
        pass
    assert not (tmp_path / "script").exists()


LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); {then}"


def test_a_server_is_ended_with_its_children_whatever_happens(tmp_path: Path) -> None:
    server = Script(tmp_path / "script", "")
    server.code = "import subprocess; subprocess.Popen(['sleep', '60']); " + LISTEN.format(
        port=server.port, then="time.sleep(60)"
    )
    pids: list[int] = []

    def use() -> None:
        with server:
            pids.extend(server.pids())
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert len(pids) == 2
    for pid in pids:
        status = Path(f"/proc/{pid}/stat")
        # The child may linger as a zombie where nobody is there to wait for orphans.
        assert not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    assert not (tmp_path / "script").exists()


def test_a_server_that_ends_by_itself_is_blamed(tmp_path: Path) -> None:
    server = Script(tmp_path / "script", "")
    server.code = LISTEN.format(port=server.port, then="[s.accept() for _ in '12']; print('gone'); raise SystemExit(4)")

    def use() -> None:
        with server, server.connect() as connection:
            assert connection.recv(1) == b""
            raise BenchError("the connection ended")

    with pytest.raises(ServerFailed, match="gone"):
        use()


def test_a_missing_program_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    programs = Programs(tmp_path / "programs")
    with pytest.raises(ServerMissing, match="apt-get install redis-server"):
        programs.find("redis-server")
    installed = tmp_path / "redis-server"
    installed.touch(mode=0o755)
    assert Programs(tmp_path / "programs").find("redis-server").path == installed


def test_private_settings_do_not_reach_the_node(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_MODE", "none")
    assert "PENSTOCK_STORAGE_MODE" not in Penstock(bench.workshop).environment()


@pytest.mark.parametrize("kind", [Floor, InlineFloor])
@pytest.mark.parametrize(("connections", "window"), [(1, 1), (4, 1), (1, 100)])
def test_the_floor_answers_each_request_once(bench: Bench, kind: type[Floor], connections: int, window: int) -> None:
    """The file wraps around many times; each load ends with nothing outstanding."""
    with kind(bench.workshop) as server:
        loads = [server.puts(window) for _ in range(connections)]
        sockets = [server.connect() for _ in loads]
        meter = server.meter()
        with meter:
            drive([*zip(sockets, loads, strict=True)], 0.2)
        for connection in sockets:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
            connection.close()
    assert all(load.completed > 0 and load.waiting == 0 for load in loads)
    figures = meter.figures(sum(load.completed for load in loads))
    assert figures["rate_per_s"] > 0
    assert figures["cpu_us"] > 0
    assert all(len(load.latencies_ns) == (load.completed if window == 1 else 0) for load in loads)


def test_the_floor_keeps_what_it_answers(bench: Bench) -> None:
    with Floor(bench.workshop) as server, server.connect() as connection:
        connection.sendall(b"\0\0\0\3ab")
        connection.sendall(b"c" + b"\0\0\0\0")
        assert receive_exactly(connection, 2) == b"\1\1"
        written = (bench.workshop.folder / "floor-file").read_bytes()
        assert written.startswith(b"\0\0\0\3abc")


NODE_ROWS = ["etzel", "etzel-sleepers", "etzel-burst", "monique", "put-queues", "put-history", "spark-decode"]
SPARK_ROWS = ["spark-read", "spark-bronze", "spark-sink", "spark-visible", "spark-increment"]
ROW_NAMES = [row.name for row in all_rows(TINY) if row.name not in NODE_ROWS + SPARK_ROWS]


@pytest.mark.parametrize("name", [*NODE_ROWS, *(pytest.param(name, marks=pytest.mark.long) for name in SPARK_ROWS)])
def test_every_row_with_a_node_yields_the_figures_that_its_goals_ask_for(bench: Bench, name: str) -> None:
    """Against the node itself: a stand-in for two more protocols would be half a node."""
    (row,) = [row for row in all_rows(TINY) if row.name == name]
    outcome = run_row(row, Bench(TINY, Workshop(bench.workshop.folder, bench.workshop.programs)), lambda text: None)
    assert outcome.failures == outcome.skipped == {}
    for entry in row.entries:
        (sample,) = outcome.samples[entry.label]
        assert {goal.figure for goal in row.goals if goal.entry == entry.label} <= set(sample)
        assert all(value >= 0 for value in sample.values())
        assert sample.get("rate_per_s", 1) > 0


def test_messages_that_a_burst_has_lost_are_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(server: EtzelPenstock) -> None:
        ServerProcess.kill(server)
        shutil.rmtree(server.folder / "data", ignore_errors=True)

    monkeypatch.setattr(EtzelPenstock, "kill", forget)
    (row,) = [row for row in all_rows(TINY) if row.name == "etzel-burst"]
    outcome = run_row(row, Bench(TINY, Workshop(bench.workshop.folder, bench.workshop.programs)), lambda text: None)
    assert "2000 messages were published, 0 came back" in outcome.failures["penstock, burst"]


@pytest.mark.parametrize("name", ROW_NAMES)
def test_every_row_measures_every_server_that_is_there(bench: Bench, name: str) -> None:
    """Against a stand-in that keeps its records only over an orderly stop: the loss after kill -9 must be noticed."""
    (row,) = [row for row in all_rows(TINY) if row.name == name]
    steps: list[str] = []
    outcome = run_row(row, bench, steps.append)
    assert len(steps) == len(row.entries)
    assert set(outcome.skipped) == {entry.label for entry in row.entries} & {"redis", "beanstalkd"}
    if name == "start":
        assert "2000 records were put, 0 came back" in outcome.failures.pop("after kill -9")
    assert outcome.failures == {}
    for label, samples in outcome.samples.items():
        assert all(value >= 0 for sample in samples for value in sample.values()), label
        assert samples[0].get("rate_per_s", 1) > 0
    wanted = {goal.figure for goal in row.goals}
    judged = [samples[0] for label, samples in outcome.samples.items() if label in {goal.entry for goal in row.goals}]
    assert all(wanted & set(sample) for sample in judged)


def test_the_command_prints_and_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "Programs", NoPrograms)
    arguments = command.parse_arguments(
        ["--only", "taskflux", "--json", "out/figures.json", "--penstock", f"{sys.executable} {FAKE}"]
    )
    assert command.run(arguments, TINY) == 0
    printed = capsys.readouterr()
    assert "TaskFlux door" in printed.out
    assert "[2/2] taskflux, round 1 of 1: penstock, dequeue with ack" in printed.err
    document = json.loads(Path("out/figures.json").read_text(encoding="utf-8"))
    assert document["machine"]["cores"] >= 1
    assert document["rows"][0]["samples"]["penstock, enqueue with ack"][0]["rate_per_s"] > 0
    assert document["rows"][0]["verdicts"][0]["reach"]["met"] in (True, False)
    assert [path.name for path in Path(".bench").iterdir()] == [".gitignore"]


def test_the_command_refuses_rows_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse_arguments(["--only", "nothing"])
    assert "put-batch" in capsys.readouterr().err


def make_row(entries: dict[str, Callable[[Bench], Sample]], *goals: Goal) -> Row:
    return Row("row", "a row", tuple(Entry(label, measure) for label, measure in entries.items()), goals)


def test_rounds_are_interleaved_and_a_failure_stops_only_its_own_entry(tmp_path: Path) -> None:
    order: list[str] = []

    def good(_: Bench) -> Sample:
        order.append("good")
        return {"rate_per_s": float(len(order))}

    def bad(_: Bench) -> Sample:
        order.append("bad")
        raise ServerFailed("bad", "broken")

    def missing(_: Bench) -> Sample:
        order.append("missing")
        raise ServerMissing("missing", "buy one")

    bench = Bench(Plan(rounds=3), Workshop(tmp_path, NoPrograms(tmp_path)))
    row = make_row({"first": good, "bad": bad, "missing": missing, "last": good})
    outcome = run_row(row, bench, lambda text: None)
    assert order == ["good", "bad", "missing", "good", "good", "good", "good", "good"]
    assert {label: len(samples) for label, samples in outcome.samples.items()} == {"first": 3, "last": 3}
    assert outcome.failures == {"bad": "bad failed: broken"}
    assert outcome.skipped == {"missing": "missing is missing: buy one"}


def outcome_of(goal: Goal, **samples: list[float]) -> Outcome:
    row = make_row({}, goal)
    return Outcome(row, {label: [{goal.figure: value} for value in values] for label, values in samples.items()})


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    goal = Goal("ours", "rate_per_s", Bound(0.7, "floor"), Bound(150))
    (verdict,) = judge(outcome_of(goal, ours=[60, 300, 50], floor=[50, 400, 100]))
    assert verdict.reach.measured == 0.75
    assert verdict.reach.met is True
    assert verdict.aim is not None
    assert verdict.aim.measured == 60
    assert verdict.aim.met is False


@pytest.mark.parametrize(("value", "met"), [(6.9, True), (7.0, True), (7.1, False)])
def test_a_goal_from_above_is_met_up_to_its_bound(value: float, met: bool) -> None:
    goal = Goal("ours", "cpu_us", Bound(7), most=True)
    (verdict,) = judge(outcome_of(goal, ours=[value]))
    assert verdict.reach.met is met
    assert verdict.aim is None


def test_without_the_other_server_a_ratio_is_not_judged() -> None:
    goal = Goal("ours", "rate_per_s", Bound(0.8, "redis"), Bound(10))
    (verdict,) = judge(outcome_of(goal, ours=[100]))
    assert verdict.reach.met is None
    assert verdict.aim is not None
    assert verdict.aim.met is True


def test_medians_take_the_worst_of_worst_cases() -> None:
    assert medians([{"p50_ms": 1, "max_ms": 3}, {"p50_ms": 2, "max_ms": 9}, {"p50_ms": 7, "max_ms": 4}]) == {
        "p50_ms": 2,
        "max_ms": 9,
    }


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile(range(100), 0.5) == 50
    assert quantile(range(100), 0.99) == 99
    assert quantile([3.0, 1.0], 1.0) == 3.0


def test_the_report_shows_figures_ratios_verdicts_and_failures(tmp_path: Path) -> None:
    goal = Goal("penstock", "rate_per_s", Bound(0.8, "floor"), Bound(5_500))
    row = Row(
        "put-1",
        "put",
        tuple(Entry(label, lambda bench: {}) for label in ("floor", "penstock", "redis", "beanstalkd")),
        (goal,),
    )
    busy = {"rate_per_s": 4_000.0, "client_cores": 0.97, "other_cores": 1.25}
    outcome = Outcome(row, {"floor": [{"rate_per_s": 5_000.0, "client_cores": 0.1}], "penstock": [busy]})
    outcome.failures["beanstalkd"] = "it broke"
    outcome.skipped["redis"] = "it is missing"
    console = Console(record=True, width=150, file=(tmp_path / "out").open("w"))
    print_row(console, outcome)
    print_summary(console, [outcome])
    text = console.export_text()
    assert "4,000" in text
    assert "0.97!" in text
    assert "reached: penstock, messages/s: 0.80 × floor (≥ 0.8); aim missed: 4,000/s (≥ 5,500)" in text
    assert "beanstalkd: it broke" in text
    assert "redis: it is missing" in text
    assert "others used 1.25 cores" in text
    assert "1 of 1 goals reached, 0 of 1 aims met." in text


def test_the_machine_is_described_and_its_disk_probed(tmp_path: Path) -> None:
    machine = describe_machine(tmp_path)
    assert machine.cores >= 1
    assert " on " in machine.file_system
    sync = measure_sync(tmp_path, seconds=0.02)
    assert 0 < sync.p50_us <= sync.p99_us <= sync.max_us
    assert list(tmp_path.iterdir()) == []


def test_figures_are_written_as_json(tmp_path: Path) -> None:
    goal = Goal("ours", "rate_per_s", Bound(1))
    outcome = outcome_of(goal, ours=[2.0, 4.0, 3.0])
    write_json(tmp_path / "deep" / "figures.json", describe_machine(tmp_path), [], {"rounds": 3}, [outcome])
    (row,) = json.loads((tmp_path / "deep" / "figures.json").read_text(encoding="utf-8"))["rows"]
    assert row["medians"] == {"ours": {"rate_per_s": 3.0}}
    assert [sample["rate_per_s"] for sample in row["samples"]["ours"]] == [2.0, 4.0, 3.0]
