"""A listener stays on this machine unless the user says otherwise."""

from __future__ import annotations

import pytest

from penstock.settings import ListenerSettings, Settings, TaskfluxSettings, check_exposure, load
from penstock.settings.errors import ExposedListenerError


def test_the_defaults_are_safe() -> None:
    check_exposure(Settings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "queue.example"])
def test_a_public_address_is_refused_with_key_source_and_the_way_out(host: str) -> None:
    settings = load(None, {"PENSTOCK_TASKFLUX_HOST": host}, {})
    with pytest.raises(ExposedListenerError) as raised:
        check_exposure(settings)
    assert (raised.value.key, raised.value.host) == ("taskflux.host", host)
    assert "variable PENSTOCK_TASKFLUX_HOST" in str(raised.value)
    assert "--insecure" in str(raised.value)


def test_further_listeners_are_checked_too() -> None:
    settings = Settings(taskflux=TaskfluxSettings(listeners=(ListenerSettings(host="0.0.0.0", port=1),)))
    with pytest.raises(ExposedListenerError) as raised:
        check_exposure(settings)
    assert raised.value.key == "taskflux.listeners[0].host"


def test_insecure_lets_it_pass() -> None:
    check_exposure(load(None, {}, {"taskflux.host": "0.0.0.0", "insecure": True}))


def test_a_closed_door_is_no_danger() -> None:
    check_exposure(load(None, {}, {"taskflux.host": "0.0.0.0", "taskflux.enabled": False}))
