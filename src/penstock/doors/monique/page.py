"""The page for browsers that the gateway serves at `/`.

It comes from the gateway itself, so its origin is the gateway's host: it may connect, and pages of other sites may not.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src ws: wss:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and no other page may show this one in a frame and borrow the user's clicks."""


@cache
def page() -> bytes:
    """The page as it is sent."""
    return (files(__package__) / "page.html").read_bytes()
