"""The steps of an epoch, in order, and who wants to hear of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

StepListener = Callable[["Step", int], None]


class Step(Enum):
    """A point between two actions of an epoch; a crash at any of them loses and repeats nothing.

    Listeners (``writeStream.onEpochStep``) are called on the driver, in the epoch's thread, with the step and the
    epoch's sequence number. An exception from a listener fails the epoch, as a fault at that point would.
    """

    BEGIN = "begin"
    """Spark has planned the batch; nothing of it has been read."""
    AGGREGATED = "aggregated"
    """Stage 1 is done and the watermark has moved, in memory only."""
    SAVED = "saved"
    """The state delta is on disk, named by no record yet; the sinks were written beside it."""
    PREPARED = "prepared"
    """Every sink has prepared its transaction."""
    DECIDED = "decided"
    """The record is in its slot: the epoch will be published, whatever happens."""
    COMMITTING = "committing"
    """Some sinks or files of the epoch are published, some are not."""
    COMMITTED = "committed"
    """Every transaction of the epoch is confirmed."""
    CLEANED = "cleaned"
    """Files and memory that nothing names any more are gone; Spark's commit log comes next."""
