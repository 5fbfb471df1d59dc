"""The pipeline: a query as expressions, from a batch of events to partial rows and from windows to results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.columns import ONLY_SUBSTREAM, SUBSTREAM, TIME, quoted
from sparkjet.time import SubstreamTracker, emit_by_frame
from sparkjet.windows import Accumulators, SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.aggregate import AggregateOperation
    from sparkjet.chain import Steps
    from sparkjet.time import PolicySettings, Throttle
    from sparkjet.windows.window import Window

FRAME = "_sparkjet_frame"
DROPPED = "_sparkjet_dropped"
"""Why a row was not accepted and of which substream it is, ``reason:substream``; null for accepted rows."""
LATE = "late"
NULL_TIMESTAMP = "null_timestamp"
_NO_KEY = "key0"


def _unchanged(frame: DataFrame) -> DataFrame:
    return frame


@dataclass(frozen=True)
class Watermark:
    """Settings of ``withWatermark``: how event time progresses in each substream."""

    event_time: str
    policy: PolicySettings
    by: tuple[str, ...] = ()
    substreams: tuple[str, ...] = ()
    idle_timeout: int | None = None
    throttle: Throttle | None = None

    @property
    def awaited(self) -> tuple[str, ...]:
        """Substreams to wait for from the start."""
        return self.substreams if self.by else (ONLY_SUBSTREAM,)


@dataclass(frozen=True)
class Key:
    """A grouping column: its name in the result, how it is computed, its type."""

    name: str
    column: Column
    type: DataType


@dataclass(frozen=True)
class Pipeline:
    """What a query computes; pure description, the state lives in the operator and the tracker it makes.

    Inside the engine keys are named ``key0…`` and results ``result0…``, so that no name a user chose can collide.
    """

    steps: Steps
    watermark: Watermark
    window: Window
    keys: tuple[Key, ...]
    order: tuple[str, ...]
    computes: tuple[str, ...]
    results: tuple[tuple[str, AggregateOperation], ...]
    finishing: Callable[[DataFrame], DataFrame] = _unchanged

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys inside the engine; a stream without keys has one constant key."""
        return tuple(f"key{i}" for i in range(len(self.keys))) or (_NO_KEY,)

    @cached_property
    def accumulators(self) -> Accumulators:
        """The fields of the partial rows with their types."""
        named = [(f"result{i}", operation) for i, (_, operation) in enumerate(self.results)]
        partials = self.steps.shape.groupBy().agg(*Accumulators.aggregations(named))
        return Accumulators(named, partials.schema)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must not change between two runs, because saved partial rows would no longer fit."""
        return {
            "event time": self.watermark.event_time,
            "substreams by": list(self.watermark.by),
            "keys": {key.name: key.type.simpleString() for key in self.keys},
            "aggregates": list(self.computes),
            "accumulators": self.accumulators.shape,
        }

    def tracker(self) -> SubstreamTracker:
        """A new watermark tracker; the default throttle moves by frames, as finer steps would close nothing."""
        grid = self.window.grid
        settings = self.watermark
        throttle = settings.throttle if settings.throttle is not None else emit_by_frame(grid.step, grid.offset)
        return SubstreamTracker(settings.policy, throttle, settings.idle_timeout)

    def operator(self, partitions: int) -> SlidingWindows:
        """A new window operator without state."""
        return SlidingWindows(self.window.grid, self.key_names, self.accumulators, partitions)

    def observe(self, batch: DataFrame, substreams: Sequence[str]) -> tuple[DataFrame, Observation]:
        """The batch with an observation of its highest event times, below the user's filters.

        Below, because a filter must not stall the watermark. Only maxima and sets are observed: a retried stage may
        report twice, which changes neither.
        """
        observation = Observation()
        metrics = [
            F.max(F.when(F.col(SUBSTREAM) == name, F.col(TIME))).alias(f"max{i}") for i, name in enumerate(substreams)
        ]
        unknown = ~F.col(SUBSTREAM).isin(*substreams) if substreams else F.lit(True)
        metrics.append(F.collect_set(F.when(unknown & F.col(TIME).isNotNull(), F.col(SUBSTREAM))).alias("new"))
        return batch.observe(observation, *metrics), observation

    def rows(self, batch: DataFrame, operator: SlidingWindows) -> DataFrame:
        """The rows of a batch after the user's transformations, with their frame and why they are dropped, if so."""
        frame = operator.frame_of(F.col(TIME))
        reason = F.when(F.col(TIME).isNull(), NULL_TIMESTAMP).when(operator.is_late(frame), LATE)
        dropped = F.concat_ws(":", reason, F.col(SUBSTREAM))
        return self.steps.apply(batch).withColumn(DROPPED, F.when(reason.isNotNull(), dropped))

    def partials(self, rows: DataFrame, operator: SlidingWindows) -> DataFrame:
        """Partial rows of the accepted rows, and one row per reason and substream of the dropped ones.

        One pass does both: the key, the frame and the columns of a dropped row are nulled, so that it is counted
        without being aggregated (a late row must not overflow a sum that it is not part of).
        """
        kept = F.col(DROPPED).isNull()
        keys = [key.column for key in self.keys] or [F.lit(0)]
        visible = [name for name in rows.columns if name != DROPPED]
        nulled = rows.select(
            *(F.when(kept, F.col(quoted(name))).alias(name) for name in visible),
            F.when(kept, operator.frame_of(F.col(TIME))).alias(FRAME),
            DROPPED,
        )
        named = [F.when(kept, key).alias(name) for name, key in zip(self.key_names, keys, strict=True)]
        named += [F.col(FRAME).alias("frame"), F.col(DROPPED).alias("dropped")]
        return nulled.groupBy(*named).agg(*Accumulators.aggregations(self.accumulators.results))

    def output(self, windows: DataFrame) -> DataFrame:
        """Result rows under the user's names, the window as a struct of two timestamps."""
        start, end = F.timestamp_micros("start").alias("start"), F.timestamp_micros("end").alias("end")
        grouped = {self.window.name: F.struct(start, end)}
        grouped |= {key.name: F.col(name) for key, name in zip(self.keys, self.key_names, strict=False)}
        results = [F.col(f"result{i}").alias(name) for i, (name, _) in enumerate(self.results)]
        return windows.select(*(grouped[name].alias(name) for name in self.order), *results)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        keys = [key.column for key in self.keys] or [F.lit(0)]
        named = [key.alias(name) for name, key in zip(self.key_names, keys, strict=True)]
        grouped = self.steps.shape.groupBy(*named).agg(*Accumulators.aggregations(self.accumulators.results))
        bounds = (F.lit(0).cast("long").alias(bound) for bound in ("start", "end"))
        return self.output(grouped.select(*self.key_names, *bounds, *self.accumulators.finish()))
