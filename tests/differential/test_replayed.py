"""Random queries are replayed with kills in between, and come to the same: rows, late rows, watermarks, state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import sparkjet as sj
from sparkjet.errors import AnalysisError
from tests.differential.queries import random_case
from tests.differential.replayed import Lived
from tests.parameters import mostly_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = mostly_long({f"seed {seed}": seed for seed in (2481, 3956, *range(106))}, often=())
"""In CI, `tests/api/test_fork_replay.py` and `tests/engine/test_replaying.py` replay queries that are written down."""


@pytest.mark.logs_errors
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_query_is_replayed_to_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    case = random_case(seed)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", case.zone)
    try:
        try:
            # Spark refuses some queries before they start: sets of collated text.
            lived = Lived(spark, case, tmp_path)
            lived.run()
        except (PySparkException, AnalysisError) as error:
            pytest.skip(f"it fails without a replay too: {str(error)[:200]}")
        fork = lived.replay("again", seed)
        one, other = lived.newest(lived.live), lived.newest(fork)
        assert other.epoch == one.epoch
        assert other.watermarks == one.watermarks
        assert {name: (each.closed, each.late) for name, each in other.stages.items()} == {
            name: (each.closed, each.late) for name, each in one.stages.items()
        }
        found = _difference(lived.live, fork, repeats=case.early)
        assert found is None or not found.differs, f"{found!r}\n{case.script()}"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def _difference(live: sj.Fork, fork: sj.Fork, *, repeats: bool) -> sj.Diff | None:
    """Their difference; if each start repeats early rows of open windows, regardless of how often a row is there."""
    try:
        found = sj.diff(live, fork)
    except AnalysisError as error:
        assert "neither has published any output" in str(error)  # noqa: PT017 - such a query has no rows
        return None
    if repeats and found.differs:
        once = [sj.read_files(f"{each.outputs}/results").distinct() for each in (live, fork)]
        return sj.diff(*once)
    return found
