"""The command `python -m bench`."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from pathlib import Path
from types import FrameType

from bench.machine import SyncLatency, describe_machine, measure_sync
from bench.model import Bench, Outcome, Plan
from bench.programs import Programs
from bench.report import Progress, make_console, print_machine, print_row, print_summary, print_sync, write_json
from bench.rows import all_rows
from bench.run import HOME, data_folder, rounds_of, run_row
from bench.servers import Workshop

_FULL_RECORDS = 5_000_000
_FULL_BURST_MESSAGES = 1_000_000
_FULL_EVENTS = 20_000_000


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    names = [row.name for row in all_rows(Plan())]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Penstock beside what its users would pick instead, all in one run on this machine.",
        epilog="Rows: " + ", ".join(names),
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="how often each is measured (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="length of a load (default 1.0)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="ROW", help="only these rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file too")
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"with a backlog of {_FULL_RECORDS:,} records and a burst of {_FULL_BURST_MESSAGES:,} messages too, and "
        f"a history of {_FULL_EVENTS:,} events",
    )
    parser.add_argument("--penstock", metavar="COMMAND", help="the command to measure (default: penstock of this venv)")
    parsed = parser.parse_args(arguments)
    if parsed.rounds < 1 or parsed.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return parsed


def run(arguments: argparse.Namespace, plan: Plan) -> int:
    """The whole run. Returns the exit code: 1 if a server failed."""
    console = make_console()
    rows = [row for row in all_rows(plan) if arguments.only is None or row.name in arguments.only]
    outcomes: list[Outcome] = []
    syncs: list[SyncLatency] = []
    with data_folder() as folder:
        bench = Bench(plan, _workshop(folder, arguments.penstock))
        machine = describe_machine(folder)
        print_machine(console, machine)
        progress = Progress(sum(rounds_of(row, bench) * len(row.entries) for row in rows))
        for row in rows:
            syncs.append(measure_sync(folder))
            outcomes.append(run_row(row, bench, progress.step))
            progress.clear()
            print_row(console, outcomes[-1])
        syncs.append(measure_sync(folder))
    print_summary(console, outcomes)
    print_sync(console, syncs)
    if arguments.json is not None:
        write_json(arguments.json, machine, syncs, dataclasses.asdict(plan), outcomes)
    return 1 if any(outcome.failures for outcome in outcomes) else 0


def _workshop(folder: Path, penstock: str | None) -> Workshop:
    programs = Programs(HOME.resolve() / "programs")
    if penstock is None:
        return Workshop(folder, programs)
    return Workshop(folder, programs, penstock_command=Workshop.command_from(penstock))


def _end(number: int, _frame: FrameType | None) -> None:
    # As an exception, so that every server that was started is ended on the way out.
    raise SystemExit(128 + number)


def main() -> int:
    """Run and print. Returns the exit code."""
    signal.signal(signal.SIGTERM, _end)
    arguments = parse_arguments()
    plan = Plan(
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        full_records=_FULL_RECORDS if arguments.full else 0,
        full_burst_messages=_FULL_BURST_MESSAGES if arguments.full else 0,
        long_events=_FULL_EVENTS if arguments.full else Plan.long_events,
    )
    try:
        return run(arguments, plan)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
