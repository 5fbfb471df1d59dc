"""Sums at the limits of their type: exact within, an error beyond, whatever the order of the parts."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Accumulator, Aggregate, AggregateOperation, Inputs
from sparkjet.testing.laws import check_aggregate
from tests.in_plan import in_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

MAX, MIN = 2**63 - 1, -(2**63)
NINES = Decimal("9" * 38)


def _ansi(*often: str) -> pytest.MarkDecorator:
    """With and without ANSI arithmetic, of which CI has one."""
    values = [
        pytest.param(value, id=name, marks=() if value in often else pytest.mark.long)
        for name, value in (("ansi", "true"), ("not ansi", "false"))
    ]
    return pytest.mark.parametrize("session", values, indirect=True)


exact = _ansi("true")
"""Sums that are exact: with ANSI arithmetic, whatever leaves a type on the way would be an error."""
refused = _ansi("false")
"""Errors: without ANSI arithmetic, Spark itself would find none."""


@pytest.fixture
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", before)


def frame_of(spark: SparkSession, values: Sequence[Any], data_type: str) -> DataFrame:
    return in_plan(spark, [(value,) for value in values], f"x {data_type}").coalesce(1)


class Parts:
    """A separate accumulator of each value of a column, in one row, to combine by hand."""

    def __init__(self, aggregate: Aggregate, rows: DataFrame) -> None:
        self.operation: AggregateOperation = aggregate.resolve(Inputs(rows, F.lit(0)))
        numbered = rows.withColumn("n", F.monotonically_increasing_id())
        self.singles = numbered.groupBy("n").agg(*(c.alias(f) for f, c in self.operation.accumulate.items()))
        fields = F.struct(*self.operation.create)
        self.row = self.singles.orderBy("n").agg(F.array_sort(F.collect_list(F.struct("n", fields.alias("acc")))))
        self.row = self.row.toDF("parts").localCheckpoint()

    def __getitem__(self, position: int) -> Accumulator:
        return {field: F.col("parts")[position]["acc"][field] for field in self.operation.create}

    def combine(self, *positions: int) -> Accumulator:
        parts = [self[position] for position in positions]
        done = parts[0]
        for part in parts[1:]:
            done = self.operation.combine(done, part)
        return done

    def finish(self, *accumulators: Accumulator) -> list[Any]:
        columns: list[Column] = [self.operation.finish(accumulator) for accumulator in accumulators]
        return list(self.row.select(*columns).collect()[0])

    def grouped(self) -> Any:
        assert self.operation.combine_group is not None
        combined = self.operation.combine_group({field: F.col(field) for field in self.operation.create})
        flat = self.singles.groupBy().agg(*(column.alias(field) for field, column in combined.items()))
        return flat.select(self.operation.finish({f: F.col(f) for f in self.operation.create})).collect()[0][0]


@exact
def test_parts_of_a_long_sum_may_leave_64_bits(session: SparkSession) -> None:
    values = [MAX, MAX, MAX, MIN, MIN, MIN, 5]
    parts = Parts(J.sum("x"), frame_of(session, values, "bigint"))
    deduct = parts.operation.deduct
    assert deduct is not None
    left = deduct(parts.combine(0, 1, 2, 6), parts.combine(0, 1, 6))
    assert parts.finish(parts.combine(*range(7)), left) == [2, MAX]
    assert parts.grouped() == 2
    assert J.sum("x").evaluate(frame_of(session, values, "bigint")) == 2


def test_long_sums_in_range_are_exact(spark: SparkSession) -> None:
    sums = [[MAX], [MIN], [MAX - 3, 3], [MIN + 3, -3], [MAX, -1, 1], [MIN, MAX], [-1], [-1, -(2**32)], [2**32, -1], [0]]
    operation = J.sum("x").resolve(Inputs(frame_of(spark, [], "bigint"), F.lit(0)))
    rows = spark.createDataFrame([(i, x) for i, values in enumerate(sums) for x in values], "i int, x bigint")
    partials = rows.groupBy("i").agg(*(column.alias(field) for field, column in operation.accumulate.items()))
    finished = partials.orderBy("i").select(operation.finish({field: F.col(field) for field in operation.create}))
    assert [row[0] for row in finished.collect()] == [sum(values) for values in sums]


@refused
@pytest.mark.parametrize("values", [[MAX, 1], [MIN, -1]])
def test_a_long_sum_out_of_range_is_an_error(session: SparkSession, values: list[int]) -> None:
    with pytest.raises(SparkRuntimeException, match=r"ARITHMETIC_OVERFLOW.*sum\(x\).*64 bits.*decimal"):
        J.sum("x").evaluate(frame_of(session, values, "bigint"))


@exact
def test_a_mean_of_longs_does_not_overflow(session: SparkSession) -> None:
    assert J.avg("x").evaluate(frame_of(session, [MAX, MAX, MAX, MAX - 1], "bigint")) == float(MAX)
    assert J.avg("x").evaluate(frame_of(session, [2**53 + 1, 2**53 + 1, -(2**53)], "bigint")) == (2**53 + 2) / 3


def test_narrow_decimals_are_exact_and_deduct(spark: SparkSession) -> None:
    nines, small = Decimal("9" * 27).scaleb(-9), Decimal("0.000000001")
    rows = frame_of(spark, [nines, nines, nines.copy_negate(), small, None, nines], "decimal(27,9)")
    with localcontext(Context(prec=60)):
        assert J.sum("x").evaluate(rows) == nines + nines + small
    check_aggregate([J.sum("x"), J.avg("x")], rows)


@exact
@pytest.mark.parametrize("scale", [6, 7, 37])
def test_wide_decimals_are_exact_up_to_38_digits(session: SparkSession, scale: int) -> None:
    # Combining must not drop the last digit, as Spark's + does for two 38-digit decimals.
    long, one = "1234567890123456789012345678901234567", Decimal(1).scaleb(-scale)
    with localcontext(Context(prec=60)):
        values = [Decimal(long).scaleb(-scale), one, one]
        expected = sum(values)
    parts = Parts(J.sum("x"), frame_of(session, values, f"decimal(38,{scale})"))
    assert parts.finish(parts.combine(0, 1, 2)) == [parts.grouped()] == [expected]


@refused
def test_a_wide_decimal_sum_out_of_range_is_an_error(session: SparkSession) -> None:
    rows = frame_of(session, [NINES, NINES, NINES.copy_negate(), Decimal(1)], "decimal(38,0)")
    parts = Parts(J.sum("x"), rows)
    message = r"ARITHMETIC_OVERFLOW.*sum\(x\).*decimal\(38,0\)"
    with pytest.raises(SparkRuntimeException, match=message):
        parts.finish(parts.combine(0, 1))
    # An overflow is final: the exact sum that could be in range again is lost.
    with pytest.raises(SparkRuntimeException, match=message):
        parts.finish(parts.combine(0, 1, 2))
    with pytest.raises(SparkRuntimeException, match=message):
        J.sum("x").evaluate(rows.where("x > 0"))
    assert parts.finish(parts.combine(0, 2, 3)) == [Decimal(1)]


@refused
def test_an_overflow_in_a_group_is_not_skipped_as_a_null(session: SparkSession) -> None:
    # Without the flag, the sum would be that of the other parts: SUM skips nulls.
    operation = J.sum("x").resolve(Inputs(frame_of(session, [NINES], "decimal(38,0)"), F.lit(0)))
    assert operation.combine_group is not None
    fields = {field: F.col(field) for field in operation.create}
    grouped = operation.combine_group(fields)
    once = (
        frame_of(session, [NINES, NINES], "decimal(38,0)")
        .agg(*(column.alias(field) for field, column in operation.accumulate.items()))
        .union(
            frame_of(session, [Decimal(1)], "decimal(38,0)").agg(
                *(column.alias(field) for field, column in operation.accumulate.items())
            )
        )
    )
    with pytest.raises(SparkRuntimeException, match="ARITHMETIC_OVERFLOW"):
        once.agg(*(column.alias(field) for field, column in grouped.items())).select(operation.finish(fields)).collect()


@refused
def test_a_mean_that_its_type_cannot_hold_is_an_error(session: SparkSession) -> None:
    with pytest.raises(SparkRuntimeException, match=r"ARITHMETIC_OVERFLOW.*avg\(x\).*decimal\(38,4\)"):
        J.avg("x").evaluate(frame_of(session, [NINES], "decimal(38,0)"))


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        ("decimal(5,5)", "0.12345"),
        ("decimal(34,24)", "0.5"),
        ("decimal(20,20)", "0.1"),
        ("decimal(25,25)", "0.1"),
        ("decimal(38,32)", "1"),
    ],
)
def test_means_of_small_decimals_are_sparks(spark: SparkSession, data_type: str, value: str) -> None:
    rows = frame_of(spark, [Decimal(value), Decimal(value), None, Decimal(0)], data_type)
    assert J.avg("x").evaluate(rows) == rows.agg(F.avg("x")).collect()[0][0]


@_ansi("true", "false")
@pytest.mark.parametrize("sign", ["", "-"])
def test_means_of_wide_decimals_keep_every_digit(session: SparkSession, sign: str) -> None:
    """With 24 digits before the point and 14 behind it they lost the last ones, and some that round up to a whole."""
    most = Decimal(f"{sign}1234567890123456789012345.0000000001")
    for values in ([most, Decimal(0), Decimal("-1.5"), Decimal("-1.5")], [most, most, Decimal(f"{sign}2.9999999999")]):
        rows = frame_of(session, values, "decimal(38,10)")
        assert J.try_avg("x").evaluate(rows) == rows.agg(F.avg("x")).collect()[0][0]


@exact
def test_try_sum_and_try_avg_are_null_beyond_their_type(session: SparkSession) -> None:
    longs, wide = frame_of(session, [MAX, 1, None], "bigint"), frame_of(session, [NINES, NINES], "decimal(38,0)")
    assert J.try_sum("x").evaluate(longs) is None
    assert J.try_sum("x").evaluate(longs.where("x > 1")) == MAX
    assert J.try_avg("x").evaluate(longs) == float(2**62)
    assert (J.try_sum("x").evaluate(wide), J.try_avg("x").evaluate(wide)) == (None, None)


@refused
@pytest.mark.parametrize(
    ("values", "data_type"), [([MAX, 1], "bigint"), ([NINES, Decimal(1)], "decimal(38,0)"), ([MIN, -1, -2], "bigint")]
)
def test_a_sum_of_distinct_values_out_of_range_is_an_error(
    session: SparkSession, values: list[Any], data_type: str
) -> None:
    with pytest.raises(SparkRuntimeException, match=r"ARITHMETIC_OVERFLOW.*sum\(DISTINCT x\)"):
        J.sum_distinct("x").evaluate(frame_of(session, values, data_type))


@exact
def test_a_sum_of_distinct_values_may_leave_its_type_on_the_way(session: SparkSession) -> None:
    assert J.sum_distinct("x").evaluate(frame_of(session, [MAX, MAX - 1, MIN, MIN + 1, MAX], "bigint")) == -2


@refused
def test_a_negative_frequency_is_an_error(session: SparkSession) -> None:
    rows = frame_of(session, [1, -1], "bigint")
    with pytest.raises(SparkRuntimeException, match=r"NEGATIVE_VALUES_IN_FREQUENCY.*frequency x is -1"):
        J.percentile("x", 0.5, "x").evaluate(rows)
