"""Queries that ran in the tests' own session, for tests that do not kill a process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.farm import Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.jobs import JOBS, Place
from tests.interpreting import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 7
HALF, WHOLE = 4, 6
"""Number of files that the half-done query has read, and number of all files."""


@pytest.fixture(scope="session")
def at_rest(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A query that stopped in the middle of its feed, with open windows; for copying only."""
    root = tmp_path_factory.mktemp("at_rest")
    place = Place(root / "query", root / "feed")
    write_skewed(place.feed, SEED, 0, HALF)
    with interpreted(spark):
        JOBS["sums"].run(spark, place, close=False)
    write_skewed(place.feed, SEED, HALF, WHOLE)
    return place


@pytest.fixture(scope="session")
def finished(spark: SparkSession, at_rest: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same query at its end; for copying only."""
    place = copied(at_rest, tmp_path_factory.mktemp("finished"))
    with interpreted(spark):
        JOBS["sums"].run(spark, place)
    return place


@pytest.fixture
def half_done(at_rest: Place, tmp_path: Path) -> Place:
    """A copy of a query that stopped in the middle of its feed."""
    return copied(at_rest, tmp_path)


@pytest.fixture
def done(finished: Place, tmp_path: Path) -> Place:
    """A copy of a query that has ended."""
    return copied(finished, tmp_path)


@pytest.fixture(scope="session")
def farm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Suite]:
    """The suites of all chosen tests that ask for `verdicts`, crashed together; by the name of their module."""
    root = tmp_path_factory.mktemp("farm")
    modules = {item.module.__name__: item.module for item in request.session.items if "verdicts" in item.fixturenames}
    suites = {
        name: module.suite(root / name.rpartition(".")[2], *map(request.getfixturevalue, module.SERVERS))
        for name, module in sorted(modules.items())
    }
    Farm(root, list(suites.values())).crash()
    return suites


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, farm: dict[str, Suite]) -> dict[str, str]:
    """The faults of the queries of this module's suite, by name; empty if there were none."""
    return farm[request.module.__name__].verdicts


def copied(place: Place, directory: Path) -> Place:
    """A query's directories, to be modified freely; the feed is shared."""
    copy = Place(directory / "query", place.feed)
    shutil.copytree(place.root, copy.root)
    return copy
