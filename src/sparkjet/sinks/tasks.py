"""Tasks of a sink that writes in the executors, and what they refuse as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparkjet.errors import SinkError
from sparkjet.sinks import attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_ROW = 2**33 - 1
"""The part of Spark's increasing ids that counts the rows of a partition."""


def run_tasks(
    rows: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    half: ModuleType,
    refusal: type[Exception],
    packages: Mapping[str, str],
    *,
    pooled: bool = False,
) -> list[Row]:
    """Run a task on every partition of some rows, and collect what the tasks answer.

    Args:
        rows: The rows, with at most as many partitions as may be written at once.
        task: What takes a partition.
        half: The module that the task is in. Spark sends it to its workers together with :mod:`sparkjet.sinks.attempt`,
            so that sparkjet need not be installed there; it must import nothing else of ours.
        refusal: What it raises with a message for the user, of one line.
        packages: What has to be installed there for it, by the name that it imports.
        pooled: Whether it is a :func:`sparkjet.sinks.attempt.pooled_attempt`: rows and answers then say which thread
            they come from.

    Raises:
        SinkError: With that message; or a package is missing.
    """
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415 - on use only

    for module in (attempt, half):
        register_pickle_by_value(module)
    try:
        if not pooled:
            return rows.mapInArrow(task, attempt.SLOTS).collect()
        thread = F.java_method(F.lit("java.lang.Thread"), F.lit("currentThread")).alias(attempt.THREAD)
        # Of the first row only, as asking costs more than a row does.
        asked = F.when(F.monotonically_increasing_id().bitwiseAND(_ROW) == 0, thread).alias(attempt.THREAD)
        return rows.select("*", asked).mapInArrow(task, attempt.POOLED_SLOTS).select("*", thread).collect()
    except PySparkException as error:
        missing = re.search(r"No module named '(\w+)'", str(error))
        # Others are missed by the user's own functions.
        if missing is not None and missing[1] in packages:
            message = (
                f"The executors' Python has no {missing[1]}. Install {' and '.join(packages.values())} there, or set "
                "PYSPARK_PYTHON to a Python that has them."
            )
            raise SinkError(message) from error
        refused = re.search(rf"{refusal.__name__}: (.*)", str(error))
        if refused is None:
            raise
        raise SinkError(refused[1]) from error
