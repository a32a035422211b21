"""`python -m soak [--seconds 60] [--seed N]`: load a node and kill it again and again; exit code 1 if it fails.

`python -m soak --etzel-minute` does another thing: it waits for redelivery by the clock on the wall, see `soak.etzel`.
`python -m soak --spark-kills 20` too: it kills Spark drivers that write into a queue, see `soak.spark_sink`.
`python -m soak --spark-events 1000000` too: it holds the pipeline's tables against the truth, see `soak.spark_truth`.
`python -m soak --stalls` attacks a node and measures how long its event loop is held, see `soak.stalls`.
`python -m soak --long-tests` runs the tests that are too long for `make test`.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from soak.etzel import etzel_minute
from soak.memory import shown
from soak.run import Run, soak
from soak.spark_sink import kill_drivers
from soak.stalls.run import attack_all

SECONDS_MAX: Final = 7 * 86_400
SPARK_KILLS_MAX: Final = 10_000
SPARK_EVENTS_MAX: Final = 1_000_000_000
_LINE_EVERY_S: Final = {True: 0.2, False: 10.0}
"""How often the progress is written: to a terminal, where the line is rewritten, and elsewhere."""
_VIOLATIONS_SHOWN: Final = 20


class Progress:
    """One line about the run, rewritten on a terminal, else written anew now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._next = 0.0
        self._length = 0

    def __call__(self, run: Run, doing: str) -> None:
        """Write the line if it is time."""
        now = time.monotonic()
        if now < self._next and doing != "done":
            return
        self._next = now + _LINE_EVERY_S[self._is_terminal]
        figures = run.lives.judge.figures
        line = (
            f"{run.took_s:6.0f} of {run.seconds:.0f} s  {run.lives.kills} kills  "
            f"{figures['puts acknowledged']:,} put  {figures['acks confirmed']:,} acked  "
            f"{figures['given back']:,} given back  {len(run.lives.judge.live):,} live  "
            f"{shown(run.memory.peak_bytes)} at most  {figures['violations']} violations  {doing}"
        )
        if self._is_terminal:
            sys.stdout.write("\r" + line.ljust(self._length) + ("\n" if doing == "done" else ""))
            self._length = len(line)
        else:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()


def summary(run: Run) -> str:
    """What a run has come to, for people."""
    lives, memory = run.lives, run.memory
    figures = lives.judge.figures
    flow = (
        f"put {figures['puts acknowledged']:,} ({figures['puts acknowledged'] / max(run.took_s, 1):,.0f}/s), "
        f"delivered {figures['deliveries']:,}, acked {figures['acks confirmed']:,}, "
        f"given back {figures['given back']:,}, leases timed out {figures['leases timed out']:,}, "
        f"drained at the end {figures['drained']:,}"
    )
    lines = [
        "",
        f"seed {run.seed}, {run.took_s:.0f} s, killed {lives.kills} times, longest start {lives.start_s_max:.2f} s",
        flow,
        f"all that the node held was compared with what clients know {figures['surveys']} times",
        "where it was when it was killed:",
        *(f"  {count:5d}  {site}" for site, count in sorted(lives.points.items())),
        f"memory: at most {shown(memory.peak_bytes)}",
    ]
    if (pair := memory.over_lives()) is not None:
        lines.append(
            f"  from life to life: {shown(pair[0])} in the first third, {shown(pair[1])} in the last (medians)"
        )
    if (pair := memory.within_lives()) is not None:
        lines.append(
            f"  within {len(memory.growth_of_lives)} long lives: {shown(pair[0])} once settled, "
            f"{shown(pair[1])} at the end (medians)"
        )
    if run.violations:
        lines += ["", f"VIOLATIONS ({max(figures['violations'], len(run.violations))}):"]
        lines += [f"  {violation}" for violation in run.violations[:_VIOLATIONS_SHOWN]]
    else:
        lines.append(
            "nothing acknowledged was lost, nothing doubled, the order kept, every start raised the term, memory flat"
        )
    return "\n".join(lines)


