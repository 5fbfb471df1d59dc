"""Frames and windows on the grid of event time.

A *frame* is a slice of event time, a *window* a run of frames; both are named by their exclusive end (Jet's
``SlidingWindowPolicy``). Times are integers in any unit; sparkjet uses microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from sparkjet.errors import AnalysisError

MIN = -(2**63)
"""Smallest time; as a watermark: there is none yet."""
MAX = 2**63 - 1
"""Largest time."""


def clamp(time: int) -> int:
    """Clamp a time to the 64 bits of Spark's long.

    >>> clamp(MAX + 5) == MAX, clamp(7)
    (True, 7)
    """
    return min(max(time, MIN), MAX)


@dataclass(frozen=True)
class FrameGrid:
    """Slices of event time of length ``step``, one of which ends at ``offset``.

    Pure arithmetic on the driver; the same expressions in Catalyst name the frames of rows. Results are clamped to 64
    bits, never wrapped around.

    Args:
        step: Length of a frame, at least 1.
        offset: Where the grid starts, 0 <= offset < step.

    Raises:
        AnalysisError: The numbers do not make a grid.

    >>> grid = FrameGrid(4, offset=1)
    >>> grid.floor_frame(0), grid.higher_frame(0)
    (-3, 1)
    """

    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.step <= MAX:
            raise AnalysisError(f"step {self.step}: frames need a step of at least 1")
        if not 0 <= self.offset < self.step:
            raise AnalysisError(
                f"offset {self.offset}: it must be at least 0 and less than the step {self.step}; "
                f"{self.offset % self.step} gives the same frames"
            )

    def floor_frame(self, time: int) -> int:
        """The highest frame end that is not above ``time``.

        >>> FrameGrid(4).floor_frame(-5), FrameGrid(4).floor_frame(4)
        (-8, 4)
        """
        return clamp(self._floor(time))

    def higher_frame(self, time: int) -> int:
        """The lowest frame end above ``time``: the name of the frame that an event of that time belongs to.

        >>> FrameGrid(4).higher_frame(3), FrameGrid(4).higher_frame(4)
        (4, 8)
        """
        # The floor must not be clamped first: above MIN there would be frame ends off the grid.
        return clamp(self._floor(time) + self.step)

    def common(self, other: FrameGrid) -> FrameGrid | None:
        """The ends that both grids have, None if there are none, or so few that no grid of 64 bits names them.

        >>> FrameGrid(4).common(FrameGrid(6, offset=2)), FrameGrid(4).common(FrameGrid(2, offset=1))
        (FrameGrid(step=12, offset=8), None)
        """
        shared = math.gcd(self.step, other.step)
        apart, rest = divmod(other.offset - self.offset, shared)
        if rest:
            return None
        period = other.step // shared
        steps = apart * pow(self.step // shared, -1, period) % period
        step = self.step * period
        if step > MAX:
            return None
        return FrameGrid(step, (self.offset + steps * self.step) % step)

    def _floor(self, time: int) -> int:
        return time - (time - self.offset) % self.step


@dataclass(frozen=True)
class WindowGrid:
    """Sliding windows of length ``size``, one starting every ``step``; tumbling if the two are equal.

    A frame is as long as the greatest common divisor of size and step, so that windows begin and end with a frame; that
    is one step if the size is a multiple of it.

    Args:
        size: Length of a window, at least ``step``: shorter ones would leave out the times between them.
        step: Distance between windows.
        offset: Where one of the windows starts, 0 <= offset < step.

    Raises:
        AnalysisError: The size is less than the step, or the numbers do not make a grid.

    >>> window = WindowGrid(size=6, step=2)
    >>> window.frames, window.tumbling, window.start(10)
    (3, False, 4)
    >>> uneven = WindowGrid(size=5, step=2)
    >>> uneven.frame, uneven.frames, uneven.start(1)
    (1, 5, -4)
    """

    size: int
    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        FrameGrid(self.step, self.offset)
        if not self.step <= self.size <= MAX:
            raise AnalysisError(
                f"window size {self.size}: it must be at least the slide step {self.step}; "
                f"an event between two windows would be in neither"
            )

    @cached_property
    def frame(self) -> int:
        """Length of a frame."""
        return math.gcd(self.size, self.step)

    @cached_property
    def grid(self) -> FrameGrid:
        """The frames that these windows are made of."""
        return FrameGrid(self.frame, self.offset % self.frame)

    @cached_property
    def ends(self) -> FrameGrid:
        """The grid on which windows end."""
        return FrameGrid(self.step, (self.offset + self.size) % self.step)

    @property
    def frames(self) -> int:
        """Number of frames in a window."""
        return self.size // self.frame

    @property
    def tumbling(self) -> bool:
        """Whether every window is a single frame."""
        return self.size == self.step

    def start(self, end: int) -> int:
        """Inclusive start of the window that ends at ``end``; it may lie before the first event."""
        return clamp(end - self.size)

    def closed_end(self, watermark: int) -> int:
        """End of the last window that a watermark closes: windows close at ``watermark >= end``.

        MIN (no watermark yet) closes none.

        >>> WindowGrid(6, 2).closed_end(7)
        6
        """
        return self.ends.floor_frame(watermark)

    def whole_from(self, before: WindowGrid, closed: int | None, highest: int | None) -> int | None:
        """Start of the first window whose value frames of another grid give in full; None if they do for all.

        Frames that no open window of the other grid needs are gone. A frame that a window of this grid would cut stays
        as it is, so that then only windows after the last one are complete.

        Args:
            before: The other grid.
            closed: End of its last closed window, None before the first.
            highest: End of its last existing frame, None if there is none.

        >>> WindowGrid(120, 20).whole_from(WindowGrid(60, 20), closed=100, highest=180)
        60
        >>> WindowGrid(30, 10).whole_from(WindowGrid(60, 20), closed=100, highest=180)
        180
        """
        starts = [] if closed is None else [closed + before.step - before.size]
        cuts = self.frame % before.frame or (self.grid.offset - before.grid.offset) % before.frame
        if cuts and highest is not None:
            starts.append(highest)
        return max(starts, default=None)

    def last_partial(self, whole_from: int) -> int:
        """End of the last window that starts before a time.

        >>> WindowGrid(120, 20).last_partial(60)
        160
        """
        return self.ends.floor_frame(whole_from - 1 + self.size)

    def last_end(self, frame: int) -> int:
        """End of the last window that a frame is part of.

        >>> WindowGrid(6, 2).last_end(2), WindowGrid(5, 2).last_end(2)
        (6, 5)
        """
        return self.ends.floor_frame(frame - self.frame + self.size)
