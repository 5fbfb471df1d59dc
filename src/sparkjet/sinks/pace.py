"""How often readers are told of the watermark where epochs have no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.options import PROGRESS_INTERVAL
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.options import Options
    from sparkjet.sinks.protocol import TransactionId


class Pace:
    """When an epoch without rows is worth a transaction; see :class:`~sparkjet.sinks.protocol.Telling`.

    Each is a commit of the destination, so there are none unless the user asks for them.

    Args:
        interval: Least time between two that tell of a watermark, in microseconds; None for none.

    >>> from sparkjet.sinks.protocol import TransactionId
    >>> pace = Pace(10)
    >>> pace.note(TransactionId("q", "results", 1, 7, 0, clock=100, watermark=5))
    >>> pace.is_due(105, 6), pace.is_due(110, 5), pace.is_due(110, 6), pace.is_due(110, None)
    (False, False, True, False)
    """

    def __init__(self, interval: int | None = None) -> None:
        self._interval = interval
        self._clock: int | None = None
        self._watermark: int | None = None

    @staticmethod
    def of(options: Options) -> Pace:
        """The pace set by an output's options."""
        return Pace(options[PROGRESS_INTERVAL])

    def note(self, transaction: TransactionId) -> None:
        """An epoch that tells, with rows or without; an attempt counts too, as most are decided."""
        self._clock, self._watermark = transaction.clock, transaction.reached

    def is_due(self, clock: int, watermark: int | None) -> bool:
        """Whether an epoch at that reading of the clock is to tell of a watermark."""
        if self._interval is None or watermark is None or watermark == MIN:
            return False
        if self._watermark is not None and watermark <= self._watermark:
            return False
        # A clock that was ahead and is right again would tell nothing until it has come as far.
        return self._clock is None or not 0 <= clock - self._clock < self._interval
