"""The emitter: which watermarks leave a tracker, never going back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.time.frames import MIN

if TYPE_CHECKING:
    from sparkjet.time.frontier import Ideal
    from sparkjet.time.throttling import Throttle


@dataclass(frozen=True)
class Advance:
    """Result of :meth:`sparkjet.time.SubstreamTracker.advance` and :meth:`sparkjet.time.InputTracker.advance`.

    ``watermark`` is the one to emit now, None if there is nothing new. ``went_idle`` is true once at each transition to
    having no active substream at all; the watermark that comes with it is the highest of any substream.
    """

    watermark: int | None = None
    went_idle: bool = False


class WatermarkEmitter:
    """Keeps the last emitted watermark; its owner saves ``emitted``, the only state.

    Args:
        throttle: Decides which watermarks are worth emitting.
        emitted: The last one emitted.

    >>> from sparkjet.time.frontier import Ideal
    >>> from sparkjet.time.throttling import emit_by_frame
    >>> emitter = WatermarkEmitter(emit_by_frame(10))
    >>> emitter.offer(Ideal(17, went_idle=False)), emitter.offer(Ideal(19, went_idle=True))
    (Advance(watermark=10, went_idle=False), Advance(watermark=None, went_idle=True))
    """

    def __init__(self, throttle: Throttle, emitted: int = MIN) -> None:
        self._throttle = throttle
        self.emitted = emitted

    def force(self, watermark: int) -> None:
        """Count a watermark as emitted."""
        self.emitted = max(self.emitted, watermark)

    def offer(self, ideal: Ideal) -> Advance:
        """Decide what to emit for the frontier's current position.

        Raises:
            AnalysisError: The throttle returned more than the ideal watermark.
        """
        watermark = None if ideal.watermark is None else self._emit(ideal.watermark)
        return Advance(watermark, ideal.went_idle)

    def _emit(self, ideal: int) -> int | None:
        if ideal <= self.emitted:
            return None
        answer = self._throttle.throttle(ideal, self.emitted)
        if answer > ideal:
            raise AnalysisError(
                f"{self._throttle!r} answered {answer} for the ideal watermark {ideal}: rows on time would be dropped; "
                f"a throttle must answer at most the ideal watermark"
            )
        if answer <= self.emitted:
            return None
        self.emitted = answer
        return answer
