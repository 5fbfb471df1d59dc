"""Event time without Spark: frames, watermark policies, throttling, substreams and coalescing.

Nothing here reads a clock or starts anything: clock readings are arguments, all times are integers in one unit.
"""

from sparkjet.time.coalescing import IDLE, Signal, WatermarkCoalescer, WatermarkOrderError
from sparkjet.time.durations import Duration, parse_duration
from sparkjet.time.frames import MAX, MIN, FrameGrid, WindowGrid, clamp
from sparkjet.time.frontier import Frontier
from sparkjet.time.history import TimestampHistory
from sparkjet.time.inputs import InputsState, InputTracker
from sparkjet.time.policies import (
    Carried,
    LimitingLag,
    LimitingLagAndDelay,
    LimitingLagAndLull,
    LimitingRealTimeLag,
    LimitingTimestampAndWallClockLag,
    PolicySettings,
    WatermarkPolicy,
    carried,
    delay_of,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
    uses_clock,
    with_fixed_lag,
)
from sparkjet.time.processing_time import TOLERANCE, ProcessingTime
from sparkjet.time.states import Json
from sparkjet.time.substream import SubstreamProgress
from sparkjet.time.substreams import SubstreamTracker
from sparkjet.time.throttling import (
    EmitByFrame,
    EmitByMinStep,
    NoThrottling,
    Throttle,
    emit_by_frame,
    emit_by_min_step,
    no_throttling,
)
from sparkjet.time.watermark_emitter import Advance
from sparkjet.time.writer_progress import Heard, WriterProgress, least_carried

__all__ = [
    "IDLE",
    "MAX",
    "MIN",
    "TOLERANCE",
    "Advance",
    "Carried",
    "Duration",
    "EmitByFrame",
    "EmitByMinStep",
    "FrameGrid",
    "Frontier",
    "Heard",
    "InputTracker",
    "InputsState",
    "Json",
    "LimitingLag",
    "LimitingLagAndDelay",
    "LimitingLagAndLull",
    "LimitingRealTimeLag",
    "LimitingTimestampAndWallClockLag",
    "NoThrottling",
    "PolicySettings",
    "ProcessingTime",
    "Signal",
    "SubstreamProgress",
    "SubstreamTracker",
    "Throttle",
    "TimestampHistory",
    "WatermarkCoalescer",
    "WatermarkOrderError",
    "WatermarkPolicy",
    "WindowGrid",
    "WriterProgress",
    "carried",
    "clamp",
    "delay_of",
    "emit_by_frame",
    "emit_by_min_step",
    "least_carried",
    "limiting_lag",
    "limiting_lag_and_delay",
    "limiting_lag_and_lull",
    "limiting_real_time_lag",
    "limiting_timestamp_and_wall_clock_lag",
    "no_throttling",
    "parse_duration",
    "uses_clock",
    "with_fixed_lag",
]
