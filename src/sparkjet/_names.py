"""The public names of ``import sparkjet``, imported when the first of them is used."""

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.python_aggregate import python_aggregate
from sparkjet.api.backfill import backfill, written
from sparkjet.api.diff import Diff, diff
from sparkjet.api.erase import Erased, erase
from sparkjet.api.fork import Fork, Replayed, fork
from sparkjet.api.query import StreamingQuery
from sparkjet.api.read_state import read_state
from sparkjet.api.sources import register_sources
from sparkjet.api.start import replay_dead_letters, start
from sparkjet.api.stream import Stream, stream
from sparkjet.api.switch import Switch, switch
from sparkjet.clock import Clock, ManualClock, SystemClock
from sparkjet.engine.erasing import ErasedPlace
from sparkjet.engine.held_tables import read_once
from sparkjet.engine.phases import EpochPhase
from sparkjet.errors import (
    AnalysisError,
    ChangedQueryError,
    CopiedHomeError,
    ExpectationError,
    FailuresError,
    FencedError,
    LostTransactionError,
    RecoveryError,
    RefusedRowsError,
    SinkError,
    SourceError,
    SparkjetError,
    StateLimitError,
    StorageError,
    UnsettledError,
)
from sparkjet.plan.static_tables import StaticTable, read_every_epoch
from sparkjet.sinks.foreach_batch import EpochInfo
from sparkjet.sinks.read_files import read_files
from sparkjet.time import (
    PolicySettings,
    Throttle,
    WatermarkPolicy,
    carried,
    emit_by_frame,
    emit_by_min_step,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
    no_throttling,
    with_fixed_lag,
)
from sparkjet.tools.completeness import Completeness, complete_until
from sparkjet.windows import session_window, window

__all__ = [
    "Aggregate",
    "AggregateOperation",
    "AnalysisError",
    "ChangedQueryError",
    "Clock",
    "Completeness",
    "CopiedHomeError",
    "Diff",
    "EpochInfo",
    "EpochPhase",
    "Erased",
    "ErasedPlace",
    "ExpectationError",
    "FailuresError",
    "FencedError",
    "Fork",
    "LostTransactionError",
    "ManualClock",
    "PolicySettings",
    "RecoveryError",
    "RefusedRowsError",
    "Replayed",
    "SinkError",
    "SourceError",
    "SparkjetError",
    "StateLimitError",
    "StaticTable",
    "StorageError",
    "Stream",
    "StreamingQuery",
    "Switch",
    "SystemClock",
    "Throttle",
    "UnsettledError",
    "WatermarkPolicy",
    "backfill",
    "carried",
    "complete_until",
    "diff",
    "emit_by_frame",
    "emit_by_min_step",
    "erase",
    "fork",
    "limiting_lag",
    "limiting_lag_and_delay",
    "limiting_lag_and_lull",
    "limiting_real_time_lag",
    "limiting_timestamp_and_wall_clock_lag",
    "no_throttling",
    "python_aggregate",
    "read_every_epoch",
    "read_files",
    "read_once",
    "read_state",
    "register_sources",
    "replay_dead_letters",
    "session_window",
    "start",
    "stream",
    "switch",
    "window",
    "with_fixed_lag",
    "written",
]
