"""Running the tasks of a sink that writes from the executors, with their failures as a SinkError."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparkjet import workers
from sparkjet.errors import RefusedRowsError, SinkError, drivers_python, lacking
from sparkjet.sinks import attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_ROW = 2**33 - 1
"""The part of Spark's increasing ids that counts the rows of a partition."""


def run_tasks(
    rows: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    modules: Sequence[ModuleType],
    refusal: type[Exception],
    packages: Mapping[str, str],
    *,
    of_rows: type[Exception] | None = None,
    pooled: bool = False,
) -> list[Row]:
    """Run a task on every partition of some rows, and collect the results.

    Errors that a task raises as ``refusal``, or a direct subclass of it, become a :class:`SinkError`, and as
    ``of_rows`` a :class:`RefusedRowsError`.
    """
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415 - on use only

    for shipped in (attempt, workers, *modules):
        register_pickle_by_value(shipped)
    quick = workers.QuickTask(task)
    try:
        if not pooled:
            return rows.mapInArrow(quick, attempt.PREPARED).collect()
        thread = F.java_method(F.lit("java.lang.Thread"), F.lit("currentThread")).alias(attempt.THREAD)
        # For the first row only, as the call costs more than a row.
        asked = F.when(F.monotonically_increasing_id().bitwiseAND(_ROW) == 0, thread).alias(attempt.THREAD)
        return rows.select("*", asked).mapInArrow(quick, attempt.POOLED).select("*", thread).collect()
    except PySparkException as error:
        missing = re.search(r"No module named '(\w+)'", str(error))
        # Any other package is missing for the user's own functions.
        if missing is not None and missing[1] in packages:
            drivers = drivers_python(rows.sparkSession.sparkContext.pythonExec, [missing[1]])
            raise SinkError(lacking("The executors' Python", [missing[1]], packages, drivers)) from error
        for kind, raised in ((of_rows, RefusedRowsError), (refusal, SinkError)):
            # Of an error in an executor there is only the text, which names the error's own class.
            names = [] if kind is None else [each.__name__ for each in (kind, *kind.__subclasses__())]
            said = re.search(rf"\b(?:{'|'.join(names)}): (.*)", str(error)) if names else None
            if said is not None:
                raise raised(said[1]) from error
        raise
