"""Progress of an epoch: what the query's ``lastProgress`` adds to Spark's."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.engine.partial_aggregation import PartialAggregation
    from sparkjet.engine.state import QueryState
    from sparkjet.snapshots.record import Record

logger = logging.getLogger("sparkjet")


@dataclass
class EpochProgress:
    """Numbers of one epoch; durations in seconds by step."""

    epoch: int = 0
    batch: int | None = None
    accepted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    durations: dict[str, float] = field(default_factory=dict)

    def count(self, outcomes: Iterable[PartialAggregation]) -> None:
        """Take note of what partial aggregation accepted and dropped, and log what was dropped."""
        for outcome in outcomes:
            self.accepted += outcome.accepted
            self.late += outcome.late
            self.null_timestamps += outcome.null_timestamps
        if self.late or self.null_timestamps:
            logger.warning(
                "epoch %d dropped late rows %s and rows without event time %s",
                self.epoch,
                dict(self.late),
                dict(self.null_timestamps),
            )

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.durations[step] = self.durations.get(step, 0.0) + time.perf_counter() - started

    def describe(self, record: Record, state: QueryState) -> dict[str, Any]:
        """The keys that we add to Spark's progress; times are microseconds since the epoch, null before the first."""
        deltas = [delta for aggregation in record.aggregations.values() for delta in aggregation.deltas]
        tracked = {substream.id: substream for substream in state.tracker.progress()}
        late, null_timestamps = state.late, state.null_timestamps
        return {
            "batchId": self.batch,
            "watermark": _known(state.tracker.watermark),
            "substreams": {
                name: {
                    "watermark": _known(tracked[name].watermark) if name in tracked else None,
                    "idle": name in tracked and tracked[name].idle,
                    "holdsWatermark": name in tracked and tracked[name].holds,
                    "caughtUp": tracked[name].caught_up if name in tracked else None,
                    "lateRows": late[name],
                    "nullTimestamps": null_timestamps[name],
                }
                for name in sorted(tracked.keys() | late.keys() | null_timestamps.keys())
            },
            "acceptedRows": self.accepted,
            "lateRows": {"epoch": self.late.total(), "total": late.total()},
            "nullTimestamps": {"epoch": self.null_timestamps.total(), "total": null_timestamps.total()},
            "epoch": {
                "number": self.epoch,
                "durationMs": {step: round(seconds * 1000) for step, seconds in self.durations.items()},
            },
            "snapshot": {"deltas": len(deltas), "entries": sum(delta.rows for delta in deltas)},
            "sinks": [{"name": prepared.sink, "transaction": prepared.handle} for prepared in record.transactions],
        }


def merged(sparks: Iterable[dict[str, Any]], ours: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spark's progress of each batch with ours in it; ours alone where Spark ran no batch."""
    by_batch = {entry["batchId"]: entry for entry in sparks}
    return [{**by_batch.get(entry["batchId"], {}), **entry} for entry in ours]


def _known(time_or_min: int) -> int | None:
    return None if time_or_min == MIN else time_or_min
