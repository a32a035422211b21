"""Which browsers may open a WebSocket. Without this, a page of any site could read and delete messages on localhost.

A browser sends the site of the page in `Origin` with every WebSocket; programs send none. Accepted are

    no Origin             a program
    a configured origin   the setting of the door lists it, or has `*`
    the same host         Origin and Host name the same host and port, and the host is one that we know

The last condition is against rebinding: a site can let its own name point to 127.0.0.1, and then Origin and Host agree.
So a Host counts only if it is an IP address, localhost, the door's own host, or the host of a configured origin. On a
loopback address this is required of programs, too.
"""

from __future__ import annotations

import logging

from websockets.datastructures import Headers

from penstock.doors.complaints import Complaints
from penstock.settings.origins import ANY_ORIGIN, Host, parse_host, parse_origin, split_origins
from penstock.settings.values import is_loopback

log = logging.getLogger(__name__)

_SHOWN_CHARACTERS_MAX = 100


class Visitors:
    """The rules of one door. ``setting`` is the key of its list of origins, ``host`` where it listens."""

    def __init__(self, setting: str, origins: str, host: str) -> None:
        self._setting = setting
        entries = split_origins(origins)
        self._any = ANY_ORIGIN in entries
        self._entries = frozenset(entry.lower() for entry in entries)
        self._origins = frozenset(filter(None, map(parse_origin, entries)))
        self._names = frozenset((host.lower(), *(origin.host.name for origin in self._origins)))
        self._checks_programs = is_loopback(host)
        self._complaints = Complaints(log)

    def refusal(self, headers: Headers, peer: str) -> str | None:
        """Why a handshake with these headers is refused; None if it is accepted. A refusal is logged."""
        reason = None if self._any else self._reason(headers.get_all("Origin"), headers.get_all("Host"))
        if reason is not None:
            self._complaints.tell(f"{self._setting.partition('.')[0]} {peer}: refused with 403", reason)
        return reason

    def _reason(self, origins: list[str], hosts: list[str]) -> str | None:
        if len(origins) > 1 or len(hosts) > 1:
            return "The request has more than one Origin or Host header."
        if not origins:
            is_checked = bool(hosts) and self._checks_programs
            return self._host_reason(parse_host(hosts[0], "http"), hosts[0]) if is_checked else None
        origin = parse_origin(origins[0])
        if origins[0].lower() in self._entries or origin in self._origins:
            return None
        host = parse_host(hosts[0], origin.scheme) if hosts and origin is not None else None
        if origin is not None and host == origin.host:
            return self._host_reason(host, hosts[0])
        return (
            f"Pages of the origin {_shown(origins[0])} may not connect. "
            f"To allow them, add this origin to the setting {self._setting}."
        )

    def _host_reason(self, host: Host | None, text: str) -> str | None:
        if host is not None and (
            host.is_address or host.name == "localhost" or host.name.endswith(".localhost") or host.name in self._names
        ):
            return None
        return (
            f"The host {_shown(text)} is not known. Connect to an IP address or to localhost, "
            f"or add an origin with this host to the setting {self._setting}."
        )


def _shown(text: str) -> str:
    return ascii(text[:_SHOWN_CHARACTERS_MAX])
