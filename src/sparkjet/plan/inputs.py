"""The inputs of a query: streams with separate watermarks, each with a prefix for the names of its substreams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.catalyst.columns import ONLY_SUBSTREAM
from sparkjet.time import InputTracker, SubstreamTracker, emit_by_frame, uses_clock

if TYPE_CHECKING:
    from sparkjet.time import PolicySettings, Throttle


MOST_FIXED = 8
"""Maximum number of inputs whose highest times are found in parallel; more would take longer than a second row."""


@dataclass(frozen=True)
class WatermarkSettings:
    """Settings of ``withWatermark``: how event time progresses in each substream; durations in microseconds."""

    event_time: str
    policy: PolicySettings
    by: tuple[str, ...] = ()
    substreams: tuple[str, ...] = ()
    discover: int | None = None
    idle_timeout: int | None = None
    substream_timeout: int | None = None
    throttle: Throttle | None = None
    partitions: bool = False
    """Whether the substreams are a source's partitions, which its offsets name before they have rows."""

    @property
    def awaited(self) -> tuple[str, ...]:
        """Substreams to wait for from the start."""
        return self.substreams if self.by else (ONLY_SUBSTREAM,)

    @property
    def uses_clock(self) -> bool:
        """Whether the watermark can advance while nothing arrives."""
        timers = (self.discover, self.idle_timeout, self.substream_timeout)
        return uses_clock(self.policy) or any(timer is not None for timer in timers)


@dataclass(frozen=True)
class Input:
    """One input of a query.

    Attributes:
        prefix: Start of the names of its substreams, empty if it is the only input.
        watermark: Its settings.
        sources: Number of Spark's sources that it reads.
    """

    prefix: str
    watermark: WatermarkSettings
    sources: int

    @property
    def awaited(self) -> tuple[str, ...]:
        """Full names of the substreams to wait for from the start."""
        return tuple(self.prefix + name for name in self.watermark.awaited)

    def below(self, prefix: str) -> Input:
        """The same input as part of a union."""
        return Input(prefix + self.prefix, self.watermark, self.sources)


def several_substreams(inputs: Sequence[Input]) -> bool:
    """Whether rows of these inputs can be of different substreams."""
    return len(inputs) > 1 or bool(inputs[0].watermark.by)


def fixed_substreams(inputs: Sequence[Input]) -> tuple[str, ...]:
    """Full names of all substreams of inputs that have one each; empty if one can have others, or there are many."""
    if len(inputs) > MOST_FIXED or any(each.watermark.by for each in inputs):
        return ()
    return tuple(name for each in inputs for name in each.awaited)


def tracker_of(inputs: Sequence[Input], grids: Sequence[tuple[int, int] | None]) -> InputTracker:
    """A new tracker of all inputs.

    Unless the user gave a throttle, the watermark advances in the largest steps on which every window's end lies.
    """
    if not inputs:
        return InputTracker({})
    step, offset = common_grid([grid or (1, 0) for grid in grids])
    trackers = {}
    for each in inputs:
        settings = each.watermark
        throttle = settings.throttle if settings.throttle is not None else emit_by_frame(step, offset)
        trackers[each.prefix] = SubstreamTracker(
            settings.policy,
            throttle,
            settings.idle_timeout,
            discover=settings.discover,
            substream_timeout=settings.substream_timeout,
        )
    return InputTracker(trackers)


def common_grid(grids: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The coarsest grid (step, offset) that contains all the grids.

    >>> common_grid([(60, 0), (3600, 0)]), common_grid([(6, 1), (6, 3)])
    ((60, 0), (2, 1))
    """
    step, offset = grids[0]
    for other_step, other_offset in grids[1:]:
        step = math.gcd(step, other_step, offset - other_offset)
    return step, offset % step
