"""The live state of a query: windows, watermarks and counters, restored from a record and saved into the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.aggregation_state import AggregationState
from sparkjet.engine.changes import Changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import Record
    from sparkjet.time import InputTracker


@dataclass
class QueryState:
    """What an epoch reads and changes.

    Attributes:
        tracker: The watermarks of all inputs.
        aggregations: State of each aggregation by its name.
        early_at: When each output last had early rows.
        changes: What each output in update mode has not been sent.
    """

    tracker: InputTracker
    aggregations: Mapping[str, AggregationState]
    early_at: dict[str, int] = field(default_factory=dict)
    changes: Mapping[str, Changes] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, partitions: int) -> QueryState:
        """The state of a new query."""
        states = {each.name: AggregationState(each.operator(partitions)) for each in plan.aggregations}
        updated = (output for output in plan.of_aggregations if output.early_period is not None)
        changes = {output.name: Changes(output.aggregation) for output in updated}
        return QueryState(plan.tracker(), states, changes=changes)

    @property
    def late(self) -> Counter[str]:
        """Late rows by substream since the query's first start, over all windows."""
        return sum((aggregation.late for aggregation in self.aggregations.values()), Counter())

    @property
    def null_timestamps(self) -> Counter[str]:
        """Rows without event time by substream since the query's first start, over all windows."""
        return sum((aggregation.null_timestamps for aggregation in self.aggregations.values()), Counter())

    def saved_into(self, record: Record) -> Record:
        """The record with this state in it."""
        return msgspec.structs.replace(
            record,
            watermarks=self.tracker.snapshot(),
            aggregations={name: aggregation.snapshot() for name, aggregation in self.aggregations.items()},
            early_at=dict(self.early_at),
        )

    def restore(self, record: Record, session: SparkSession, store: SnapshotStore, name: str) -> None:
        """Become what the record says, forgetting everything since.

        Args:
            record: The newest record.
            session: The query's session.
            store: Where the deltas are.
            name: What deltas are named that are written anew, because a window has changed.

        Raises:
            RecoveryError: If entries are missing.
        """
        self.tracker.restore(record.watermarks)
        self.early_at = dict(record.early_at)
        for changes in self.changes.values():
            changes.forget()
        for aggregation, state in self.aggregations.items():
            state.restore(record.aggregations.get(aggregation), session, store, f"{name}-{aggregation}")

    def early_due(self, plan: Plan, now: int, arrived: Collection[str] = ()) -> list[str]:
        """Names of the outputs that early rows are due for, when rows have arrived at these aggregations."""
        due = []
        for output in plan.of_aggregations:
            period = output.early_period
            if period is None:
                continue
            # The earlier of the two: a clock that was ahead may have been set back since.
            self.early_at[output.name] = min(self.early_at.get(output.name, now), now)
            since = now - self.early_at[output.name]
            changed = output.aggregation.name in arrived or (period > 0 and self.changes[output.name].waiting)
            if changed and since >= period and self.aggregations[output.aggregation.name].is_open:
                due.append(output.name)
        return due

    def take_obsolete(self) -> set[str]:
        """Names of deltas that a restore has read or written and that the next record may drop; each is given once."""
        names = {name for aggregation in self.aggregations.values() for name in aggregation.obsolete}
        for aggregation in self.aggregations.values():
            aggregation.obsolete = set()
        return names

    def release(self) -> None:
        """Free state that nothing reads any more."""
        for aggregation in self.aggregations.values():
            aggregation.operator.release()
