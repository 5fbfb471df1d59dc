"""What leaves a tracker: watermarks that are worth emitting, never going back, and word that everybody is idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.time.frames import MIN
from sparkjet.time.states import Json, entry

if TYPE_CHECKING:
    from sparkjet.time.throttling import Throttle

_OWNER = "an output"


@dataclass(frozen=True)
class Advance:
    """Answer of :meth:`sparkjet.time.SubstreamTracker.advance` and :meth:`sparkjet.time.InputTracker.advance`.

    ``watermark`` is the one to emit now, None if there is nothing new. ``went_idle`` is true once at each transition to
    having no active substream at all; the watermark that comes with it is the highest that any substream had.
    """

    watermark: int | None = None
    went_idle: bool = False


class WatermarkEmitter:
    """State of what was emitted; the tracker owns it.

    Args:
        throttle: Which watermarks are worth emitting.

    >>> from sparkjet.time.throttling import no_throttling
    >>> output = WatermarkEmitter(no_throttling())
    >>> output.observe(30)
    >>> output.offer(10).watermark, output.offer(None), output.offer(None).went_idle
    (10, Advance(watermark=30, went_idle=True), False)
    """

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self.emitted = MIN
        self.idle = False
        self._top = MIN

    def observe(self, watermark: int) -> None:
        """Take note of a substream's watermark: once nobody is active, the highest is emitted."""
        self._top = max(self._top, watermark)

    def force(self, watermark: int) -> None:
        """Count a watermark as emitted."""
        self.emitted = max(self.emitted, watermark)

    def offer(self, ideal: int | None) -> Advance:
        """Decide what to emit for the least watermark of the active substreams, None if there is none.

        Raises:
            AnalysisError: A throttle of the user's answered more than the ideal watermark.
        """
        if ideal is not None:
            self.idle = False
            return Advance(self._emit(ideal))
        if self.idle:
            return Advance()
        self.idle = True
        # Whichever substream turned idle last must not decide how far the watermark gets.
        return Advance(self._emit(self._top), went_idle=True)

    def snapshot(self) -> Json:
        """Everything but the throttle."""
        return {"emitted": self.emitted, "top": self._top, "idle": self.idle}

    @staticmethod
    def restored(throttle: Throttle, snapshot: Json) -> WatermarkEmitter:
        """An output as it was.

        Raises:
            RecoveryError: It is not the snapshot of an output.
        """
        output = WatermarkEmitter(throttle)
        output.emitted, output._top = (entry(snapshot, name, int, _OWNER) for name in ("emitted", "top"))
        output.idle = entry(snapshot, "idle", bool, _OWNER)
        return output

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
