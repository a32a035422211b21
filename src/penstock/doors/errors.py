"""Why a door could not be opened.

DoorError
 ├─ CannotListen      (door, key, host, port, reason)
 │   └─ AddressTaken
 └─ CannotListenOn    (problems)
"""

from __future__ import annotations

from collections.abc import Sequence


class DoorError(Exception):
    """A door that cannot be opened."""

    code = "door"


class CannotListen(DoorError):
    """The system does not let us listen there. Says which door, where, by which setting, and how to do without it."""

    code = "cannot-listen"

    def __init__(self, door: str, key: str, host: str, port: int, reason: str) -> None:
        self.door, self.key, self.host, self.port, self.reason = door, key, host, port, reason
        # Further listeners stand in the settings file only.
        flag = "" if "[" in key else f" (--{key.replace('.', '-').replace('_', '-')})"
        super().__init__(
            f"the {door} door cannot listen on {host}:{port}: {reason}. "
            f"Choose another port with {key}{flag}, or leave the door closed with --no-{door}"
        )


class AddressTaken(CannotListen):
    """Another program listens there."""

    code = "address-taken"

    def __init__(self, door: str, key: str, host: str, port: int) -> None:
        super().__init__(door, key, host, port, "the port is taken by another program")


class CannotListenOn(DoorError):
    """Several addresses cannot be listened on: all of them at once, so that one more try is enough."""

    code = "cannot-listen-on"

    def __init__(self, problems: Sequence[CannotListen]) -> None:
        self.problems = problems
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{len(problems)} addresses cannot be listened on:{lines}")
