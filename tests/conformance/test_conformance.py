"""Every rule at every door, every pair of doors, and the page that shows what was found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.found import FOUND
from tests.conformance.hosting import Hosted
from tests.conformance.matrix import DOORS, host, rules_in_order
from tests.conformance.showing import DOCUMENT, as_document


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """One node for all cells: each has a queue of its own."""
    with host(tmp_path_factory.mktemp("conformance")) as node:
        yield node


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("rule", [rule.name for rule in rules_in_order()])
def test_rule(hosted: Hosted, rule: str, door: str) -> None:
    FOUND.look(hosted, rule, door)


@pytest.mark.parametrize("target", DOORS)
@pytest.mark.parametrize("source", DOORS)
def test_put_by_one_door_taken_by_another(hosted: Hosted, source: str, target: str) -> None:
    FOUND.look_across(hosted, source, target)


def test_the_page_shows_what_was_found() -> None:
    """Written anew by `python -m tests.conformance --write`."""
    if not FOUND.whole:
        pytest.skip("only a part of the suite was run")
    assert DOCUMENT.read_text(encoding="utf-8") == as_document(FOUND)
