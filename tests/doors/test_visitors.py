"""Which handshakes of browsers and programs are accepted, by their headers alone."""

from __future__ import annotations

import logging

import pytest
from websockets.datastructures import Headers

from penstock.doors.visitors import Visitors

EVIL = "http://evil.example"


def headers(origin: str | None, host: str | None) -> Headers:
    found = Headers()
    for name, value in (("Origin", origin), ("Host", host)):
        if value is not None:
            found[name] = value
    return found


def refusal(origin: str | None, host: str | None, *, origins: str = "", listens_on: str = "127.0.0.1") -> str | None:
    return Visitors("etzel.origins", origins, listens_on).refusal(headers(origin, host), "peer")


@pytest.mark.parametrize("host", [None, "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "a.localhost"])
def test_a_program_sends_no_origin_and_is_accepted(host: str | None) -> None:
    assert refusal(None, host) is None


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://localhost:8080", "LocalHost:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://localhost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://127.0.0.1", "127.0.0.1:443"),
    ],
)
def test_a_page_of_the_same_host_is_accepted(origin: str, host: str) -> None:
    assert refusal(origin, host) is None


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (EVIL, "127.0.0.1:8080"),
        (EVIL, None),
        (EVIL, ""),
        ("null", "127.0.0.1:8080"),
        ("file://", "127.0.0.1:8080"),
        ("", ""),
        ("http://127.0.0.1:3000", "127.0.0.1:8080"),
        ("http://127.0.0.1", "127.0.0.1:8080"),
        ("http://localhost:8080", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080.evil.example", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080/path", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080@evil.example", "127.0.0.1:8080"),
        ("http://127.0.0.1:99999", "127.0.0.1:99999"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
    ],
)
def test_any_other_page_is_refused_and_the_setting_is_named(origin: str, host: str | None) -> None:
    reason = refusal(origin, host)
    assert reason is not None
    assert "etzel.origins" in reason


@pytest.mark.parametrize("listens_on", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(listens_on: str) -> None:
    reason = refusal("http://evil.example:8080", "evil.example:8080", listens_on=listens_on)
    assert reason is not None
    assert "evil.example:8080" in reason


def test_programs_may_use_any_name_only_where_other_machines_can_connect() -> None:
    assert refusal(None, "queue.example:8080") is not None
    assert refusal(None, "queue.example:8080", listens_on="0.0.0.0") is None


@pytest.mark.parametrize(
    ("origins", "origin", "host"),
    [
        ("https://app.example", "https://app.example", "127.0.0.1:8080"),
        ("http://a.example:81, https://app.example", "https://APP.example:443", "127.0.0.1:8080"),
        ("https://app.example", "https://app.example", "app.example"),
        ("https://app.example", None, "app.example"),
        ("https://app.example", "http://app.example:8080", "app.example:8080"),
        ("null", "null", "127.0.0.1:8080"),
        ("file://", "file://", "127.0.0.1:8080"),
        ("*", EVIL, "evil.example"),
        ("*", "null", "127.0.0.1:8080"),
    ],
)
def test_configured_origins_are_accepted_and_their_hosts_are_known(origins: str, origin: str | None, host: str) -> None:
    assert refusal(origin, host, origins=origins) is None


def test_an_origin_in_the_list_admits_no_other() -> None:
    assert refusal("http://app.example", "127.0.0.1:8080", origins="https://app.example") is not None
    assert refusal("https://app.example:8443", "127.0.0.1:8080", origins="https://app.example") is not None


def test_the_host_that_the_door_listens_on_is_known() -> None:
    assert refusal("http://queue.example:8080", "queue.example:8080", listens_on="queue.example") is None


@pytest.mark.parametrize("name", ["Origin", "Host"])
def test_a_header_that_comes_twice_is_refused(name: str) -> None:
    twice = headers("http://127.0.0.1:8080", "127.0.0.1:8080")
    twice[name] = EVIL
    assert Visitors("etzel.origins", "", "127.0.0.1").refusal(twice, "peer") is not None


def test_refusals_are_logged_but_not_each_of_a_thousand(caplog: pytest.LogCaptureFixture) -> None:
    visitors = Visitors("etzel.origins", "", "127.0.0.1")
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            visitors.refusal(headers("http://\xe9vil.example" + "x" * 5000, "127.0.0.1"), "1.2.3.4")
    assert 1 <= len(caplog.messages) <= 5
    assert caplog.messages[0].startswith(
        "etzel 1.2.3.4: refused with 403: Pages of the origin 'http://\\xe9vil.example"
    )
    assert len(caplog.messages[0]) < 400
