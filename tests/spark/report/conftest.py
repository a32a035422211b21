"""Gold for the report's tests, made once."""

from __future__ import annotations

import pytest

from penstock.spark.report.computing import compute
from penstock.spark.report.figures import Figures
from penstock.spark.report.gold import Gold
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
