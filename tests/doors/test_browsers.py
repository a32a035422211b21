"""Pages in a real browser: those of other sites cannot reach the doors that speak WebSocket, and allowed ones can."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from penstock.settings import EtzelSettings, MoniqueSettings, Settings, TaskfluxSettings
from penstock.testing import TestServer
from tests.browser import chromium

CONNECT = """url => new Promise(done => {
    const socket = new WebSocket(url);
    socket.onopen = () => done("open");
    socket.onclose = () => done("refused");
})"""
FETCH_A_MESSAGE = """url => new Promise(done => {
    const socket = new WebSocket(url);
    socket.onopen = () => socket.send(JSON.stringify({cmd: "FET", qname: "orders"}));
    socket.onmessage = event => done(event.data);
    socket.onclose = () => done("refused");
})"""


class BlankPage(BaseHTTPRequestHandler):
    """A site that has an empty page at every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def site() -> Iterator[str]:
    """The origin of a site."""
    with HTTPServer(("127.0.0.1", 0), BlankPage) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class World:
    """A node, a site whose pages it accepts, and another one."""

    def __init__(self, stack: ExitStack) -> None:
        self.allowed, self.evil = stack.enter_context(site()), stack.enter_context(site())
        ports = dict.fromkeys(("gateway_port", "com_in_port", "com_out_port", "tech_in_port", "tech_out_port"), 0)
        settings = Settings(
            taskflux=TaskfluxSettings(port=0),
            etzel=EtzelSettings(port=0, origins=self.allowed),
            monique=MoniqueSettings(**ports, origins=self.allowed),
        )
        node = stack.enter_context(TestServer(settings)).server
        etzel, gateway = (
            next(each.port for each in node.listeners if mark in each.purpose) for mark in ("Etzel", "gateway")
        )
        self.etzel = f"127.0.0.1:{etzel}"
        self.doors = [f"ws://{self.etzel}/connect", f"ws://127.0.0.1:{gateway}/"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def outcomes(page: Page, doors: list[str]) -> list[str]:
    return [page.evaluate(CONNECT, door) for door in doors]


def test_a_page_of_another_site_cannot_connect(page: Page, world: World) -> None:
    page.goto(world.evil)
    assert outcomes(page, world.doors) == ["refused", "refused"]
    assert page.evaluate(FETCH_A_MESSAGE, world.doors[0]) == "refused"


def test_a_page_from_a_file_cannot_connect(page: Page, world: World, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>hello")
    page.goto((tmp_path / "page.html").as_uri())
    assert outcomes(page, world.doors) == ["refused", "refused"]


def test_a_page_of_an_allowed_site_connects(page: Page, world: World) -> None:
    page.goto(world.allowed)
    assert outcomes(page, world.doors) == ["open", "open"]
    assert "Q_NOT_FOUND" in page.evaluate(FETCH_A_MESSAGE, world.doors[0])


def test_a_page_that_the_door_itself_serves_connects(page: Page, world: World) -> None:
    page.goto(f"http://{world.etzel}/")
    assert outcomes(page, world.doors[:1]) == ["open"]
