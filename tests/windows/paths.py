"""The paths by which sliding windows are computed, and their check against the naive model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate
from sparkjet.time import WindowGrid
from tests.windows.model import Batch, Event, Fold, Row, naive
from tests.windows.operator import OperatorRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _values(fold: Callable[[list[int]], Any]) -> Fold:
    return lambda events: fold([event.value for event in events])


COUNT = (J.count, len)
SUM = (lambda: J.sum("value"), _values(sum))
PATHS: dict[str, list[tuple[Callable[[], Aggregate], Fold]]] = {
    "deduct": [
        COUNT,
        SUM,
        (lambda: J.avg("value"), _values(statistics.fmean)),
        (lambda: J.sum(F.col("value").cast("decimal(10,2)")), _values(lambda v: Decimal(sum(v)))),
    ],
    "stacks": [
        SUM,
        (lambda: J.max("value"), _values(max)),
        (lambda: J.avg(F.col("value").cast("double")), _values(statistics.fmean)),
        (lambda: J.top_n("value", 2), _values(lambda v: sorted(v, reverse=True)[:2])),
        (lambda: J.max_by("time", "value"), lambda events: min((-e.value, e.time) for e in events)[1]),
    ],
    "recombine": [
        COUNT,
        (lambda: J.collect_list("value"), lambda es: [v for _, v in sorted((e.time, e.value) for e in es)]),
    ],
}

events = st.builds(
    Event, key=st.sampled_from(["a", "b", "c", None]), time=st.integers(-40, 60), value=st.integers(-9, 9)
)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows in one order, whatever their types."""
    return sorted(rows, key=repr)


def check_modes(
    spark: SparkSession,
    path: str,
    window: WindowGrid,
    batches: list[Batch],
    home: Path,
    modes: Sequence[str] = ("one batch", "many batches", "restarts"),
) -> None:
    """Feed everything at once, batch by batch, and batch by batch with a restart after each."""
    aggregates, folds = [make() for make, _ in PATHS[path]], [fold for _, fold in PATHS[path]]
    for mode in modes:
        fed = [Batch([e for batch in batches for e in batch.events], None)] if mode == "one batch" else batches
        expected, late = naive(fed, window, folds)
        operator = OperatorRun(spark, window, aggregates, home / mode)
        assert operator.state.operator.path == (path if window.size > window.step else "recombine")
        for batch, rows in zip(fed, expected, strict=True):
            assert in_order(operator.feed(batch)) == in_order(rows)
            if mode == "restarts":
                operator.restart()
        assert operator.late == late
        assert operator.state.operator.segments == []
