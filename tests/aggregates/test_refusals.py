"""Aggregates that cannot be computed are refused before a query starts, with the way out."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """px double, name string, seen boolean, m map<string,int>, v variant, am array<map<string,int>>,
    ntz timestamp_ntz, day date, iv interval day to second, tiny decimal(38,38)"""


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> Inputs:
    frame = spark.createDataFrame([], SCHEMA)
    return Inputs(frame, F.lit(0).cast("long"))


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (J.sum("name"), r'sum\(name\): name is string, not a number. Cast it first, e.g. F.col\("name"\)'),
        (J.avg("seen"), r"avg\(seen\): seen is boolean, not a number"),
        (J.product("iv"), r"product\(iv\): iv is interval day to second, not a number"),
        (J.stddev("day"), r"stddev\(day\): day is date, not a number"),
        (J.linear_trend("px", "ntz"), r"linear_trend\(px, ntz\): ntz is timestamp_ntz, not a number"),
        (J.linear_trend("day", "px"), r"linear_trend\(day, px\): day is date, not a number"),
        (J.sum_distinct("tiny"), r"sum\(DISTINCT tiny\): decimal\(38,38\) cannot be added exactly"),
        (J.avg_distinct("tiny"), r"avg\(DISTINCT tiny\): decimal\(38,38\) cannot be added exactly"),
        (J.sum("tiny"), r"decimal\(38,38\) cannot be added exactly. Cast the column to decimal\(38,37\)"),
        (J.max("m"), r"max\(m\): m is map<string,int>, which Spark cannot order; only ordered values.*map_entries"),
        (
            J.first("v"),
            r"first\(v\): v is variant, which Spark cannot order; it breaks ties between rows of the same event time",
        ),
        (J.min_by("am", "px"), r"min_by\(am, px\): am is array<map<string,int>>, which Spark cannot order"),
        (J.max_by("px", "m"), r"max_by\(px, m\): m is map<string,int>"),
        (J.collect_list("m"), r"collect_list\(m\): m is map<string,int>.*same event time are listed"),
        (J.collect_set("v"), r"collect_set\(v\): v is variant"),
        (J.top_n("m", 2), r"top_n\(m, 2\): m is map<string,int>"),
        (J.approx_count_distinct("m"), r"approx_count_distinct\(m\): m is map<string,int>"),
        (J.percentile_approx("name", 0.5), r"percentile_approx\(name, 0.5, 10000\): name is string; .* takes numbers"),
        (J.percentile_approx("ntz", 0.5), r"ntz is timestamp_ntz"),
        (
            J.count_if("px"),
            r"count_if\(px\): px is double, not boolean. Give a condition, e.g. F.col\(\"px\"\).isNotNull",
        ),
        (J.every("name"), r"every\(name\): name is string, not boolean"),
        (J.bit_xor("px"), r'bit_xor\(px\): px is double, not a whole number. Cast it first, e.g. F.col\("px"\).cast'),
        (J.corr("px", "name"), r"corr\(px, name\): name is string, not a number"),
        (J.regr_avgx("px", "day"), r"regr_avgx\(px, day\): day is date, not a number"),
        (J.regr_count("seen", "px"), r"regr_count\(seen, px\): seen is boolean, not a number"),
        (J.kurtosis("day"), r"kurtosis\(day\): day is date, not a number"),
        (J.median("iv"), r"median\(iv\): iv is interval day to second, not a number"),
        (J.percentile("px", 0.5, "px"), r"percentile\(px, 0.5, px\): px is double, not a whole number"),
        (J.mode("m"), r"mode\(m\): m is map<string,int>.*the least of equally frequent"),
        (J.count_distinct("px", "m"), r"count\(DISTINCT px, m\): m is map<string,int>.*cannot be distinguished"),
        (J.sum_distinct("name"), r"sum\(DISTINCT name\): name is string, not a number"),
        (J.listagg("m"), r"listagg\(m, NULL\): map<string,int> cannot be joined"),
        (J.listagg("name", b","), r"the delimiter is b','; give str for string"),
        (J.product("name"), r"product\(name\): name is string, not a number"),
        (J.histogram_numeric("day", 3), r"histogram_numeric\(day, 3\): day is date, not a number"),
        (J.sum("pxx"), r"no column 'pxx': did you mean \"px\"\? Known: am, day, iv, m, name, "),
        (J.count("nope"), r"no column 'nope'"),
        (J.min_by("px", "nope"), r"no column 'nope'"),
        (J.sum("*"), r"\*: an aggregate takes one column, but this is 10"),
    ],
    ids=lambda value: value.output_name if isinstance(value, Aggregate) else "",
)
def test_a_column_that_does_not_fit_is_refused(inputs: Inputs, aggregate: Aggregate, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        aggregate.resolve(inputs)


@pytest.mark.parametrize("make", [J.stddev, J.sum, J.bit_or], ids=lambda make: make.__name__)
def test_what_a_refusal_says_to_convert_a_column_with_works(
    spark: SparkSession, make: Callable[..., Aggregate]
) -> None:
    rows = spark.sql(
        "SELECT '7' AS st, true AS bo, date'1970-01-08' AS da, INTERVAL '7' DAY AS dy, INTERVAL '0 00:00:07' DAY TO "
        "SECOND AS iv, INTERVAL '0-7' YEAR TO MONTH AS ym, timestamp_ntz'1970-01-08' AS ntz, x'07' AS bin, "
        "timestamp'1970-01-08' AS ts"
    )
    for name in rows.columns:
        try:
            make(name).resolve(Inputs(rows, F.lit(0)))
        except AnalysisError as error:
            advice = str(error).rpartition("e.g. ")[2].removesuffix(".")
            make(eval(advice, {"F": F})).evaluate(rows)  # noqa: S307 - the text of our own error


def test_an_expression_of_a_missing_column_is_refused(inputs: Inputs) -> None:
    with pytest.raises(AnalysisError, match=r"no column 'nope'.*Known: am"):
        J.sum(F.col("nope") + 1).resolve(inputs)
    with pytest.raises(AnalysisError, match="DATATYPE_MISMATCH"):
        J.sum(F.col("m") + 1).resolve(inputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: J.top_n("px", 0), r"top_n\(px, 0\): n is 0; give a whole number from 1 to 100000"),
        (lambda: J.bottom_n("px", 2.5), r"n is 2.5"),
        (lambda: J.bottom_n("px", True), r"n is True"),
        (lambda: J.approx_count_distinct("px", 0.0001), r"rsd is 0.0001; give a deviation from 0.0007"),
        (lambda: J.percentile_approx("px", 95), r"a percentage is 95; give numbers from 0 to 1, e.g. 0.95"),
        (lambda: J.percentile_approx("px", [0.5, -0.1]), r"a percentage is -0.1"),
        (lambda: J.percentile_approx("px", []), r"not a percentage"),
        (lambda: J.percentile("px", 1.5), r"percentile\(px, 1.5, 1\): a percentage is 1.5"),
        (lambda: J.percentile("px", 0.5, -1), r"frequency is -1; give a whole number from 0"),
        (lambda: J.max_by("px", "name", 0), r"max_by\(px, name, 0\): k is 0; give a whole number from 1 to 100000"),
        (lambda: J.histogram_numeric("px", 1), r"nBins is 1; give a whole number from 2 to 10000"),
        (lambda: J.percentile_approx("px", 0.5, 0), r"accuracy is 0; give a whole number from 1 to 655350"),
    ],
)
def test_an_argument_out_of_range_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        make()


def test_an_operation_must_be_whole(spark: SparkSession) -> None:
    zero = {"n": F.lit(0)}
    with pytest.raises(AnalysisError, match=r"same fields.*\['m'\] and \['n'\]"):
        AggregateOperation({"m": F.count("*")}, zero, combine=lambda a, _: a, finish=lambda a: a["n"])
    with pytest.raises(AnalysisError, match="deduct needs combine_group"):
        AggregateOperation({"n": F.count("*")}, zero, lambda a, _: a, lambda a: a["n"], deduct=lambda a, _: a)


def test_aggregates_are_immutable_and_renamed_by_copy(spark: SparkSession) -> None:
    total = J.sum("x")
    assert (total.alias("t").output_name, total.output_name) == ("t", "sum(x)")
    with pytest.raises(FrozenInstanceError):
        total.output_name = "other"  # type: ignore[misc]
    operation = total.resolve(Inputs(spark.createDataFrame([], "x int"), F.lit(0)))
    assert operation.alias("own").resolve(Inputs(spark.range(1), F.lit(0))) is operation


def test_aggregates_resolve_on_a_stream(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().select(F.unix_micros("timestamp").alias("t"), "value")
    inputs = Inputs(stream, F.col("t"))
    operations = [J.sum("value"), J.first("value"), J.percentile_approx(F.col("value") * 2, 0.5)]
    assert [sorted(one.resolve(inputs).create) for one in operations] == [
        ["count", "high", "low"],
        ["best"],
        ["sketch"],
    ]


def test_names_need_no_session() -> None:
    assert [each.output_name for each in (J.count(), J.top_n("px", 3), J.percentile_approx("px", 0.9))] == [
        "count(1)",
        "top_n(px, 3)",
        "percentile_approx(px, 0.9, 10000)",
    ]


def test_only_exact_sums_deduct(spark: SparkSession) -> None:
    schema = "i int, l bigint, d double, d27 decimal(27,2), d28 decimal(28,2)"
    frame: DataFrame = spark.createDataFrame([], schema)
    inputs = Inputs(frame, F.lit(0))
    deducting = {c: J.sum(c).resolve(inputs).deduct is not None for c in frame.columns}
    assert deducting == {"i": True, "l": True, "d": False, "d27": True, "d28": False}
    unbounded = [f for f in (J.collect_list, J.collect_set, J.max, J.first) if not f("d").resolve(inputs).bounded]
    assert unbounded == [J.collect_list, J.collect_set]
