"""Python functions behind divert(…): what one raises for a row is a failure of that row, whatever kind it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1_000


def number(text: str, times: int = 1) -> int:
    """What each of the functions computes; raises a ValueError for what is no number."""
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


def halves(texts: pd.Series[Any]) -> pd.DataFrame:
    found = texts.map(int)
    return pd.DataFrame({"rest": found % 2, "half": found // 2})


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
    texts = {name: f"IF(id = {100 + place}, 'x{place}', CAST(id AS STRING))" for place, name in enumerate(kinds)}
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
        assert letter._trace.startswith("Traceback") and "int(" in letter._trace
