"""Window ends: the times at which two queries can share the windows of an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.plan.plan import PlannedDeadLetters, PlannedOutput
from sparkjet.plan.window_join import WindowJoin
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.snapshots.record import Ends
from sparkjet.windows import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkjet.plan.plan import Plan, PlannedStage
    from sparkjet.plan.stage import Stage


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
    if any(_is_of_sessions(each.stage) for each in _up(stages[output.reads])):
        # A row that only one of the queries finds late may be what merges two sessions into one; a window over them
        # has the merged one on one side, and of the two perhaps one on the other.
        what = "sessions" if _is_of_sessions(stage) else "windows over sessions"
        return Ends(why=f"of {what}, which two queries may cut in different ways")
    assert isinstance(stage.window, Window)  # noqa: S101 - not of sessions
    if output.complete or output.early_period is not None:
        return Ends(why="of windows that are still open, too")
    grid = stage.window.grid.ends
    return Ends(grid.step, grid.offset, _closing(stages[output.reads]))


def _up(stage: PlannedStage) -> Iterator[PlannedStage]:
    """A stage and those that it reads, directly or not."""
    yield stage
    for feed in stage.feeds:
        if feed.parent is not None:
            yield from _up(feed.parent)


def _is_of_sessions(stage: Stage) -> bool:
    return isinstance(stage, WindowedAggregation | WindowJoin) and not isinstance(stage.window, Window)


def _closing(stage: PlannedStage) -> list[str]:
    """The stages that close the windows of a stage's results."""
    if not isinstance(stage.stage, WindowJoin):
        return [stage.name]
    return [name for feed in stage.feeds if feed.parent is not None for name in _closing(feed.parent)]
