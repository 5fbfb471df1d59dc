"""Functions that cannot be sent to workers: refused where they are given, not by the batch that would send them."""

from __future__ import annotations

import threading
from typing import Any

import pandas as pd
import pytest

import sparkjet as sj
from sparkjet.catalyst.sendable import check_sendable
from sparkjet.errors import AnalysisError
from tests.lines import needs_python_aggregates

LOCK = threading.Lock()


def test_what_can_be_sent_is_not_refused() -> None:
    check_sendable(lambda row: row, "foreach", "no matter")


def test_what_cannot_be_sent_is_named_with_the_reason_and_the_way_out() -> None:
    with pytest.raises(AnalysisError, match=r"foreach: the function cannot be sent to the executors: cannot pickle"):
        check_sendable(lambda row: LOCK, "foreach", "no matter")


def test_every_method_that_takes_a_function_for_the_workers_refuses_a_query_in_it(spark: Any) -> None:
    rows = sj.stream(spark.readStream.format("rate").load()).select("value")
    session = spark

    def keep(key: Any, frames: Any, state: Any) -> Any:
        session.range(1).count()
        yield pd.DataFrame({"n": [1]})

    with pytest.raises(AnalysisError, match=r"applyInPandasWithState: the function cannot be sent.*Create"):
        rows.groupBy("value").applyInPandasWithState(keep, "n int", "n int", "update", "NoTimeout")


@needs_python_aggregates
def test_an_aggregate_in_python_refuses_a_query_in_it(spark: Any) -> None:
    session = spark

    def accumulate(total: int, value: int) -> int:
        return total + value + session.range(1).count()

    parts = {"create": lambda: 0, "combine": lambda a, b: a + b, "finish": lambda a: a}
    with pytest.raises(AnalysisError, match=r"python_aggregate\(value\): the function cannot be sent.*Create"):
        sj.python_aggregate("value", accumulatorType="long", returnType="long", accumulate=accumulate, **parts)
