"""Python functions after divert(…): what one raises for a row is a failure of that row, whatever kind it is of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

import sparkjet as sj
from sparkjet.catalyst.tried_functions import SEPARATOR, failure
from tests.together import all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 1_000


def number(text: str, times: int = 1) -> int:
    """The value that each of the functions computes; raises a ValueError for a text that is not a number."""
    return int(text) * times


def of_series(texts: pd.Series[Any], times: pd.Series[Any]) -> pd.Series[Any]:
    return texts.map(int) * times


def of_batches(batches: Iterator[tuple[pd.Series[Any], pd.Series[Any]]]) -> Iterator[pd.Series[Any]]:
    for texts, times in batches:
        yield texts.map(int) * times


def of_arrays(texts: Any, times: Any) -> Any:
    return pa.array([int(text) * time for text, time in zip(texts.to_pylist(), times.to_pylist(), strict=True)])


def of_array_batches(batches: Iterator[Any]) -> Iterator[Any]:
    for texts, times in batches:
        yield of_arrays(texts, times)


def functions() -> dict[str, UserDefinedFunction]:
    """A function of each kind, of two arguments."""
    kinds = {
        "SQL_BATCHED_UDF": number,
        "SQL_ARROW_BATCHED_UDF": number,
        "SQL_SCALAR_PANDAS_UDF": of_series,
        "SQL_SCALAR_PANDAS_ITER_UDF": of_batches,
        # Since Spark 4.1.
        "SQL_SCALAR_ARROW_UDF": of_arrays,
        "SQL_SCALAR_ARROW_ITER_UDF": of_array_batches,
    }
    return {name: function(each, name) for name, each in kinds.items() if hasattr(PythonEvalType, name)}


def function(body: Callable[..., Any], kind: str, returned: str = "bigint") -> UserDefinedFunction:
    """A function of some kind."""
    return UserDefinedFunction(body, returned, evalType=getattr(PythonEvalType, kind))


def test_what_each_kind_of_function_raises_is_a_failure_of_that_row_alone(spark: SparkSession) -> None:
    kinds = functions()
    texts = {name: f"IF(id IN (5, {100 + place}), 'x{place}', CAST(id AS STRING))" for place, name in enumerate(kinds)}
    given = spark.range(0, COUNT, 1, 2).withColumns({name: F.expr(text) for name, text in texts.items()})
    found = sj.stream(given).divert(errors=True).where("id <> 5")
    found = found.withColumns({f"n_{name}": kind(name, F.lit(2)) for name, kind in kinds.items()})
    found = found.select("id", *(f"n_{name}" for name in kinds))
    good = [n for n in range(COUNT) if n != 5 and not 100 <= n < 100 + len(kinds)]
    assert sorted(map(tuple, found.toDF().collect())) == [(n, *[2 * n] * len(kinds)) for n in good]
    letters = {row.id: row for row in found.deadLetters.toDF().collect()}
    assert sorted(letters) == [100 + place for place in range(len(kinds))]
    for place, (name, kind) in enumerate(kinds.items()):
        letter = letters[100 + place]
        assert (letter._stage, letter._error) == (f"withColumn n_{name}: {kind._name}({name}, 2)", "ValueError")
        assert letter._message == f"invalid literal for int() with base 10: 'x{place}'"
        assert letter._trace.endswith(f"ValueError: {letter._message}\n")


def test_a_failure_counts_only_where_the_value_is_needed(spark: SparkSession) -> None:
    given = spark.createDataFrame(
        [(n, *("x" if n == place else "1" for place in range(6))) for n in range(8)],
        "id int, a string, b string, c string, d string, e string, f string",
    )
    # Arguments may be called as those of sparkjet's own functions are.
    plain = function(lambda text, kept=1: number(text, kept), "SQL_BATCHED_UDF")
    series = function(of_series, "SQL_SCALAR_PANDAS_UDF")
    spark.udf.register("number_of", plain)
    found = sj.stream(given).divert(errors=True)
    found = found.select(
        "id",
        "f",
        # As SQL is computed, and not as Spark computes Python functions.
        F.when(F.col("a") != "x", plain("a")).otherwise(-1).alias("a"),
        (plain(series("b", F.lit(2)).cast("string"), F.lit(2)) + 1).alias("b"),
        series(F.col("c").cast("int").cast("string"), F.lit(1)).alias("c"),
        plain("d", kept=F.lit(3)).alias("d"),
        F.expr("number_of(e, 5)").alias("e"),
    )
    found = found.where(plain("f") > 0)
    assert {row.id: tuple(row)[2:] for row in found.toDF().collect()} == {
        0: (-1, 5, 1, 3, 5),
        6: (1, 5, 1, 3, 5),
        7: (1, 5, 1, 3, 5),
    }
    letters = {row.id: row for row in found.deadLetters.toDF().collect()}
    errors = {number: letter._error for number, letter in letters.items()}
    assert errors == {number: "CAST_INVALID_INPUT" if number == 2 else "ValueError" for number in range(1, 6)}
    assert all("'x'" in letter._message for letter in letters.values())
    assert letters[4]._stage == "select number_of(e, 5) AS e"


def misfits() -> dict[str, UserDefinedFunction]:
    """Functions of which some values do not fit what they are said to return."""

    def pair(text: str) -> Any:
        return (1,) if text == "x" else (1, 2)

    def scalar(text: str) -> Any:
        return np.int64(1) if text == "x" else 1

    def too_few(texts: Any) -> Any:
        return texts.map(len) if (texts != "x").all() else pd.Series(range(7))

    def halves(texts: Any) -> Any:
        found = texts.map(int, na_action="ignore") if (texts != "x").all() else texts
        return pd.DataFrame({"rest": found, "half": found})

    pairs = "struct<half bigint, rest bigint>"
    found = {
        "pair": function(pair, "SQL_BATCHED_UDF", pairs),
        "scalar": function(scalar, "SQL_BATCHED_UDF"),
        "text": function(lambda text: text, "SQL_ARROW_BATCHED_UDF"),
        "infinite": function(
            lambda text: Decimal("Infinity" if text == "x" else "NaN"), "SQL_BATCHED_UDF", "decimal(5)"
        ),
        "letters": function(
            lambda texts: texts if (texts != "x").all() else "x" * len(texts), "SQL_SCALAR_PANDAS_UDF", "string"
        ),
        "too_few": function(too_few, "SQL_SCALAR_PANDAS_UDF"),
        "halves": function(halves, "SQL_SCALAR_PANDAS_UDF", pairs),
    }
    if hasattr(PythonEvalType, "SQL_SCALAR_ARROW_UDF"):
        found["no_array"] = function(lambda texts: texts.to_pylist(), "SQL_SCALAR_ARROW_UDF", "string")
    return found


@pytest.mark.crash
@pytest.mark.interpreted
def test_what_does_not_fit_the_type_is_a_failure(spark: SparkSession) -> None:
    kinds = misfits()
    given = spark.createDataFrame([("1",), ("x",), ("2",)], "text string").coalesce(1)
    frames: dict[tuple[str, str], DataFrame] = {}
    for name, kind in kinds.items():
        found = sj.stream(given).divert(errors=True).withColumn("n", kind("text"))
        frames[name, "letters"] = found.deadLetters.toDF().select("text", "_error")
        frames[name, "rows"] = found.toDF()
    of_all = {name: [*map(json.loads, rows)] for name, rows in all_rows(frames).items()}
    for name in kinds:
        letters, rows = of_all[name, "letters"], of_all[name, "rows"]
        assert {row["text"] for row in letters} == ({"1", "2", "x"} if name == "no_array" else {"x"}), name
        assert all(row["_error"] in {"ValueError", "TypeError", "pyarrow.lib.ArrowInvalid"} for row in letters), name
        assert len(rows) == 3 - len(letters)
        if name == "halves":
            assert [row["n"] for row in rows] == [{"half": number, "rest": number} for number in (1, 2)]


def test_what_a_function_says_has_an_end() -> None:
    _, message, trace = failure(ValueError("x" * 10_000)).split(SEPARATOR)
    assert (len(message), len(trace)) == (2000, 2000)


def test_functions_use_what_is_broadcast(spark: SparkSession) -> None:
    known = spark.sparkContext.broadcast({"a": 1})
    found = sj.stream(spark.createDataFrame([("a",), ("b",)], "k string")).divert(errors=True)
    found = found.withColumn("n", F.udf(lambda key: known.value[key], "int")("k"))
    assert [tuple(row) for row in found.toDF().collect()] == [("a", 1)]
    assert [(row.k, row._error, row._message) for row in found.deadLetters.toDF().collect()] == [
        ("b", "KeyError", "'b'")
    ]
