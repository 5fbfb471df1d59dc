"""Dead letters that are replayed: once the fault is mended, everything is as if there had been none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.engine.replaying import contains, united
from tests.parameters import mostly_crash, mostly_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]

SCHEMA = "at string, k string, px string"
FIRST = [("12:00:01", "a", "5"), ("12:00:02", "a", "EUR 7"), ("12:00:31", "b", "2"), ("12:00:32", "b", "EUR 4")]
SECOND = [("12:00:45", "a", "EUR 1"), ("12:00:46", "a", "3"), ("12:01:50", "b", "1")]


class _CrashError(Exception):
    """Stands for the death of the driver."""


class Prices:
    """A query over a directory that rows are added to, with a fault that is mended at some time."""

    def __init__(
        self, spark: SparkSession, root: Path, shape: Callable[[sj.Stream], Any], *, rolls: bool = False
    ) -> None:
        self._spark, self._shape, self._rolls = spark, shape, rolls
        self.root = root
        self.rows_of_epochs: dict[int, list[Any]] = {}
        (root / "in").mkdir()

    def add(self, rows: list[tuple[str, str, str]], name: str) -> None:
        lines = [json.dumps({"at": f"2026-03-01 {at}", "k": k, "px": px}) for at, k, px in rows]
        (self.root / "in" / f"{name}.json").write_text("\n".join(lines))

    def writers(self, *, mended: bool, listener: Any = None) -> list[Any]:
        read = self._spark.readStream.schema(SCHEMA).json(str(self.root / "in"))
        number = "CAST(replace(px, 'EUR ', '') AS INT)" if mended else "CAST(px AS INT)"
        prices = (
            sj.stream(read.where("k IS NOT NULL"))
            .withColumn("size", F.length("px"))
            .withColumn("seen", F.struct(F.lit(True).alias("a b")))
            .divert(errors=True)
            .withColumn("at", F.col("at").cast("timestamp"))
            .withColumn("px", F.expr(number))
        )
        found = self._shape(prices)
        writers = []
        for number_of, result in enumerate(found if isinstance(found, list) else [found]):
            if self._rolls:
                writer = result.writeStream.foreachBatch(self._keep).outputMode("update")
            else:
                writer = result.writeStream.format("parquet").option("path", self.root / f"out{number_of}")
            writers.append(writer)
        writers[0].option("checkpointLocation", self.root / "home").option("deadLettersPath", self.root / "dead")
        writers[0].trigger(availableNow=True)
        if listener is not None:
            writers[0].onEpochPhase(listener)
        return writers

    def _keep(self, frame: DataFrame, epoch: int) -> None:
        self.rows_of_epochs[epoch] = frame.collect()

    def run(self, *, mended: bool = False) -> None:
        sj.start(*self.writers(mended=mended)).awaitTermination()

    def replay(self, letters: Any = None, listener: Any = None, **options: Any) -> sj.StreamingQuery:
        given = self.root / "dead" if letters is None else letters
        return sj.replay_dead_letters(given, *self.writers(mended=True, listener=listener), **options)

    def out(self, number: int = 0) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in sj.read_files(self.root / f"out{number}").collect())

    def dead(self) -> DataFrame:
        return sj.read_files(self.root / "dead")


def windowed(prices: sj.Stream) -> Any:
    timed = prices.withWatermark("at", "30 seconds", by="k")
    return timed.groupBy(F.window("at", "1 minute"), "k").agg(F.sum("px").alias("n")).select("k", "n")


def both(prices: sj.Stream) -> Any:
    timed = prices.withWatermark("at", "1 hour")
    return [
        timed.select("k", "px"),
        timed.groupBy("k", F.window("at", "1 minute")).agg(F.sum("px").alias("n")).select("k", "n"),
    ]


def branches(prices: sj.Stream) -> Any:
    return [prices.select("k", "px"), prices.select("k", F.expr("10 / (px - 5)").alias("x"))]


# In CI, those of branches are, below.
@pytest.mark.long
def test_windowless_results_are_as_without_the_fault(spark: SparkSession, tmp_path: Path) -> None:
    prices = Prices(spark, tmp_path, lambda found: found.where("px > 0").select("k", "px", "seen.`a b`"))
    prices.add(FIRST, "1")
    prices.run()
    assert prices.out() == Counter([("a", 5, True), ("b", 2, True)])
    prices.add(SECOND, "2")
    prices.replay().awaitTermination()
    whole = Counter(
        [("a", 5, True), ("a", 7, True), ("b", 2, True), ("b", 4, True), ("a", 1, True), ("a", 3, True), ("b", 1, True)]
    )
    assert prices.out() == whole
    # Again: there are no new ones, and all of a DataFrame were replayed.
    prices.replay().awaitTermination()
    with pytest.raises(sj.AnalysisError, match=r"of epochs \[1\] were replayed before"):
        prices.replay(prices.dead())
    assert prices.out() == whole


def test_open_windows_are_as_without_the_fault_and_closed_ones_are_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    prices = Prices(spark, tmp_path, windowed)
    prices.add(FIRST, "1")
    prices.run()
    prices.replay().awaitTermination()
    prices.add(SECOND, "2")
    prices.run()
    prices.add([("12:02:31", "a", "1"), ("12:02:31", "b", "1")], "3")
    prices.run(mended=True)
    assert prices.out() == Counter([("a", 15), ("b", 6), ("b", 1)])
    with pytest.raises(sj.AnalysisError, match=r"1 rows are late.*late=\"drop\""):
        prices.replay()
    query = prices.replay(late="drop")
    query.awaitTermination()
    assert prices.out() == Counter([("a", 15), ("b", 6), ("b", 1)])


@pytest.mark.parametrize("shape", mostly_long({"both": both, "branches": branches}, ["branches"]))
def test_a_row_comes_only_where_it_is_lacking(
    spark: SparkSession, tmp_path: Path, shape: Callable[[sj.Stream], Any]
) -> None:
    prices = Prices(spark, tmp_path, shape)
    prices.add([*FIRST, ("12:00:03", "c", "5")], "1")
    prices.run()
    if shape is branches:
        outputs = Counter((row.px, row._outputs) for row in prices.dead().collect())
        all_of_them = "results1, results2"
        assert outputs == Counter(
            [("EUR 7", all_of_them), ("EUR 4", all_of_them), ("5", "results2"), ("5", "results2")]
        )
    first = prices.dead().localCheckpoint()
    prices.replay().awaitTermination()
    with pytest.raises(sj.AnalysisError, match=r"of epochs \[1\] were replayed before"):
        prices.replay(first)
    assert prices.out(0) == Counter([("a", 5), ("a", 7), ("b", 2), ("b", 4), ("c", 5)])
    if shape is branches:
        assert prices.out(1) == Counter([("a", 5.0), ("b", -10 / 3), ("b", -10.0)])
        # What fails again is a dead letter again.
        assert Counter(row._epoch for row in prices.dead().collect()) == Counter([1] * 4 + [2] * 2)


@pytest.mark.long
def test_rolling_results_are_as_without_the_fault(spark: SparkSession, tmp_path: Path) -> None:
    prices = Prices(spark, tmp_path, lambda found: found.groupBy("k").agg(F.sum("px").alias("n")), rolls=True)
    prices.add(FIRST, "1")
    prices.run()
    prices.replay().awaitTermination()
    newest = {row.k: row.n for _, rows in sorted(prices.rows_of_epochs.items()) for row in rows}
    assert newest == {"a": 12, "b": 6}


@pytest.mark.parametrize("phase", mostly_crash(EpochPhase, [], crash=[EpochPhase.DECIDE]))
def test_a_replay_that_is_cut_short_counts_once(spark: SparkSession, tmp_path: Path, phase: EpochPhase) -> None:
    prices = Prices(spark, tmp_path, lambda found: found.select("k", "px"))
    prices.add(FIRST, "1")
    prices.run()
    seen: list[int] = []

    def crash(reached: EpochPhase, epoch: int) -> None:
        if reached is phase and epoch == 2 and not seen:
            seen.append(epoch)
            raise _CrashError

    # A commit that fails is tried again: the epoch is decided.
    with nullcontext() if phase is EpochPhase.COMMITTING else pytest.raises(_CrashError):
        prices.replay(listener=crash).awaitTermination()
    assert {*seen} == {2}
    prices.replay().awaitTermination()
    assert prices.out() == Counter([("a", 5), ("a", 7), ("b", 2), ("b", 4)])


@pytest.mark.long
def test_what_are_not_dead_letters_of_the_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    prices = Prices(spark, tmp_path, lambda found: found.select("k", "px"))
    prices.add(FIRST, "1")
    prices.run()
    given = prices.dead()
    with pytest.raises(sj.AnalysisError, match="no column '_stage'"):
        prices.replay(given.drop("_stage"))
    with pytest.raises(sj.AnalysisError, match=r"rows of epoch 1001, and the query's record is of epoch 1\."):
        prices.replay(given.withColumn("_epoch", F.lit(1001)))
    with pytest.raises(sj.AnalysisError, match="rows without a number in _epoch"):
        prices.replay(given.withColumn("_epoch", F.expr("IF(k = 'a', '1', 'first')")))
    # As the outputs are called once there are two.
    with pytest.raises(sj.AnalysisError, match=r"lacking in results2 by _outputs.*are results\. Nothing was replayed"):
        prices.replay(given.withColumn("_outputs", F.lit("results, results2")))
    with pytest.raises(sj.AnalysisError, match="lacking in null by"):
        prices.replay(given.withColumn("_outputs", F.lit(None).cast("string")))
    sizes = given.withColumn("size", F.expr("IF(k = 'a', 'five', '5')"))
    with pytest.raises(
        sj.AnalysisError, match=r"1 rows have a string in 'size' that is not a int, .*Nothing was replayed"
    ):
        prices.replay(sizes)
    with pytest.raises(sj.AnalysisError, match=r"other types than the columns have today.*in which seen are"):
        prices.replay(given.withColumn("seen", F.lit("no")))
    with pytest.raises(sj.AnalysisError, match="7 is neither the directory of deadLettersPath nor"):
        prices.replay(7)
    with pytest.raises(sj.AnalysisError, match="late='ignore'"):
        prices.replay(late="ignore")
    (tmp_path / "dead" / "_sparkjet" / "another").mkdir()
    with pytest.raises(sj.AnalysisError, match="of another query, another"):
        prices.replay()
    # Some of them, as rows: the others of their epoch are no longer replayed.
    prices.replay(given.where("px = 'EUR 7'").withColumn("_epoch", F.col("_epoch").cast("string"))).awaitTermination()
    assert prices.out() == Counter([("a", 5), ("b", 2), ("a", 7)])


def test_ranges_of_epochs() -> None:
    assert united([]) == []
    assert [epoch for epoch in range(9) if contains(united([(1, 2), (7, 7), (2, 4), (6, 6)]), epoch)] == [
        1,
        2,
        3,
        4,
        6,
        7,
    ]
