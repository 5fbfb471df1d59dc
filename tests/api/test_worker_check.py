"""Packages that the executors' Python lacks are named before the start; a cluster is in `cluster/test_packaging.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet.api.worker_check import check_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NOBODY_HAS = {"a_package_nobody_has": "a-package-nobody-has", "pyarrow": "pyarrow"}


@pytest.fixture
def another_python(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Has Spark start a Python of another name in its workers."""
    context = spark.sparkContext
    before, python = context.pythonExec, tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec "{before}" "$@"\n')
    python.chmod(0o755)
    context.pythonExec = str(python)
    yield python
    context.pythonExec = before


def test_a_package_that_is_missing_is_named_with_its_python_and_a_way_out(
    spark: SparkSession, another_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(sj.AnalysisError) as refused:
        check_workers(spark, NOBODY_HAS)
    text = str(refused.value)
    assert text.startswith("[SPARKJET_ANALYSIS] start: the executors' ")
    assert "has no a_package_nobody_has. Install a-package-nobody-has and pyarrow there" in text
    assert "--archives" in text
    assert "\n" not in text
    # The driver has none either.
    assert "PYSPARK_PYTHON" not in text
    check_workers(spark, {"pyarrow": "pyarrow"})
    (tmp_path / "only_here.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(sj.AnalysisError, match=f"driver's {sys.executable} has it: .*set PYSPARK_PYTHON"):
        check_workers(spark, {"only_here": "only-here"})


def test_a_machine_without_python_is_named(spark: SparkSession, another_python: Path) -> None:
    another_python.unlink()
    with pytest.raises(sj.AnalysisError, match=f'for pyarrow: Cannot run program "{another_python}"'):
        check_workers(spark, {"pyarrow": "pyarrow"})


def test_the_drivers_own_python_is_not_asked(spark: SparkSession) -> None:
    check_workers(spark, NOBODY_HAS)
