"""`python -m tests.conformance`: run the suite and print the matrix alone; `--write` puts it into the documentation."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path

from tests.conformance.matrix import DOORS, Matrix, host, rules_in_order
from tests.conformance.showing import DOCUMENT, as_document, as_text


def main() -> int:
    """Run all cells; the exit code tells whether none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    write: bool = parser.parse_args().write
    matrix = Matrix()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder, host(Path(folder)) as hosted:
        looks = [partial(matrix.look, hosted, rule.name, door) for rule in rules_in_order() for door in DOORS]
        looks += [partial(matrix.look_across, hosted, source, target) for source in DOORS for target in DOORS]
        for look in looks:
            try:
                look()
            except Exception:
                traceback.print_exc()
    print(as_text(matrix))
    if write:
        DOCUMENT.write_text(as_document(matrix), encoding="utf-8")
    return 0 if matrix.sound else 1


if __name__ == "__main__":
    sys.exit(main())
