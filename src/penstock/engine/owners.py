"""Names of connections: who takes and settles messages, in words.

A client may send its name when it connects. The name is part of the state while the connection lives, so that a leased
record shows its holder. The journal has it once, so that the history can name the owner of every later event. The name
is removed when the connection ends, or with the next term.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done
from penstock.engine.commands import NameOwner
from penstock.engine.memory import NAME_BYTES, NAMES, text_bytes
from penstock.engine.state import OWNER_TERM_SHIFT, State

OWNER_NAMES_MAX: Final = 100_000
"""Names that are kept at a time. The limit of connections is lower; beyond this a name is only in the journal."""


def name_owner(st: State, args: NameOwner) -> Answer:
    """A connection has this name from now on."""
    forget_owner_name(st, args.owner)
    if len(st.owner_names) < OWNER_NAMES_MAX:
        keep_owner_name(st, args.owner, args.name)
    st.row(j.OWNER_NAMED, payload=st.locate(args.name.encode()))
    return Done(1)


def keep_owner_name(st: State, owner: int, name: str) -> None:
    """Note the name of a connection that has none yet."""
    st.owner_names[owner] = name
    st.memory.change(NAMES, NAME_BYTES + text_bytes(name))


def forget_owner_name(st: State, owner: int) -> bool:
    """The connection has ended; returns whether it had a name."""
    name = st.owner_names.pop(owner, None)
    if name is None:
        return False
    st.memory.change(NAMES, -NAME_BYTES - text_bytes(name))
    return True


def forget_earlier_terms(st: State) -> None:
    """A new leader begins with no connections."""
    for owner in [owner for owner in st.owner_names if owner >> OWNER_TERM_SHIFT < st.term]:
        forget_owner_name(st, owner)
