"""Kept plans: planned once, the same results as if they were planned each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjet.catalyst import kept_plans
from sparkjet.catalyst.constants import constant
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.tables import Rows
from sparkjet.errors import SparkjetError
from tests.lines import needs_unions_in_place

pytestmark = pytest.mark.spark

Table = Callable[..., DataFrame]


@pytest.fixture
def table(session: SparkSession) -> Table:
    """Makes tables of numbers, partitioned by their last digit."""

    def make(low: int, high: int) -> DataFrame:
        numbers = session.range(low, high).select((F.col("id") % 10).alias("digit"), F.col("id").alias("n"))
        return numbers.repartition(2, "digit").localCheckpoint()

    return make


class Sums:
    """Sums by digit of the numbers around a constant, counting how often they are built."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self, numbers: DataFrame, middle: int | None) -> DataFrame:
        self.built += 1
        if middle is None:
            return numbers.groupBy("digit").agg(F.sum("n").alias("sum"))
        low = numbers.where(f"n < {constant(middle, 'n')}")
        high = numbers.where(f"n >= {constant(middle + 5, 'n')}")
        sums = low.unionByName(high).groupBy("digit").agg(F.sum("n").alias("sum"))
        return sums.withColumn("middle", F.expr(constant(middle, "sum")))


def used(middle: int | None) -> tuple[int | None, ...]:
    """The constants of :class:`Sums`."""
    return (middle, None if middle is None else middle + 5)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows in ascending order."""
    return sorted(map(tuple, frame.collect()))


def test_other_tables_and_constants_need_no_other_plan(table: Table) -> None:
    kept, build = KeptPlans(), Sums()
    for epoch in range(1, 4):
        numbers, middle = table(0, 100 * epoch), 50 * epoch
        got = kept("sums", inputs=[[Rows(numbers)]], constants=[middle], build=build, used=used)
        assert rows(got) == rows(Sums()(numbers, middle))
    assert build.built == 1


@needs_unions_in_place
def test_tables_of_one_shape_are_put_together_partition_by_partition(table: Table) -> None:
    kept, build = KeptPlans(), Sums()
    for count in (2, 3, 4):
        tables = [table(100 * number, 100 * number + 50) for number in range(count)]
        got = kept("sums", inputs=[[Rows(each) for each in tables]], constants=[None], build=build, used=used)
        assert got.rdd.getNumPartitions() == 2
        assert rows(got) == rows(Sums()(reduce_union(tables), None))
    assert build.built == 1


def reduce_union(tables: list[DataFrame]) -> DataFrame:
    """All rows of some tables."""
    united = tables[0]
    for each in tables[1:]:
        united = united.unionByName(each)
    return united


@needs_unions_in_place
def test_nothing_is_shuffled_that_is_partitioned_already(table: Table) -> None:
    got = KeptPlans()("sums", inputs=[[Rows(table(0, 9)), Rows(table(9, 20))]], constants=[None], build=Sums())
    assert "Exchange" not in got._jdf.queryExecution().executedPlan().toString()


def test_a_part_of_a_table_is_read_as_it_is_said(table: Table) -> None:
    kept, build = KeptPlans(), Sums()

    def even(numbers: DataFrame) -> DataFrame:
        return numbers.where("n % 2 = 0")

    for low in (0, 30):
        part, whole = Rows(table(low, low + 10), even), Rows(table(low + 10, low + 20))
        got = kept("sums", inputs=[[part, whole]], constants=[None], build=build, used=used)
        assert rows(got) == rows(Sums()(part.frame.unionByName(whole.frame), None))
    assert build.built == 1


def test_what_has_another_shape_has_another_plan(table: Table) -> None:
    kept, build = KeptPlans(), Sums()
    numbers = table(0, 100)
    with_more = numbers.withColumn("more", F.lit(1)).repartition(2, "digit").localCheckpoint()
    for each, middle in ((numbers, None), (numbers, 50), (with_more, None)):
        got = kept("sums", inputs=[[Rows(each)]], constants=[middle], build=build, used=used)
        assert rows(got) == rows(Sums()(each, middle))
    assert build.built == 3


def test_another_session_has_another_plan(session: SparkSession) -> None:
    kept, build = KeptPlans(), Sums()
    other = session.newSession()
    other.conf.set("spark.sql.adaptive.enabled", "false")
    for each in (session, other):
        numbers = each.range(10).selectExpr("id AS digit", "id AS n").localCheckpoint()
        got = kept("sums", inputs=[[Rows(numbers)]], constants=[None], build=build, used=used)
        assert got.sparkSession is each
        assert rows(got) == [(digit, digit) for digit in range(10)]
    assert build.built == 2


def test_with_adaptive_execution_everything_is_planned_each_time(session: SparkSession, table: Table) -> None:
    session.conf.set("spark.sql.adaptive.enabled", "true")
    kept, build = KeptPlans(), Sums()
    for low in (0, 10):
        got = kept("sums", inputs=[[Rows(table(low, low + 10))]], constants=[None], build=build, used=used)
        assert rows(got) == [(digit, digit + low) for digit in range(10)]
    assert build.built == 2


def test_what_is_not_a_table_is_planned_each_time(session: SparkSession) -> None:
    kept, build = KeptPlans(), Sums()
    numbers = session.range(10).selectExpr("id AS digit", "id AS n")
    for _ in range(2):
        got = kept("sums", inputs=[[Rows(numbers)]], constants=[None], build=build, used=used)
        assert len(got.collect()) == 10
    assert build.built == 2


@pytest.mark.parametrize(
    "expression",
    ["current_timestamp()", "rand()", "uuid()", "(SELECT max(id) FROM range(3))"],
)
def test_what_spark_evaluates_while_it_plans_is_planned_each_time(table: Table, expression: str) -> None:
    kept = KeptPlans()
    built: list[DataFrame] = []

    def build(numbers: DataFrame) -> DataFrame:
        built.append(numbers)
        return numbers.withColumn("found", F.expr(expression))

    for _ in range(2):
        assert len(kept("now", inputs=[[Rows(table(0, 3))]], build=build).collect()) == 3
    # Once more to find out that it cannot be kept.
    assert len(built) == 3


def test_a_table_that_is_joined_is_read_each_time(session: SparkSession, table: Table) -> None:
    kept = KeptPlans()
    names = session.createDataFrame([(0, "even"), (1, "odd")], "odd long, name string")

    def build(numbers: DataFrame) -> DataFrame:
        return numbers.withColumn("odd", F.col("n") % 2).join(names, "odd").groupBy("name").count()

    for count in (2, 4):
        got = kept("join", inputs=[[Rows(table(0, count))]], build=build)
        assert rows(got) == [("even", count // 2), ("odd", count // 2)]


def test_a_constant_that_is_not_named_is_an_error(table: Table) -> None:
    with pytest.raises(SparkjetError, match="uses constants that it does not name"):
        KeptPlans()("sums", inputs=[[Rows(table(0, 10))]], constants=[5], build=Sums())


def test_what_is_not_made_by_constant_is_planned_each_time(table: Table) -> None:
    kept = KeptPlans()

    def build(numbers: DataFrame, low: int) -> DataFrame:
        return numbers.where(f"n < {low}")

    for low in (4, 6):
        assert kept("low", inputs=[[Rows(table(0, 10))]], constants=[low], build=build).count() == low
    assert list(kept._kept.values()) == [None]


def test_constants_that_one_marker_cannot_stand_for_are_an_error(table: Table) -> None:
    kept = KeptPlans()

    def build(numbers: DataFrame, low: int) -> DataFrame:
        return numbers.where(f"n < {constant(low, 'n')}")

    def rounded(low: int) -> tuple[int, ...]:
        return (low, low - low % 2)

    assert kept("even", inputs=[[Rows(table(0, 10))]], constants=[4], build=build, used=rounded).count() == 4
    with pytest.raises(SparkjetError, match="stands for 5 and for 4"):
        kept("even", inputs=[[Rows(table(0, 10))]], constants=[5], build=build, used=rounded)


def test_what_a_user_caches_of_one_epoch_is_not_read_in_the_next(table: Table) -> None:
    kept, build = KeptPlans(), Sums()
    first = kept("sums", inputs=[[Rows(table(0, 10))]], constants=[None], build=build, used=used).persist()
    try:
        assert rows(first) == [(digit, digit) for digit in range(10)]
        second = kept("sums", inputs=[[Rows(table(10, 20))]], constants=[None], build=build, used=used)
        assert rows(second) == [(digit, digit + 10) for digit in range(10)]
    finally:
        first.unpersist()


def test_ever_new_shapes_do_not_fill_the_driver(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "_MOST", 2)
    kept, build = KeptPlans(), Sums()
    for name in range(5):
        kept(name, inputs=[[Rows(table(0, 1))]], constants=[None], build=build, used=used)
        assert len(kept._kept) <= 2
    assert build.built == 5


def test_every_row_is_read_once_in_fewer_tasks(session: SparkSession) -> None:
    def doubled(numbers: DataFrame) -> DataFrame:
        return numbers.select((F.col("id") * 2).alias("n"))

    kept = KeptPlans()
    for first in (0, 100):
        held = session.range(first, first + 100, 1, 16).localCheckpoint()
        whole = kept("doubled", inputs=[[Rows(held)]], build=doubled)
        together = kept("doubled", inputs=[[Rows(held)]], build=doubled, tasks=3)
        assert whole.rdd.getNumPartitions() == 16
        assert together.rdd.getNumPartitions() == 3
        assert rows(together) == rows(whole) == [(2 * number,) for number in range(first, first + 100)]