def wait_a_minute() -> int:
    """See messages come back after a minute; the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"a minute of real time, files in {directory}")
    violations = etzel_minute(directory, print)
    if violations:
        print("\n".join(["", f"VIOLATIONS ({len(violations)}):", *violations, f"the files stay in {directory}"]))
        return 1
    shutil.rmtree(directory)
    print("what was not acknowledged came back at its time, once, with its uid; what was acknowledged did not")
    return 0


def kill_spark_drivers(kills: int, seed: int) -> int:
    """See every row of a stream written once, however often its driver is killed; the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"seed {seed}, files in {directory}")
    outcome = kill_drivers(directory, seed, kills, files=20 + 4 * kills, rows_per_file=2_000, say=print)
    print(
        f"\n{outcome.rows:,} rows, {outcome.kills} drivers killed, {outcome.commits_lost} commits lost: "
        f"{outcome.missing} missing, {outcome.doubled} doubled, {outcome.strange} that nobody wrote"
    )
    if not outcome.is_exact:
        print(f"the files stay in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def check_spark_tables(events: int, seed: int) -> int:
    """See the pipeline's tables be true however the log is cut; the exit code."""
    from soak.spark_truth import check_tables  # what it needs takes seconds to import

    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"seed {seed}, files in {directory}")
    violations = check_tables(directory, seed, events, print)
    if violations:
        print("\n".join(["", f"WRONG ({len(violations)}):", *violations, f"the files stay in {directory}"]))
        return 1
    shutil.rmtree(directory)
    return 0


def attack(only: str) -> int:
    """See that no attack holds the event loop of a node for long; the exit code."""
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory:
        violations = attack_all(Path(directory), print, only)
    if violations:
        print("\n".join(["", f"VIOLATIONS ({len(violations)}):", *violations]))
        return 1
    print("no callback held the loop for more than 20 ms of CPU time")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run with these arguments; the exit code."""
    parser = argparse.ArgumentParser(prog="soak", description="Load a node and kill it again and again.")
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="what is done when; by default another one each time")
    parser.add_argument(
        "--etzel-minute", action="store_true", help="instead: see Etzel's redelivery happen after 60 s of real time"
    )
    parser.add_argument("--spark-kills", type=int, metavar="N", help="instead: kill so many Spark drivers that write")
    parser.add_argument(
        "--spark-events", type=int, metavar="N", help="instead: check the pipeline's tables over so many events"
    )
    parser.add_argument(
        "--stalls",
        nargs="?",
        const="",
        metavar="NAME",
        help="instead: attack a node and measure its event loop; with NAME only the attacks whose name contains it",
    )
    parser.add_argument("--long-tests", action="store_true", help="instead: run the tests that make test leaves out")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    if options.long_tests:
        return subprocess.call([sys.executable, "-m", "pytest", "-v", "-m", "long"])
    if options.stalls is not None:
        return attack(options.stalls)
    if options.etzel_minute:
        return wait_a_minute()
    if options.spark_kills is not None:
        if not 0 < options.spark_kills <= SPARK_KILLS_MAX:
            parser.error(f"--spark-kills must be above 0 and at most {SPARK_KILLS_MAX}")
        return kill_spark_drivers(options.spark_kills, seed)
    if options.spark_events is not None:
        if not 0 < options.spark_events <= SPARK_EVENTS_MAX:
            parser.error(f"--spark-events must be above 0 and at most {SPARK_EVENTS_MAX}")
        return check_spark_tables(options.spark_events, seed)
    if not 0 < options.seconds <= SECONDS_MAX:
        parser.error(f"--seconds must be above 0 and at most {SECONDS_MAX}")
    directory = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    print(f"seed {seed}, files in {directory}")
    try:
        run = soak(directory, seed, options.seconds, Progress())
    except KeyboardInterrupt:
        print(f"\ninterrupted; the files stay in {directory}")
        return 130
    print(summary(run))
    if run.violations:
        print(f"the files stay in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
