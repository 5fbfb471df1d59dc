"""Window operators: partial rows by frame in, final rows by window out, all as DataFrames."""

from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.segments import Segment, SegmentStatistics
from sparkjet.windows.sliding import SlidingWindows

__all__ = ["Accumulators", "Segment", "SegmentStatistics", "SlidingWindows"]
