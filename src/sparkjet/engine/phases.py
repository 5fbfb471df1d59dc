"""The phases of an epoch, in order, and listeners to them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

PhaseListener = Callable[["EpochPhase", int], None]
"""Called with a phase that has ended and the number of its epoch."""


class EpochPhase(Enum):
    """A phase of an epoch. A crash at the end of any of them neither loses nor repeats anything.

    Listeners (``writeStream.onEpochPhase``) are called on the driver when the phase has ended. An exception from a
    listener fails the epoch, as a fault at that point would; at ``COMMITTING`` it fails a commit, which is tried again.
    ``BEGIN`` and ``COMMITTING`` are moments rather than phases; the others are the keys of ``durationMs`` in the
    query's progress.
    """

    BEGIN = "begin"
    """Spark has planned the batch; nothing of it has been read."""
    AGGREGATE = "aggregate"
    """The batch has become partial rows; neither the state nor the watermark has changed."""
    ADVANCE = "advance"
    """The watermark has advanced and windows have closed, in memory only."""
    SAVE = "save"
    """The state delta is in the store, not yet named by a record. Sinks prepare in parallel, and may not be done."""
    PREPARE = "prepare"
    """Every sink has prepared its transaction, and the state is saved."""
    DECIDE = "decide"
    """The record is in its slot: the epoch will be published, whatever happens."""
    COMMITTING = "committing"
    """Some sinks or files of the epoch are published, some are not."""
    COMMIT = "commit"
    """Every transaction of the epoch is confirmed."""
    CLEAN = "clean"
    """Files and memory that nothing names are gone; Spark's commit log comes next."""
