"""The foreachBatch sink: calls a user's function with each epoch's rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.sinks.outbox_sink import OutboxSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.sinks.protocol import Handle, Later, TransactionId
    from sparkjet.storage.directory import Directory

BatchFunction = Callable[..., object]
"""``function(rows, epoch)`` or ``function(rows, epoch, info)``."""
_PLAIN, _INFORMED = 2, 3


@dataclass(frozen=True)
class EpochInfo:
    """Information for a function of ``foreachBatch`` about the rows that it is called with.

    Attributes:
        query: Identity of the query: the same after every restart, different for another ``checkpointLocation``.
        epoch: The epoch's number: the same rows always come with the same number.
        repeated: Whether the function may have been called with these rows before: its last call raised an error, or
            the driver that decided the epoch has ended. If it is false, this driver has just computed them; only a
            driver that was paused and taken over in the middle of an epoch can be mistaken.
        output: Name of the output, the same after every restart: ``results``, or ``results1``, ``results2`` … in the
            order in which several were given to :func:`sparkjet.start`; ``late…`` for late rows. Outputs of one query
            have the same epoch numbers: code that remembers query and epoch must remember the output too.
    """

    query: str
    epoch: int
    repeated: bool
    output: str


class ForeachBatchSink(OutboxSink):
    """Calls ``function(rows, epoch)`` on the driver for every epoch that has rows.

    At least once: after a crash the function may be called again with the same epoch and the same rows, so a function
    that stores the last epoch together with its rows delivers exactly once. Epoch numbers ascend, with gaps. A function
    with a third argument (without a default) also gets an :class:`EpochInfo`.

    Raises:
        AnalysisError: The function does not take these arguments.
    """

    def __init__(self, function: BatchFunction, *, complete: bool = False) -> None:
        super().__init__(complete=complete)
        self._function = function
        self._informed = takes_info(function)
        self._query = self._output = ""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        self._query = transaction.query
        return super().prepare(rows, transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`; here, a start learns whose query it continues."""
        self._query = newest.query
        return super().published_after(newest, handle)

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`OutboxSink.deliver`."""
        self._output = handle["sink"]
        super().deliver(entry, handle)

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        info: tuple[Any, ...] = ()
        if self._informed:
            info = (EpochInfo(self._query, epoch, self.repeated, self._output),)
        self._function(rows, epoch, *info)


def takes_info(function: BatchFunction) -> bool:
    """Whether a function is also to be called with an :class:`EpochInfo`.

    >>> takes_info(lambda rows, epoch, info: None), takes_info(lambda rows, epoch, table="clicks": None)
    (True, False)

    Raises:
        AnalysisError: It takes too few arguments, or needs too many.
    """
    given: object = function
    if not callable(given):
        raise AnalysisError(f"foreachBatch: {function!r} is not a function. Give one that takes (rows, epoch).")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Some functions written in C do not tell.
        return False
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    needed = sum(1 for p in positional if p.default is p.empty)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if named or needed > _INFORMED or (len(positional) < _PLAIN and not takes_any):
        message = (
            f"foreachBatch: the function takes {inspect.signature(function)}. Have it take (rows, epoch), or (rows, "
            "epoch, info) to know of repetitions."
        )
        raise AnalysisError(message)
    return needed == _INFORMED
