"""Python workers of Spark: what a reader of ours does there before Spark hands it its part of a batch."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import stat
from collections.abc import Mapping
from typing import Any

_DESCRIPTORS = range(3, 32)
"""Among these is the connection to the JVM: a worker has it before it opens anything else."""
_WARM = 2
"""The task of a worker at which all that tasks import has been imported."""
_AGAIN = 1000
"""After so many tasks a worker looks once more: what users' functions had there may have been replaced since."""
_tasks = itertools.count(1)


class QuickReader:
    """A reader that begins its tasks at once; Spark sends it to the worker with each of them."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Called by the worker as it unpickles the reader."""
        self.__dict__.update(state)
        begin_task()


def begin_task() -> None:
    """Let a worker neither wait for a task nor tidy up after it; called while the worker unpickles the task.

    Spark sends a task in two pieces. The JVM's system keeps the second one back until the first is acknowledged, which
    the worker's system puts off for 40 ms, as the worker has nothing to answer yet (Nagle's algorithm and delayed
    acknowledgements). And after each task PySpark collects garbage among everything that the worker has imported,
    which takes a core for 35 ms.
    """
    _acknowledge()
    if next(_tasks) % _AGAIN == _WARM:
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
