"""A task attempt that writes its rows, shared by all sinks that write from the executors.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa

PREPARED = "id string, rows long"
"""The result of a task: one row if it has prepared a transaction, none if it had no rows."""
POOLED = "id string, rows long, task long, attempt long"
"""The result of a task with pooled names: always one row, without an id if it had no rows."""
THREAD = "thread"
"""Column with the task's thread, in the first row of each partition and in each result."""


def attempt(
    write: Callable[[str, Iterator[pa.RecordBatch]], tuple[str, int] | None], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task, for ``mapInArrow``."""
    from pyspark import TaskContext  # noqa: PLC0415 - the workers have it, plain processes need not

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - only tasks call this
    writer = f"{context.partitionId():05d}-{context.taskAttemptId()}"
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    # Without rows, there is no reason to connect.
    prepared = None if first is None else write(writer, chain([first], filled))
    names, rows = ([prepared[0]], [prepared[1]]) if prepared else ([], [])
    yield pa.record_batch({"id": pa.array(names, pa.string()), "rows": pa.array(rows, pa.int64())})


def pooled_attempt(
    write: Callable[[str, Iterator[pa.RecordBatch]], tuple[str, int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Like :func:`attempt`, but the first attempt at a partition has the same name in every job."""
    from pyspark import TaskContext  # noqa: PLC0415 - as above

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - only tasks call this
    task, number = context.taskAttemptId(), context.attemptNumber()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    prepared: tuple[str | None, int] = None, 0
    if first is not None:
        pooled = f"p{context.partitionId():05d}"
        writer = pooled if is_first(first.column(THREAD)[0].as_py(), task, number) else f"{pooled}-{task}"
        columns = [name for name in first.schema.names if name != THREAD]
        prepared = write(writer, (batch.select(columns) for batch in chain([first], filled)))
    numbers = {"rows": prepared[1], "task": task, "attempt": number}
    longs = {name: pa.array([value], pa.int64()) for name, value in numbers.items()}
    yield pa.record_batch({"id": pa.array([prepared[0]], pa.string()), **longs})


def is_first(thread: str | None, task: int, attempt: int) -> bool:
    """Whether a task is the first attempt at its partition, in the first attempt at its stage.

    Python's task context does not have the stage's attempt number, but the name of the executor's thread does. If a
    version of Spark names its threads differently, nothing is proven, so the result is False.

    >>> is_first("Thread[Executor task launch worker for task 3.0 in stage 7.0 (TID 42),5,main]", 42, 0)
    True
    >>> is_first("Thread[Executor task launch worker for task 3.0 in stage 7.1 (TID 42),5,main]", 42, 0)
    False
    """
    found = re.search(r" in stage \d+\.(\d+) \(TID (\d+)\)", thread or "")
    return found is not None and (int(found[1]), int(found[2]), attempt) == (0, task, 0)
