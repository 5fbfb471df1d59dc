"""Progress of an epoch: what the query's ``lastProgress`` adds to Spark's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.engine.record import Record
    from sparkjet.engine.state import QueryState


@dataclass
class EpochProgress:
    """Numbers of one epoch; durations in seconds by step."""

    epoch: int = 0
    batch: int | None = None
    accepted: int = 0
    late: dict[str, int] = field(default_factory=dict)
    null_timestamps: dict[str, int] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)

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
        deltas = record.windows.deltas if record.windows is not None else []
        tracked = {substream.id: substream for substream in state.tracker.progress()}
        return {
            "batchId": self.batch,
            "watermark": _known(state.tracker.watermark),
            "substreams": {
                name: {
                    "watermark": _known(tracked[name].watermark) if name in tracked else None,
                    "idle": name in tracked and tracked[name].idle,
                    "holdsWatermark": name in tracked and tracked[name].holds,
                    "lateRows": state.late[name],
                    "nullTimestamps": state.null_timestamps[name],
                }
                for name in sorted(tracked.keys() | state.late.keys() | state.null_timestamps.keys())
            },
            "acceptedRows": self.accepted,
            "lateRows": {"epoch": sum(self.late.values()), "total": state.late.total()},
            "nullTimestamps": {"epoch": sum(self.null_timestamps.values()), "total": state.null_timestamps.total()},
            "epoch": {
                "number": self.epoch,
                "durationMs": {step: round(seconds * 1000) for step, seconds in self.durations.items()},
            },
            "snapshot": {"deltas": len(deltas), "entries": sum(delta.rows for delta in deltas)},
            "sinks": [{"name": prepared.sink, "transaction": prepared.handle} for prepared in record.transactions],
        }


def _known(time_or_min: int) -> int | None:
    return None if time_or_min == MIN else time_or_min
