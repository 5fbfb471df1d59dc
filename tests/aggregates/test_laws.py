"""check_aggregate passes sound operations, and names the law that a broken one violates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Accumulator, AggregateOperation, Inputs
from sparkjet.errors import AnalysisError
from sparkjet.testing.laws import check_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = [(g, t, float(x), x) for g in "pq" for t, x in enumerate([3, -1, 4, 1, -5, 9, 7])]
    return spark.createDataFrame(values, "g string, t bigint, d double, x bigint").localCheckpoint()


@pytest.fixture(scope="module")
def summing(rows: DataFrame) -> AggregateOperation:
    """A sound sum with deduct, which each test breaks in one place."""
    return AggregateOperation(
        accumulate={"sum": F.sum("x"), "n": F.count("x")},
        create={"sum": F.lit(0).cast("long"), "n": F.lit(0).cast("long")},
        combine=lambda a, b: {"sum": a["sum"] + b["sum"], "n": a["n"] + b["n"]},
        finish=lambda a: a["sum"],
        deduct=lambda a, b: {"sum": a["sum"] - b["sum"], "n": a["n"] - b["n"]},
        combine_group=lambda a: {"sum": F.sum(a["sum"]), "n": F.sum(a["n"])},
    )


def first_of(a: Accumulator, _: Accumulator) -> Accumulator:
    return a


def halved(a: Accumulator, b: Accumulator) -> Accumulator:
    return {"sum": F.floor((a["sum"] + b["sum"]) / 2), "n": a["n"] + b["n"]}


BROKEN: dict[str, dict[str, Callable[[], Any]]] = {
    "create is not neutral": {"create": lambda: {"sum": F.lit(1).cast("long"), "n": F.lit(0).cast("long")}},
    "combine is not commutative": {"combine": lambda: first_of},
    "combine is not associative": {"combine": lambda: halved},
    "combine does not continue accumulate": {
        "accumulate": lambda: {"sum": F.sum("x") * F.sum("x"), "n": F.count("x")},
    },
    "combine_group differs from combine": {
        "combine_group": lambda: lambda a: {"sum": F.max(a["sum"]), "n": F.sum(a["n"])},
    },
    "deduct does not undo combine": {
        "deduct": lambda: lambda a, b: {"sum": a["sum"] - b["sum"], "n": a["n"]},
    },
    "deduct does not negate": {
        "deduct": lambda: (
            lambda a, b: {
                # Correct as combine's inverse, wrong from empty.
                "sum": F.when(a["n"] == 0, F.lit(0)).otherwise(a["sum"] - b["sum"]),
                "n": a["n"] - b["n"],
            }
        ),
    },
}


def test_a_sound_operation_passes(rows: DataFrame, summing: AggregateOperation) -> None:
    check_aggregate(summing.alias("sound"), rows)
    check_aggregate([summing.alias("sound"), J.max("d")], rows, "t", by=["g"])


def test_the_law_that_is_broken_is_named(rows: DataFrame, summing: AggregateOperation) -> None:
    wrong = [replace(summing, **{k: v() for k, v in change.items()}).alias(law) for law, change in BROKEN.items()]
    with pytest.raises(AssertionError) as caught:
        check_aggregate([*wrong, summing.alias("sound")], rows, by=["g"])
    findings = str(caught.value).splitlines()
    for law in BROKEN:
        assert any(line.startswith(f"{law}: {law} in the group g='") for line in findings), law
    assert not any(line.startswith("sound") for line in findings)
    shown = next(line for line in findings if line.startswith("combine is not commutative: combine is not comm"))
    assert "combine(a, b) gives" in shown
    assert "(a = {'sum': " in shown


def test_a_wrong_deduct_is_not_hidden_by_finish(rows: DataFrame, summing: AggregateOperation) -> None:
    # The field n is wrong, and finish does not read it: later windows would.
    wrong = replace(summing, deduct=lambda a, b: {"sum": a["sum"] - b["sum"], "n": a["n"] - b["n"] + 1})
    with pytest.raises(AssertionError, match="deduct does not undo combine"):
        check_aggregate(wrong.alias("wrong"), rows)


def test_deducting_floats_is_caught(spark: SparkSession) -> None:
    drifting = AggregateOperation(
        accumulate={"sum": F.sum("x")},
        create={"sum": F.lit(0.0)},
        combine=lambda a, b: {"sum": a["sum"] + b["sum"]},
        finish=lambda a: a["sum"],
        deduct=lambda a, b: {"sum": a["sum"] - b["sum"]},
        combine_group=lambda a: {"sum": F.sum(a["sum"])},
    )
    rows = spark.createDataFrame([(0.1 * 7**i,) for i in range(12)], "x double")
    with pytest.raises(AssertionError, match="deduct does not undo combine"):
        check_aggregate(drifting.alias("drifting"), rows)


def test_a_result_that_follows_arrival_is_caught(rows: DataFrame) -> None:
    arrival = AggregateOperation(
        accumulate={"first": F.first("x")},
        create={"first": F.lit(None).cast("long")},
        combine=lambda a, b: {"first": F.coalesce(a["first"], b["first"])},
        finish=lambda a: a["first"],
    )
    with pytest.raises(AssertionError, match="not commutative"):
        check_aggregate(arrival.alias("arrival"), rows)


def test_too_few_samples_prove_nothing(spark: SparkSession, rows: DataFrame) -> None:
    with pytest.raises(AnalysisError, match="at least three rows"):
        check_aggregate(J.sum("x"), spark.createDataFrame([(1,), (2,)], "x int"))
    with pytest.raises(AnalysisError, match=r"event_time: d is double; give a timestamp, or a bigint"):
        check_aggregate(J.sum("x"), rows, "d")
    assert isinstance(J.sum("x").resolve(Inputs(rows, F.col("t"))), AggregateOperation)
