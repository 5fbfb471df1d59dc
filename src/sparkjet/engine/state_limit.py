"""The bound on state: how much each operator may hold, and what happens when it would hold more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.engine.changed_windows import shown
from sparkjet.errors import AnalysisError, StateLimitError
from sparkjet.options import IS_SHED, MAX_STATE_BYTES, MAX_STATE_ENTRIES, ON_STATE_LIMIT, PUBLISH_AFTER
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.query_log import logger
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.engine.stage_state import StageState
    from sparkjet.plan.plan import Plan, PlannedStage
    from sparkjet.time import InputTracker
    from sparkjet.windows import SessionWindows, SlidingWindows

WARNS = 0.8
"""The share of a limit above which there is a warning."""
_GROWN = 1.25
"""How much a state grows until it is compacted only to judge whether a warning is due."""
_BUCKETS = 1000
"""Number of steps of event time in each search for the windows that must close."""
_SPARED = 100
"""Highest share of the entries in the last step: that many may be closed needlessly."""
_KEYS = 3
"""The number of keys that an error names."""
_SHOWN = 60
"""The most characters of a key in an error."""
_KINDS = {
    "WindowedAggregation": "windows",
    "RollingAggregation": "an aggregate without windows",
    "DroppedDuplicates": "dropDuplicates",
    "IntervalJoinStage": "a join of two streams",
    "WindowJoin": "a join of results",
    "StatefulFunction": "a function with state",
}


@dataclass(frozen=True)
class StateLimit:
    """The limit of each operator of a query, and what is done when one would exceed it; on the driver.

    Attributes:
        entries: The option ``maxStateEntries``; None for any number.
        size: The option ``maxStateBytes``; None for any size.
        sheds: Whether the oldest windows are closed early (``onStateLimit="shed"``), or the query ends.
    """

    entries: int | None = None
    size: int | None = None
    sheds: bool = False

    def check(self, plan: Plan, *, switches: bool = False) -> None:
        """Refuse to shed where no rule would be honest; ``switches`` says that ``publishAfter`` is given.

        Raises:
            AnalysisError: There is none, or no limit.
        """
        if not self.sheds:
            marked = [output.name for output in plan.of_stages if output.marks_shed]
            if marked:
                message = (
                    f'option: {IS_SHED.name} marks windows that onStateLimit="shed" has closed early. '
                    f"Set {ON_STATE_LIMIT.name}, or leave {IS_SHED.name} out."
                )
                raise AnalysisError(message)
            return
        if self.entries is None and self.size is None:
            message = (
                f'option: {ON_STATE_LIMIT.name}="shed" needs a limit: set {MAX_STATE_ENTRIES.name} or '
                f"{MAX_STATE_BYTES.name}, or leave it out."
            )
            raise AnalysisError(message)
        if switches:
            message = (
                f'option: {ON_STATE_LIMIT.name}="shed" and {PUBLISH_AFTER.name}: windows that close early before it is '
                'decided which query publishes them would be lost. Set onStateLimit to "fail" until the switch is over.'
            )
            raise AnalysisError(message)
        for stage in plan.stages:
            why = None
            if not isinstance(stage.stage, WindowedAggregation):
                why = f"it is {_kind(stage)}, of which nothing can be closed early without wrong results"
            elif any(feed.parent is not None for feed in stage.feeds):
                why = "it reads the results of another operator, and what that one closes early would be missing here"
            if why is not None:
                message = (
                    f'option: {ON_STATE_LIMIT.name}="shed" is for windows over the rows of the input; {stage.name} '
                    f'cannot shed: {why}. Set {ON_STATE_LIMIT.name} to "fail", or leave it out.'
                )
                raise AnalysisError(message)

    def keep(self, stage: PlannedStage, state: StageState, tracker: InputTracker) -> DataFrame | None:
        """Keep an operator that has advanced within the limit; returns the rows of what is closed early for that.

        Raises:
            StateLimitError: It would hold more. Nothing of the epoch is decided.
        """
        if self.entries is None and self.size is None:
            return None
        # Before anything is merged: executors have not told yet what they hold of that.
        each = 0.0 if self.size is None else state.entry_size
        used = self._used(state, each)
        if used > 1 or (used > WARNS and state.entries > _GROWN * state.compacted):
            # What is replaced or has expired does not count, wherever segments happen to be merged.
            used = self._compacted(state, each)
        rows = None
        if used > 1 and not self.sheds:
            raise StateLimitError(self._message(stage, state, tracker, each))
        if used > 1:
            rows = self._shed(stage, state, each)
            used = self._compacted(state, each)
        if used > WARNS and not state.warned:
            logger.warning(
                "%s holds %s, more than %d %% of what it may. %s",
                stage.name,
                self._measured(state, each),
                WARNS * 100,
                _holding(tracker),
            )
        state.warned, state.used = used > WARNS, used
        return rows

    def _used(self, state: StageState, each: float) -> float:
        shares = [] if self.entries is None else [state.entries / self.entries]
        return max([*shares, *([] if self.size is None else [state.entries * each / self.size])])

    def _compacted(self, state: StageState, each: float) -> float:
        state.operator.compact()
        state.compacted = state.entries
        return self._used(state, each)

    def _shed(self, stage: PlannedStage, state: StageState, each: float) -> DataFrame | None:
        operator = state.windows
        assert operator is not None  # noqa: S101 - others are refused
        fitting = state.entries if self.entries is None else self.entries
        if self.size is not None:
            fitting = min(fitting, int(self.size / max(each, 1)))
        until, before = _until(operator, state.entries, fitting), operator.shed_windows
        rows = operator.shed(until)
        logger.warning(
            "%s held more than it may and was shed: %d windows that end up to %s are closed early, and later rows of "
            "theirs are late",
            stage.name,
            operator.shed_windows - before,
            shown(until),
        )
        return rows

    def _measured(self, state: StageState, each: float) -> str:
        found = []
        if self.entries is not None:
            found.append(f"{state.entries:,} entries ({MAX_STATE_ENTRIES.name} is {self.entries:,})")
        if self.size is not None:
            found.append(
                f"{int(state.entries * each):,} bytes in the executors ({MAX_STATE_BYTES.name} is {self.size:,})"
            )
        return " and ".join(found)

    def _message(self, stage: PlannedStage, state: StageState, tracker: InputTracker, each: float) -> str:
        over = [MAX_STATE_ENTRIES.name] if self.entries is not None and state.entries > self.entries else []
        over += [MAX_STATE_BYTES.name] if self.size is not None and state.entries * each > self.size else []
        shed = (
            f", or, if all operators are windows over the input's rows, close the oldest early with option("
            f'"{ON_STATE_LIMIT.name}", "shed")'
        )
        return (
            f"{' and '.join(over)}: {stage.name}, {_kind(stage)}, would hold {self._measured(state, each)}. "
            f"{_largest(stage, state)}{_holding(tracker)}. The epoch is not decided and nothing is lost: start again "
            f"with a higher {' and '.join(over)} and the executors for it, and it goes on from here"
            f"{shed if state.windows is not None else ''}; or find out why the watermark waits."
        )


def _until(operator: SlidingWindows | SessionWindows, entries: int, fitting: int) -> int:
    """The lowest watermark, nearly, by which no more entries are left than fit; of a state that is compacted.

    It is the time at which an entry leaves: one row whose clock was wrong by years must not close the years before it.
    """
    statistics = [segment.statistics for segment in operator.segments]
    low, high = min(each.low for each in statistics), max(each.high for each in statistics)
    rows = reduce(DataFrame.unionByName, [segment.partials for segment in operator.segments])
    leaving = rows.select(F.expr(operator.leaves).alias("leaves"))
    most = entries // _SPARED
    while True:
        width = max(1, (high - low) // _BUCKETS)
        step = F.expr(f"leaves div {width}L")
        counts = F.min("leaves"), F.max("leaves"), F.count(F.lit(1))
        for _, low, high, count in sorted(map(tuple, leaving.groupBy(step).agg(*counts).collect())):  # noqa: B007
            if entries - count <= fitting:
                break
            entries -= count
        if low == high or count <= most:
            return int(high)
        leaving = leaving.where(f"leaves BETWEEN {low}L AND {high}L")


def _largest(stage: PlannedStage, state: StageState) -> str:
    """The keys with most entries, by the users' names; empty where there are none."""
    names = [field["name"] for field in stage.stage.shown.keys]
    segments = [segment.partials for segment in state.operator.segments]
    inner = [f"key{number}" for number in range(len(names))]
    if not names or any(name not in rows.columns for rows in segments for name in inner):
        return ""
    rows = reduce(DataFrame.unionByName, [rows.select(*inner) for rows in segments])
    largest = rows.groupBy(*inner).count().orderBy(F.desc("count"), *inner).limit(_KEYS)
    # As text: Python has no year 10,000, and would end with another error.
    found = largest.select(*(F.left(F.col(name).cast("string"), F.lit(_SHOWN + 1)) for name in inner), "count")
    listed = (
        f"({', '.join(f'{name}={_shown(value)}' for name, value in zip(names, row, strict=False))}): {row[-1]:,}"
        for row in found.collect()
    )
    return f"Keys with most entries: {'; '.join(listed)}. "


def _shown(value: str | None) -> str:
    return repr(value if value is None or len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def _holding(tracker: InputTracker) -> str:
    """Which substreams the watermark waits for."""
    if tracker.watermark == MIN:
        return "There is no watermark yet" if tracker.progress() else "There is no watermark"
    held = sorted(each.id for each in tracker.progress() if each.holds)
    others = "" if len(held) <= _KEYS else f" and {len(held) - _KEYS} more"
    by = f", held by {', '.join(map(repr, held[:_KEYS]))}{others}" if held else ""
    return f"The watermark is {shown(tracker.watermark)}{by}"


def _kind(stage: PlannedStage) -> str:
    """The kind of a stage, for a message."""
    named = [field["name"] for field in stage.stage.shown.keys]
    kind = _KINDS.get(type(stage.stage).__name__, "an operator")
    return f"{kind} by {', '.join(named)}" if named else kind
