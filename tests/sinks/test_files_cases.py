"""Cases X08 and X14-X16 of two-phase commit, for files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import LostTransactionError
from sparkjet.sinks.files import FilesSink
from sparkjet.testing.sink_contract import QUERY, SCHEMA, SinkUnderTest, transaction
from tests.sinks.test_files import under_test

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
    return under_test(spark, FilesSink(tmp_path / "out"))


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(f"k{n}", n) for n in numbers], SCHEMA).coalesce(1)


@pytest.mark.parametrize("case", ["X14"])
def test_before_the_decision_only_prepared_files_are_there(
    spark: SparkSession, target: SinkUnderTest, tmp_path: Path, case: str
) -> None:
    first = target.sink.prepare(rows(spark, 1, 2), transaction(1))
    assert first is not None
    assert list((tmp_path / "out").glob("part-*")) == []
    assert target.dangling() == 1
    target.sink.commit(first, lambda: None)
    second = target.sink.prepare(rows(spark, 3), transaction(2))
    assert second is not None
    assert sorted(target.read()) == [("k1", 1), ("k2", 2)]
    assert target.dangling() == 1


@pytest.mark.parametrize("case", ["X15"])
def test_what_was_decided_is_renamed_at_the_restart_and_the_rest_removed(
    spark: SparkSession, target: SinkUnderTest, tmp_path: Path, case: str
) -> None:
    decided = target.sink.prepare(rows(spark, 1, 2), transaction(1))
    target.sink.prepare(rows(spark, 3), transaction(2))
    assert decided is not None
    restarted = under_test(spark, FilesSink(tmp_path / "out"))
    restarted.sink.commit(decided, lambda: None)
    restarted.sink.abort_orphans(QUERY, 1, [])
    assert sorted(restarted.read()) == [("k1", 1), ("k2", 2)]
    assert restarted.dangling() == 0


@pytest.mark.parametrize("case", ["X16"])
def test_a_decided_file_that_is_gone_is_an_error_unless_it_was_published(
    spark: SparkSession, target: SinkUnderTest, tmp_path: Path, case: str
) -> None:
    handle = target.sink.prepare(rows(spark, 1), transaction(1))
    assert handle is not None
    shutil.rmtree(tmp_path / "out" / "_sparkjet" / QUERY / "results" / "staging")
    with pytest.raises(LostTransactionError, match="its rows are lost"):
        target.sink.commit(handle, lambda: None)


@pytest.mark.parametrize("case", ["X08"])
def test_files_of_an_epoch_that_failed_elsewhere_are_rolled_back_and_written_again(
    spark: SparkSession, target: SinkUnderTest, case: str
) -> None:
    target.sink.prepare(rows(spark, 1, 2), transaction(1))
    again = target.sink.prepare(rows(spark, 1, 2), transaction(1, takeover=1))
    target.sink.abort_orphans(QUERY, 1, [])
    assert again is not None
    target.sink.commit(again, lambda: None)
    later = target.sink.prepare(rows(spark, 3), transaction(2, takeover=1))
    assert later is not None
    target.sink.commit(later, lambda: None)
    assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k3", 3)]
    assert target.dangling() == 0
