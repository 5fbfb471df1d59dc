"""Events with integer times, and the stream driver that is fed with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkjet.sinks.protocol import Guarantee
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.engine.phases import PhaseListener
    from sparkjet.sinks.protocol import Sink
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.testing.driven_query import Query

SCHEMA = "key string, value long, ts timestamp, substream string"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Event:
    """A row of an input: its substream, key, time in microseconds and value."""

    substream: str
    key: str | None
    time: int
    value: int = 1

    @property
    def row(self) -> tuple[Any, ...]:
        """The event as a row of ``SCHEMA``."""
        return self.key, self.value, _EPOCH + timedelta(microseconds=self.time), self.substream


class EventDriver(StreamDriver):
    """A stream driver whose inputs have events.

    Args:
        spark: The session.
        home: The query's home.
        query: As of :class:`StreamDriver`.
        listener: As ``onEpochPhase``.
        guarantee: The query's.
        overlap: As ``overlapEpochs``.
        inputs: Number of the query's inputs.
        sinks: As of :class:`StreamDriver`.
        store: As of :class:`StreamDriver`.
        output_mode: As ``outputMode``.
    """

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        query: Query,
        listener: PhaseListener | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        overlap: bool = False,
        inputs: int = 1,
        sinks: Sequence[Sink] = (),
        store: SnapshotStore | None = None,
        output_mode: str = "append",
    ) -> None:
        super().__init__(
            spark,
            query,
            [SCHEMA] * inputs,
            sinks=sinks,
            directory=home,
            store=store,
            onEpochPhase=listener,
            processingGuarantee=guarantee.value,
            overlapEpochs=overlap,
            outputMode=output_mode,
        )

    def feed(self, *events: Sequence[Event]) -> None:
        """Run an epoch over the events of each input, and over what no record has of those before."""
        self.process(*([event.row for event in each] for each in events))

    @property
    def reached(self) -> int:
        """The query's watermark in microseconds."""
        return self.engine.state.tracker.watermark
