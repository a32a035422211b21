"""Keeping an open door from standing on a public street."""

from __future__ import annotations

from penstock.settings.errors import ExposedListenerError
from penstock.settings.schema import Settings
from penstock.settings.values import is_loopback


def check_exposure(settings: Settings) -> None:
    """Raise ExposedListenerError if a listener could be reached from other machines and `insecure` was not said.

    Addresses are judged as written; of names only `localhost` counts as this machine, since any other may be resolved
    differently tomorrow.
    """
    if settings.insecure:
        return
    for place in settings.places():
        if not is_loopback(place.host):
            raise ExposedListenerError(place.host_key, place.host, settings.source_of(place.host_key))
