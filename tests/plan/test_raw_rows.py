"""Raw rows: what a stage is handed that reads rows as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT, SUBSTREAM, TIME
from sparkjet.plan.dropped_rows import DROPPED, RowKind
from sparkjet.plan.partial_rows import ProgressDetail
from sparkjet.plan.raw_rows import RawRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def judged(spark: SparkSession) -> DataFrame:
    """A row that is accepted, one that is late, one without a time, one that a filter has dropped."""
    late, null = RowKind.LATE.value, RowKind.NULL_TIMESTAMP.value
    rows = [
        ("a", 5, "1", True, None),
        ("b", 2, "1", True, late),
        ("c", None, "2", True, null),
        ("d", 9, "2", False, None),
    ]
    return spark.createDataFrame(
        rows, f"k string, {TIME} long, {SUBSTREAM} string, {KEPT} boolean, {DROPPED} int"
    ).withColumn("ts", F.timestamp_micros(TIME))


def test_only_accepted_rows_have_content(spark: SparkSession) -> None:
    intake = RawRows({"key0": F.upper("k")}, by_substream=True)
    found = {row.kind: row for row in intake.of(judged(spark), None, ProgressDetail.NOTHING).collect()}
    assert (found[RowKind.ACCEPTED].key0, found[RowKind.ACCEPTED].row.k, found[RowKind.ACCEPTED].time) == ("A", "a", 5)
    for kind in (RowKind.LATE, RowKind.NULL_TIMESTAMP, RowKind.PROGRESS_ONLY):
        assert (found[kind].key0, found[kind].row, found[kind].time) == (None, None, None)
    assert list(found[RowKind.ACCEPTED].row.asDict()) == ["k", "ts"]


def test_a_key_is_not_computed_for_rows_that_are_not_accepted(spark: SparkSession) -> None:
    failing = F.when(F.col("k") == "a", F.lit("A")).otherwise(F.raise_error(F.lit("computed")).cast("string"))
    intake = RawRows({"key0": failing}, by_substream=False)
    assert sorted(row.kind for row in intake.of(judged(spark), None, ProgressDetail.NOTHING).collect()) == [0, 1, 2, 3]


def test_the_totals_count_by_kind_and_substream(spark: SparkSession) -> None:
    intake = RawRows({"key0": F.col("k")}, by_substream=True)
    labels, sums = intake.totals
    table = intake.of(judged(spark), None, ProgressDetail.EACH)
    found = {tuple(row)[:2]: tuple(row)[2:] for row in sums.agg(table, labels).collect()}
    assert found[RowKind.ACCEPTED, ""] == (1, 5, 5, 1, 5)
    assert {key: value[-1] for key, value in found.items() if key[0] == RowKind.PROGRESS_ONLY} == {
        (RowKind.PROGRESS_ONLY, "1"): 5,
        (RowKind.PROGRESS_ONLY, "2"): 9,
    }
    assert (found[RowKind.LATE, "1"][3], found[RowKind.NULL_TIMESTAMP, "2"][3]) == (1, 1)
