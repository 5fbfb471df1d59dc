"""Queries that ran in the tests' own session, for tests that do not kill a process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.feeds import write_skewed
from tests.crash.jobs import JOBS, Place

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
    JOBS["sums"].run(spark, place, close=False)
    write_skewed(place.feed, SEED, HALF, WHOLE)
    return place


@pytest.fixture(scope="session")
def finished(spark: SparkSession, at_rest: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same query at its end; for copying only."""
    place = copied(at_rest, tmp_path_factory.mktemp("finished"))
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


def copied(place: Place, directory: Path) -> Place:
    """A query's directories, to be modified freely; the feed is shared."""
    copy = Place(directory / "query", place.feed)
    shutil.copytree(place.root, copy.root)
    return copy
