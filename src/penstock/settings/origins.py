"""Origins and hosts as browsers write them, in the headers `Origin` and `Host`, and in the settings about these."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

ANY_ORIGIN: Final = "*"
"""In a list of origins: every page may connect."""
OPAQUE_ORIGINS: Final = frozenset(("null", "file://"))
"""What browsers send for pages that have no origin: files, and sandboxed frames of any site."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/@?#\s]+)(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE)


class Host(NamedTuple):
    """A host name or an address, in lower case and without brackets, and a port."""

    name: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether it is an IP address, which no name server can change."""
        try:
            ipaddress.ip_address(self.name)
        except ValueError:
            return False
        return True


class Origin(NamedTuple):
    """The site of a page."""

    scheme: str
    host: Host


def parse_host(text: str, scheme: str) -> Host | None:
    """Read `host` or `host:port`; without a port it is the scheme's. None where the text is neither."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = int(found[2]) if found[2] else _DEFAULT_PORTS.get(scheme, 0)
    return Host(found[1].strip("[]").rstrip(".").lower(), port) if port <= 65_535 else None


def parse_origin(text: str) -> Origin | None:
    """Read `scheme://host` or `scheme://host:port`; None where the text is neither."""
    scheme, separator, rest = text.lower().partition("://")
    host = parse_host(rest, scheme)
    return Origin(scheme, host) if separator and scheme and host is not None else None


def split_origins(text: str) -> list[str]:
    """The entries of a setting that lists origins."""
    return [entry for entry in map(str.strip, text.split(",")) if entry]


def is_origin_entry(text: str) -> bool:
    """Whether a list of origins may have this entry."""
    return text == ANY_ORIGIN or text in OPAQUE_ORIGINS or parse_origin(text) is not None
