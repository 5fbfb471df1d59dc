"""A query moves from an older line of Spark to the newest one and back: each operator goes on, nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sparkjet.spark_line import LINE, NEWEST, NEWEST_NAME
from tests.versions.travelling import STRETCHES, arrive, feeds_of, found, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
CHANGES = ("kept windows", "rolling", "all rows", "complete", "processor")
"""Outputs whose rows replace earlier ones, of the same key and window."""


@pytest.mark.crash
@pytest.mark.interpreted
@pytest.mark.timeout(3600)
@pytest.mark.skipif(LINE == NEWEST, reason="the way begins and ends on an older line")
def test_each_operator_goes_on_with_the_newest_line_and_back(spark: SparkSession, tmp_path: Path) -> None:
    moved, stayed = tmp_path / "moved", tmp_path / "stayed"
    feeds = feeds_of(moved)
    for stretch in range(len(STRETCHES)):
        arrive(feeds, stretch)
        if stretch == 1:
            assert _on_the_newest(moved).startswith(NEWEST_NAME)
        else:
            run(spark, moved, last=stretch == len(STRETCHES) - 1)
    others = feeds_of(stayed)
    for stretch in range(len(STRETCHES)):
        arrive(others, stretch)
    run(spark, stayed, last=True)
    expected = found(stayed)
    assert all(expected.values())
    for name, rows in found(moved).items():
        assert _final(name, rows) == _final(name, expected[name]), name


def _final(name: str, rows: list[str]) -> list[str]:
    if name not in CHANGES:
        return sorted(rows)
    # There may be epochs more where a query was started again.
    return sorted({str([json.loads(row).get(key) for key in ("k", "window")]): row for row in rows}.values())


def _on_the_newest(place: Path) -> str:
    """Run the next stretch in a process that finds this environment's own PySpark."""
    older = str(Path(pyspark.__file__).parents[1])
    paths = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path != older]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)])}
    # What the JVM of this session has set for itself.
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.versions.travelling", str(place)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.split()[-1]
