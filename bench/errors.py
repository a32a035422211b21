"""What can go wrong in a benchmark.

BenchError
 ├─ ServerMissing     (program, hint)   a program to compare with is not on this machine
 ├─ ServerFailed      (server, detail)  a server did not start, or ended by itself
 ├─ ConnectionEnded   ()                a server closed a connection in the middle of a load
 ├─ NoAnswer          (wait_s)          a server kept silent
 └─ UnexpectedAnswer  (what, data)      a server answered something that a load does not know
"""

from __future__ import annotations


class BenchError(Exception):
    """A measurement that cannot be taken."""

    code = "bench"


class ServerMissing(BenchError):
    """A program to compare with is not on this machine."""

    code = "server-missing"

    def __init__(self, program: str, hint: str) -> None:
        super().__init__(f"{program} is missing: {hint}")
        self.program = program
        self.hint = hint


class ServerFailed(BenchError):
    """A server did not start, or ended by itself."""

    code = "server-failed"

    def __init__(self, server: str, detail: str) -> None:
        super().__init__(f"{server} failed: {detail}")
        self.server = server
        self.detail = detail


class ConnectionEnded(BenchError):
    """A server closed a connection in the middle of a load."""

    code = "connection-ended"

    def __init__(self) -> None:
        super().__init__("the server closed the connection")


class NoAnswer(BenchError):
    """A server kept silent."""

    code = "no-answer"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the server did not answer for {wait_s:g} s")
        self.wait_s = wait_s


class UnexpectedAnswer(BenchError):
    """A server answered something that a load does not know."""

    code = "unexpected-answer"

    def __init__(self, what: str, data: bytes) -> None:
        super().__init__(f"unexpected answer to {what}: {data[:120]!r}")
        self.what = what
        self.data = data
