"""Window ends: the times at which two queries can share the windows of an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.plan.plan import PlannedDeadLetters, PlannedOutput
from sparkjet.plan.window_join import WindowJoin
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.snapshots.record import Ends
from sparkjet.windows import Window

if TYPE_CHECKING:
    from sparkjet.plan.plan import Plan, PlannedStage


def window_ends(plan: Plan) -> dict[str, Ends]:
    """The windows of each output of a plan by their ends, in the form of records."""
    stages = {stage.name: stage for stage in plan.stages}
    return {each.name: _ends(each, stages) for each in plan.outputs if isinstance(each, PlannedOutput)} | {
        each.name: Ends(why="of rows that fail" if isinstance(each, PlannedDeadLetters) else "of rows without a window")
        for each in plan.outputs
        if not isinstance(each, PlannedOutput)
    }


def _ends(output: PlannedOutput, stages: dict[str, PlannedStage]) -> Ends:
    stage = output.stage
    if not isinstance(stage, WindowedAggregation | WindowJoin):
        return Ends(why="of rows without a window")
    if not isinstance(stage.window, Window):
        # A row that only one of the queries finds late may be what merges two sessions into one.
        return Ends(why="of sessions, which two queries may cut in different ways")
    if output.complete or output.early_period is not None:
        return Ends(why="of windows that are still open, too")
    grid = stage.window.grid.ends
    return Ends(grid.step, grid.offset, _closing(stages[output.reads]))


def _closing(stage: PlannedStage) -> list[str]:
    """The stages that close the windows of a stage's results."""
    if not isinstance(stage.stage, WindowJoin):
        return [stage.name]
    return [name for feed in stage.feeds if feed.parent is not None for name in _closing(feed.parent)]
