"""Addresses: ``penstock://host:port``, several of them separated by commas."""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.client.errors import BadUrl

SCHEME: Final = "penstock"
DEFAULT_PORT: Final = 2602
DEFAULT_URL: Final = f"{SCHEME}://127.0.0.1:{DEFAULT_PORT}"
URL_VARIABLE: Final = "PENSTOCK_URL"
"""The environment variable with the URL of a client that was given none, as for the command line."""
ENDPOINTS_MAX: Final = 100


class Endpoint(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def default_url() -> str:
    """Where a client connects that was given no URL."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def parse_url(url: str) -> tuple[Endpoint, ...]:
    """The endpoints of a URL, in its order. Only the first needs the scheme; a missing port is 2602."""
    parts = [part.strip() for part in url.split(",")]
    if len(parts) > ENDPOINTS_MAX:
        raise BadUrl(url, f"more than {ENDPOINTS_MAX} endpoints")
    if not parts[0].startswith(f"{SCHEME}://"):
        raise BadUrl(url, f"an address looks like {DEFAULT_URL}")
    return tuple(_parse_endpoint(part, url) for part in parts)


def _parse_endpoint(part: str, url: str) -> Endpoint:
    try:
        split = urlsplit(part if "://" in part else f"{SCHEME}://{part}")
        port = DEFAULT_PORT if split.port is None else split.port
    except ValueError as error:
        raise BadUrl(url, str(error)) from None
    if split.scheme != SCHEME:
        raise BadUrl(url, f"the scheme is {SCHEME}, not {split.scheme}")
    if split.username is not None or split.path not in ("", "/") or split.query or split.fragment:
        raise BadUrl(url, "an endpoint is a host and a port, nothing else")
    if not split.hostname or port == 0:
        raise BadUrl(url, "an endpoint needs a host and a port")
    return Endpoint(split.hostname, port)
