"""An attempt of a task at writing its rows, the same for every sink that writes in the executors.

Spark sends this module to its workers, where sparkjet need not be installed; so it imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import pyarrow as pa

SLOTS = "id string, rows long"
"""What a task answers: one row if it has prepared a transaction, none if it had no rows."""


def attempt(
    write: Callable[[str, Iterator[pa.RecordBatch]], tuple[str, int] | None], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task, for ``mapInArrow``.

    Args:
        write: From a name that no other attempt has and batches, of which the first has rows, to the id and the number
            of rows of what was prepared.
        batches: The task's rows.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - the workers have it, plain processes need not

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - only tasks call this
    writer = f"{context.partitionId():05d}-{context.taskAttemptId()}"
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    # Without rows there is nothing to connect for.
    slot = None if first is None else write(writer, chain([first], filled))
    names, rows = ([slot[0]], [slot[1]]) if slot else ([], [])
    yield pa.record_batch({"id": pa.array(names, pa.string()), "rows": pa.array(rows, pa.int64())})
