"""Python workers of Spark: what a task of ours does there before Spark hands it its rows."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_DESCRIPTORS = range(3, 32)
"""Among these is the connection to the JVM: a worker has it before it opens anything else."""
_WARM = 2
"""The task of a worker at which all that tasks import has been imported."""
_AGAIN = 1000
"""After so many tasks a worker looks once more: what users' functions had there may have been replaced since."""
_tasks = {"begun": 0}
"""Not an iterator: Python 3.14 pickles none, and executors without sparkjet get this module by value."""


class QuickReader:
    """A reader that begins its tasks at once; Spark sends it to the worker with each of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Called by the driver as it pickles the reader."""
        # Not __setstate__: a reader without attributes has no state, and it would not be called.
        return _new_reader, (type(self),), self.__dict__


class QuickTask:
    """A task for ``mapInArrow`` that begins at once: the worker unpickles it to the bare task."""

    def __init__(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        self._task = task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run it, where it was not pickled."""
        return self._task(batches)

    def __reduce__(self) -> tuple[Any, ...]:
        """Called by the driver as it pickles the task."""
        return _begun, (self._task,)


def _new_reader(kind: type[QuickReader]) -> QuickReader:
    begin_task()
    return kind.__new__(kind)


def _begun(task: Callable[..., Any]) -> Callable[..., Any]:
    begin_task()
    return task


def begin_task() -> None:
    """Let a worker neither wait for a task nor tidy up after it; called while the worker unpickles the task.

    Spark sends a task in two pieces. The JVM's system keeps the second one back until the first is acknowledged, which
    the worker's system puts off for 40 ms, as the worker has nothing to answer yet (Nagle's algorithm and delayed
    acknowledgements). And after each task PySpark collects garbage among everything that the worker has imported,
    which takes a core for 35 ms.
    """
    _acknowledge()
    _tasks["begun"] += 1
    if _tasks["begun"] % _AGAIN == _WARM:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _acknowledge() -> None:
    """Acknowledge what has come; does nothing where that cannot be asked for."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    for descriptor in _DESCRIPTORS:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                # Of a copy: closing the object closes its descriptor.
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if connection.family in {socket.AF_INET, socket.AF_INET6}:
                        connection.setsockopt(socket.IPPROTO_TCP, option, 1)
