"""The example page in a real browser: it subscribes and pushes through the gateway, and shows what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from tests.browser import chromium
from tests.examples.monique_stage import Stage, free_ports, staged

WAIT_MS = 15_000
PHONE = ViewportSize(width=360, height=640)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A node and a calculator that answers."""
    with staged(tmp_path_factory.mktemp("page")) as stage:
        stage.calculator()
        stage.await_calculator()
        yield stage


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on a phone's screen. Whatever it loads from elsewhere, and each error of its program, is a failure."""
    problems: list[str] = []
    context = browser.new_context(viewport=PHONE, locale="en-GB")
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if _is_foreign(page, request.url) else None)
    yield page
    context.close()
    assert problems == []


def _is_foreign(page: Page, url: str) -> bool:
    return not url.startswith("data:") and page.url not in ("about:blank", url)


def open_page(page: Page, stage: Stage, gateway: str) -> None:
    """Open the page that the gateway of the stage serves, and let it connect to a gateway."""
    page.goto(f"{stage.gateway.replace('ws:', 'http:')}/?gateway={gateway}")


def frames(page: Page, command: str) -> Locator:
    """What the page shows of all frames with this command."""
    return page.locator(f'#traffic li[data-command="{command}"]')


def connected(page: Page, stage: Stage) -> None:
    open_page(page, stage, stage.gateway)
    expect(page.locator("#state")).to_have_text("connected", timeout=WAIT_MS)


def test_a_pushed_message_comes_back_with_the_calculators_result(page: Page, stage: Stage) -> None:
    connected(page, stage)
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(page.locator("#subscriptions")).to_have_text("* * ✕")
    page.get_by_role("button", name="Push").click()
    expect(frames(page, "pushed_to_mq")).to_have_count(1)
    echo = page.locator('#traffic li[data-command="pushed_from_mq"][data-type="config"]')
    expect(echo.locator("pre.data")).to_have_text('{ "first": 6, "second": 5, "action": "/" }')
    result = page.locator('#traffic li[data-command="pushed_from_mq"][data-type="result"]')
    expect(result.locator("pre.data")).to_have_text('{ "answer": 1.2 }')
    own_id = frames(page, "push_to_mq").get_attribute("data-id")
    assert own_id is not None
    assert len(own_id) == 40
    assert echo.get_attribute("data-id") == result.get_attribute("data-pid") == own_id
    expect(result).to_contain_text("(yours)")
    expect(page.locator("#problem")).to_be_hidden()


def test_messagepack_data_goes_both_ways(page: Page, stage: Stage) -> None:
    connected(page, stage)
    page.locator("#subscribe-spec").fill("example_calculator")
    page.locator("#subscribe-type").select_option("result")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    expect(frames(page, "subscribed")).to_have_count(1)
    page.locator("#push-encoding").select_option("MessagePack")
    page.locator("#push-data").fill('{"first": 4294967296, "second": -129, "action": "+"}')
    page.get_by_role("button", name="Push").click()
    result = frames(page, "pushed_from_mq")
    expect(result.locator("pre.data")).to_have_text('{ "answer": 4294967167 }')


def test_a_subscription_is_taken_back_by_its_button(page: Page, stage: Stage) -> None:
    connected(page, stage)
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.locator("#subscriptions button").click()
    expect(frames(page, "unsubscribed")).to_have_count(1)
    expect(page.locator("#subscriptions li")).to_have_count(0)
    page.get_by_role("button", name="Push").click()
    page.get_by_role("button", name="Ping").click()
    expect(frames(page, "pong")).to_have_count(1)
    assert frames(page, "pushed_from_mq").count() == 0


def test_a_ping_is_answered_with_its_own_number(page: Page, stage: Stage) -> None:
    """Nanoseconds need 64 bits: more than a number of JavaScript holds."""
    connected(page, stage)
    page.get_by_role("button", name="Ping").click()
    expect(frames(page, "pong")).to_have_count(1)
    sent, received = (frames(page, command).locator("pre").first.inner_text() for command in ("ping", "pong"))
    assert sent == received
    assert int(sent) > 2**53


def test_errors_are_shown_and_the_connection_lives(page: Page, stage: Stage) -> None:
    connected(page, stage)
    page.locator("#push-data").fill("no JSON")
    page.get_by_role("button", name="Push").click()
    expect(page.locator("#problem")).to_contain_text("The data is not JSON")
    assert frames(page, "push_to_mq").count() == 0
    page.locator("#push-data").fill("{}")
    page.locator("#push-spec").fill("one:too:many")
    page.get_by_role("button", name="Push").click()
    expect(page.locator("#problem")).to_contain_text("The gateway says: ")
    expect(frames(page, "error")).to_have_count(1)
    expect(page.locator("#state")).to_have_text("connected")


def test_it_says_that_there_is_no_gateway_and_tries_again(page: Page, stage: Stage) -> None:
    (port,) = free_ports(1)
    open_page(page, stage, f"ws://127.0.0.1:{port}")
    expect(page.locator("#problem")).to_contain_text("Does the gateway run?")
    expect(page.locator("#state")).to_contain_text("trying again")
    expect(page.get_by_role("button", name="Push")).to_be_disabled()
    page.get_by_role("button", name="Disconnect").click()
    expect(page.locator("#state")).to_have_text("not connected")
    page.locator("#gateway").fill("ws://127.0.0.1/#part")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("#problem")).to_contain_text("This is no address of a gateway")
    expect(page.locator("#state")).to_have_text("not connected")


def test_subscriptions_return_with_the_connection(page: Page, tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        connected(page, stage)
        page.get_by_role("button", name="Subscribe", exact=True).click()
        expect(frames(page, "subscribed")).to_have_count(1)
        stage.programs[0].end()
        expect(page.locator("#state")).to_contain_text("trying again")
        stage.node()
        expect(frames(page, "subscribed")).to_have_count(2, timeout=WAIT_MS)
        page.get_by_role("button", name="Push").click()
        expect(frames(page, "pushed_from_mq")).to_have_count(1)


def test_it_fits_on_a_phone(page: Page, stage: Stage) -> None:
    """Nothing is wider than the screen, also with long hex open, and what is pressed is large enough for a thumb."""
    connected(page, stage)
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.get_by_role("button", name="Push").click()
    expect(frames(page, "pushed_from_mq").first).to_be_visible()
    for details in page.locator("#traffic summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for name in ("Disconnect", "Ping", "Push", "Clear"):
        box = page.get_by_role("button", name=name, exact=True).bounding_box()
        assert box is not None
        assert box["height"] >= 44
