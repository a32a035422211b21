"""Lists of origins in the settings: which are taken, and what a wrong one is answered with."""

from __future__ import annotations

import pytest

from penstock.settings import SettingsError, load


@pytest.mark.parametrize(
    "value", ["", "*", "null", "file://", "https://app.example", "http://a.example:81, http://[::1]:8000", "app://x"]
)
def test_origins_are_taken_as_browsers_send_them(value: str) -> None:
    assert load(None, {}, {"etzel.origins": value, "monique.origins": value}).etzel.origins == value


@pytest.mark.parametrize(
    "value", ["app.example", "https://app.example/", "https://", "https://a b", "http://a:99999", "* *"]
)
def test_what_no_browser_sends_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="origins such as"):
        load(None, {}, {"monique.origins": value})
