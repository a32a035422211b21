"""Debian's chromium for the tests that look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync
""".split()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. While it runs, its thread is taken for an event loop's, so no module keeps it for the next one."""
    path = _find()
    with sync_playwright() as playwright:
        # Playwright would add flags for browsers of its own making; these are all that Debian's needs.
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


def _find() -> str:
    """Where it is. Where it is missing the tests are left out, but never where changes are judged."""
    found = os.environ.get("PENSTOCK_CHROMIUM") or shutil.which("chromium")
    if found is None:
        advice = "there is no chromium; on Debian or Ubuntu: sudo apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(advice)
        pytest.skip(advice)
    return found
