"""The command `python -m fuzz`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from fuzz.runner import Figures, Finding, Target, discover, fuzz_target

_PROGRESS_SECONDS = 1.0


def main() -> int:
    """Fuzz all targets, or those named. Returns the exit code: 1 if one failed."""
    targets = discover()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Feed mutated inputs to every parser.")
    parser.add_argument("--cases", type=int, default=100_000, help="inputs per target (default 100000)")
    parser.add_argument("--target", action="append", choices=[target.name for target in targets], help="only this one")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default 0)")
    arguments = parser.parse_args()
    failed = False
    for target in targets:
        if arguments.target is None or target.name in arguments.target:
            failed |= not _fuzz_and_print(target, arguments.cases, arguments.seed)
    return 1 if failed else 0


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
        if shown and not figures.cases % 64 and time.monotonic() - printed >= _PROGRESS_SECONDS:
            printed = time.monotonic()
            print(f"\r\033[K{name}: {figures.cases:,} of {cases:,}", end="", flush=True)

    return progress


if __name__ == "__main__":
    sys.exit(main())
