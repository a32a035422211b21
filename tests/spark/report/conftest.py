"""Gold for the report's tests, made once; and a browser that opens pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from penstock.spark.report.computing import compute
from penstock.spark.report.figures import Figures
from penstock.spark.report.gold import Gold
from tests.browser import chromium
from tests.spark.report.sample import Tables, make_tables, write_gold


@pytest.fixture(scope="session")
def tables() -> Tables:
    return make_tables()


@pytest.fixture(scope="session")
def gold(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Gold:
    return write_gold(tmp_path_factory.mktemp("gold"), tables)


@pytest.fixture(scope="session")
def figures(gold: Gold) -> Figures:
    return compute(gold)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Any]:
    """Opens a page on some screen. Whatever it loads besides itself, and each error, is a failure."""
    problems: list[str] = []
    contexts = []

    def open_page(path: Path, viewport: ViewportSize, **more: Any) -> Page:
        context = browser.new_context(viewport=viewport, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text))
        page.on("request", lambda request: problems.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
