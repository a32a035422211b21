"""The command `python -m fuzz`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.runner import Figures, Finding, Target, discover, fuzz_target
from fuzz.sessions.health import Unhealthy
from fuzz.sessions.run import fuzz_sessions
from fuzz.sessions.serving import NodeFailed

_PROGRESS_SECONDS = 1.0
_SESSIONS = "sessions"


def main() -> int:
    """Fuzz all targets, or those named. Returns the exit code: 1 if one failed."""
    targets = discover()
    names = [*(target.name for target in targets), _SESSIONS]
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Feed mutated inputs to every parser, then whole sessions to a running node."
    )
    parser.add_argument("--cases", type=int, default=100_000, help="inputs per parser (default 100000)")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs of all sessions (default 1000000)")
    parser.add_argument("--target", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default 0)")
    arguments = parser.parse_args()
    chosen = arguments.target or names
    failed = False
    for target in targets:
        if target.name in chosen:
            failed |= not _fuzz_and_print(target, arguments.cases, arguments.seed)
    if _SESSIONS in chosen:
        failed |= not _fuzz_sessions_and_print(arguments.inputs, arguments.seed)
    return 1 if failed else 0


def _fuzz_sessions_and_print(inputs: int, seed: int) -> bool:
    started = time.monotonic()
    show = _progress_line(_SESSIONS, inputs)
    with TemporaryDirectory() as directory:
        try:
            sent = fuzz_sessions(Path(directory), inputs, seed, lambda sent: show(Figures(sent)))
        except (NodeFailed, Unhealthy) as problem:
            print(f"\r\033[KFAILED {_SESSIONS}: {problem}")
            print(f"repeat: python -m fuzz --target {_SESSIONS} --inputs {inputs} --seed {seed}")
            return False
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    rate = sent / (time.monotonic() - started)
    print(f"{clear}{_SESSIONS}: {sent:,} inputs, {rate:,.0f}/s; the node is well, stopped, and is well again")
    return True


def _fuzz_and_print(target: Target, cases: int, seed: int) -> bool:
    started = time.monotonic()
    try:
        figures = fuzz_target(target, cases, seed, _progress_line(target.name, cases))
    except Finding as finding:
        print(f"\r\033[KFAILED {finding}\nrepeat: python -m fuzz --target {target.name} --cases {cases} --seed {seed}")
        return False
    rate = figures.cases / max(time.monotonic() - started, 1e-9)
    errors = ", ".join(f"{name} {count:,}" for name, count in figures.errors.most_common())
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(f"{clear}{target.name}: {figures.cases:,} cases, {rate:,.0f}/s, accepted {figures.accepted:,}; {errors}")
    return True


def _progress_line(name: str, cases: int) -> Callable[[Figures], None]:
    """A callback that rewrites one line every second, on terminals only."""
    printed = time.monotonic()
    shown = sys.stdout.isatty()

    def progress(figures: Figures) -> None:
        nonlocal printed
        if shown and time.monotonic() - printed >= _PROGRESS_SECONDS:
            printed = time.monotonic()
            print(f"\r\033[K{name}: {figures.cases:,} of {cases:,}", end="", flush=True)

    return progress


if __name__ == "__main__":
    sys.exit(main())
