"""The live state of a query: windows, watermarks and counters, restored from a record and saved into the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.aggregation_state import StageState

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
        stages: State of each stage by its name.
        early_at: When each output last had early rows.
    """

    tracker: InputTracker
    stages: Mapping[str, StageState]
    early_at: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, partitions: int) -> QueryState:
        """The state of a query that has seen nothing."""
        stages = {name: StageState(stage.operator(partitions)) for name, stage in plan.stages.items()}
        return QueryState(plan.tracker(), stages)

    @property
    def late(self) -> Counter[str]:
        """Late rows by substream since the query's first start, over all windows."""
        return sum((stage.late for stage in self.stages.values()), Counter())

    @property
    def null_timestamps(self) -> Counter[str]:
        """Rows without event time by substream since the query's first start, over all windows."""
        return sum((stage.null_timestamps for stage in self.stages.values()), Counter())

    def saved_into(self, record: Record) -> Record:
        """The record with this state in it."""
        return msgspec.structs.replace(
            record,
            watermarks=self.tracker.snapshot(),
            stages={name: stage.snapshot() for name, stage in self.stages.items()},
            early_at=dict(self.early_at),
        )

    def restore(self, record: Record, session: SparkSession, store: SnapshotStore, name: str) -> None:
        """Become what the record says, forgetting everything since.

        Args:
            record: The newest record.
            session: The query's session.
            store: Where the deltas are.
            name: What deltas are called that have to be written anew, because a window has changed.

        Raises:
            RecoveryError: If entries are missing.
        """
        self.tracker.restore(record.watermarks)
        self.early_at = dict(record.early_at)
        for stage, state in self.stages.items():
            state.restore(record.stages.get(stage), session, store, f"{name}-{stage}")

    def early_due(self, plan: Plan, now: int, *, batch: bool) -> list[str]:
        """Names of the outputs that early rows are due for."""
        due = []
        for output in plan.outputs:
            period = output.early_period
            if period is None:
                continue
            # The earlier of the two: a clock that was ahead may have been set back since.
            self.early_at[output.name] = min(self.early_at.get(output.name, now), now)
            since = now - self.early_at[output.name]
            stage = next(state for name, state in self.stages.items() if plan.stages[name] is output.stage)
            if stage.is_open and (batch if period == 0 else since >= period):
                due.append(output.name)
        return due

    def take_obsolete(self) -> set[str]:
        """Names of deltas that a restore has read or written and that a record may let go of, once."""
        names = {name for stage in self.stages.values() for name in stage.obsolete}
        for stage in self.stages.values():
            stage.obsolete = set()
        return names

    def release(self) -> None:
        """Free state that nothing reads any more."""
        for stage in self.stages.values():
            stage.operator.release()
