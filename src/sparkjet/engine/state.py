"""The live state of a query: stages, watermarks and counters, restored from a record and saved into the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.changes import Changes
from sparkjet.engine.stage_state import StageState
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.state import TimedOperator
from sparkjet.windows import SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.engine.changed_query import Upgrade
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import Record
    from sparkjet.time import InputTracker


@dataclass
class QueryState:
    """The state that an epoch reads and changes.

    Attributes:
        tracker: The watermarks of all inputs.
        stages: State of each stage that has any, by the stage's name.
        partitions: Number of partitions of that state.
        early_at: When each output last had early rows.
        changes: What each output in update mode has not been sent.
        upgrade: How to continue from a record of the query before it was changed, None if it is the same.
    """

    tracker: InputTracker
    stages: Mapping[str, StageState]
    partitions: int
    early_at: dict[str, int] = field(default_factory=dict)
    changes: Mapping[str, Changes] = field(default_factory=dict)
    upgrade: Upgrade | None = None

    @staticmethod
    def of(plan: Plan, partitions: int, upgrade: Upgrade | None = None) -> QueryState:
        """The state of a new query."""
        operators = {each.name: each.stage.operator(partitions) for each in plan.stages}
        states = {
            each.name: StageState(operator, partitions, lags=plan.lags_of(each))
            for each, operator in ((each, operators[each.name]) for each in plan.stages)
            if operator is not None
        }
        updated = (output for output in plan.of_stages if output.early_period is not None)
        changes = {
            output.name: Changes(output.stage) for output in updated if isinstance(output.stage, WindowedAggregation)
        }
        return QueryState(plan.tracker(), states, partitions, changes=changes, upgrade=upgrade)

    @property
    def late(self) -> Counter[str]:
        """Late rows by substream since the query's first start, over all stages."""
        return sum((stage.late for stage in self.stages.values()), Counter())

    @property
    def null_timestamps(self) -> Counter[str]:
        """Rows without event time by substream since the query's first start, over all stages."""
        return sum((stage.null_timestamps for stage in self.stages.values()), Counter())

    @property
    def withheld(self) -> int:
        """Windows that were withheld since the query's first start, over all stages."""
        operators = [stage.operator for stage in self.stages.values()]
        return sum(each.withheld for each in operators if isinstance(each, SlidingWindows | SessionWindows))

    def saved_into(self, record: Record) -> Record:
        """The record with this state in it."""
        if self.upgrade is not None:
            of_it = {"unsaid": self.upgrade.unsaid, "shown": dict(self.upgrade.shown)}
            record = msgspec.structs.replace(record, fingerprint=self.upgrade.now, **of_it)
        return msgspec.structs.replace(
            record,
            watermarks=self.tracker.snapshot(),
            stages={name: stage.snapshot() for name, stage in self.stages.items()},
            early_at=dict(self.early_at),
        )

    @property
    def has_lost(self) -> bool:
        """Whether something that the newest record names is on no executor."""
        return any(stage.has_lost for stage in self.stages.values())

    def restore(
        self,
        record: Record,
        session: SparkSession,
        store: SnapshotStore,
        name: str,
        *,
        whole: bool = True,
        loaded: Callable[[], None] = lambda: None,
    ) -> tuple[int, int]:
        """Replace the state with that of the record, dropping everything since."""
        self.tracker.restore(record.watermarks)
        self.early_at = dict(record.early_at)
        for changes in self.changes.values():
            changes.forget()
        read = kept = 0
        # Records of this run have today's; a takeover leaves everything as it was, so that it can still be undone.
        is_old = self.upgrade is not None and record.fingerprint == self.upgrade.before
        upgrades = self.upgrade.stages if self.upgrade is not None and is_old else {}
        for stage, state in self.stages.items():
            if whole:
                state.recorded = {}
            saved, upgrade = record.stages.get(stage), upgrades.get(stage)
            loading = state.restore(saved, session, store, f"{name}-{stage}", loaded, upgrade)
            read, kept = read + loading.read, kept + loading.kept
        return read, kept

    def early_due(self, plan: Plan, now: int, arrived: Collection[str] = ()) -> list[str]:
        """Names of the outputs for which early rows are due, when rows have arrived at these stages."""
        due = []
        for output in plan.of_stages:
            period = output.early_period
            if period is None:
                continue
            # The earlier of the two: a clock that was ahead may have been set back since.
            self.early_at[output.name] = min(self.early_at.get(output.name, now), now)
            since = now - self.early_at[output.name]
            changed = output.reads in arrived or (period > 0 and self.changes[output.name].waiting)
            if changed and since >= period and self.stages[output.reads].is_open:
                due.append(output.name)
        return due

    def is_due(self, now: int) -> bool:
        """Whether an epoch is due because of the clock, for a stage's timers."""
        operators = [state.operator for state in self.stages.values()]
        return any(isinstance(each, TimedOperator) and each.is_due(now) for each in operators)

    def take_obsolete(self) -> set[str]:
        """Names of deltas that a restore has read or written and that the next record may drop; returned once each."""
        names = {name for stage in self.stages.values() for name in stage.obsolete}
        for stage in self.stages.values():
            stage.obsolete = set()
        return names

    def close(self) -> None:
        """Free all state; counters and watermarks can still be read."""
        for changes in self.changes.values():
            changes.forget()
        for stage in self.stages.values():
            stage.close()

    def release(self) -> None:
        """Free state that nothing reads."""
        for stage in self.stages.values():
            stage.operator.release()
