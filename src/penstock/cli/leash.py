"""`python -m penstock.cli.leash GRACE_SECONDS COMMAND ...`: run a command that never outlives who started it.

Its standard input is the leash. When the other end is closed, on purpose or because its holder was killed, the command
and all it started are asked to end as by Ctrl-C, and killed when the grace is over. They run with a low priority and
away from the terminal, whose Ctrl-C is for the holder alone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

_NICENESS: Final = 10
_STDIN: Final = 0


def main() -> int:
    """Run the command of this process's arguments; its exit code, negative for the signal that ended it."""
    grace_seconds, command = float(sys.argv[1]), sys.argv[2:]
    os.nice(_NICENESS)
    # Who starts a program in the background may have it ignore Ctrl-C; the command would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ended = _end_of_child()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None and _is_held(ended):
            pass
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
            child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also after an end of its own: Spark's JVM may still be there.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _end_of_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    ended, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ended


def _is_held(ended: int) -> bool:
    """Wait for something to happen; False when it is that the leash was let go."""
    ready, _, _ = select.select([_STDIN, ended], [], [])
    if ended in ready:
        os.read(ended, 64)
    return _STDIN not in ready or bool(os.read(_STDIN, 64))


if __name__ == "__main__":
    code = main()
    sys.exit(code if code >= 0 else 128 - code)
