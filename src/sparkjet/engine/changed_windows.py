"""Changed windows: facts about windows whose length, slide or offset has changed since the newest record."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sparkjet.errors import RecoveryError
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.snapshots.record import SlidingSettings
from sparkjet.time import WindowGrid
from sparkjet.windows import Window

if TYPE_CHECKING:
    from sparkjet.plan.aggregation import Aggregation
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Record, SavedStage


def grid_of(settings: SlidingSettings) -> WindowGrid:
    """The grid of saved settings."""
    return WindowGrid(settings.size, settings.step, settings.offset)


def whole_from(window: WindowGrid, before: WindowGrid, saved: SavedStage) -> int | None:
    """Start of the first window that can be computed from the saved state of another window; None if every one can."""
    highest = max((delta.high for delta in saved.deltas), default=None)
    known = saved.whole_from, window.whole_from(before, saved.closed, highest)
    return max((each for each in known if each is not None), default=None)


def shown(time: int) -> str:
    """A time in microseconds, for messages.

    >>> shown(1_767_225_600_000_000), shown(2**63 - 1)
    ('2026-01-01 00:00:00 UTC', 'the end of all times')
    """
    try:
        return f"{datetime(1970, 1, 1) + timedelta(microseconds=time)} UTC"  # noqa: DTZ001 - only printed
    except OverflowError:
        # For example, the watermark after the windows were closed at the end of the input.
        return "the end of all times" if time > 0 else "the beginning of all times"


def changed_shape(stage: Aggregation, saved: SavedStage | None) -> tuple[str, str, str] | None:
    """Shape of a stage's windows in a record and now, and what is withheld, as text; None if it has not changed."""
    if saved is None or not isinstance(saved.settings, SlidingSettings):
        return None
    if not (isinstance(stage, WindowedAggregation) and isinstance(stage.window, Window)):
        return None
    window, before = stage.window.grid, grid_of(saved.settings)
    if window == before:
        return None
    start = whole_from(window, before, saved)
    is_held = start is not None and (saved.closed is None or window.last_partial(start) > saved.closed)
    note = f"windows that start before {shown(start)} are withheld" if start is not None and is_held else ""
    return _described(before), _described(window), note


def check_changed_windows(plan: Plan, record: Record) -> None:
    """Refuse a window that another stage reads and that would lack windows, as that stage's results would lack them."""
    read = {feed.parent.name for stage in plan.stages for feed in stage.feeds if feed.parent is not None}
    for stage in plan.stages:
        saved = record.stages.get(stage.name)
        if saved is None or stage.name not in read or not isinstance(saved.settings, SlidingSettings):
            continue
        if not (isinstance(stage.stage, WindowedAggregation) and isinstance(stage.stage.window, Window)):
            continue
        window, before = stage.stage.window.grid, grid_of(saved.settings)
        start = None if window == before else whole_from(window, before, saved)
        if start is not None and (saved.closed is None or window.last_partial(start) > saved.closed):
            message = (
                f"The window of {stage.name} has changed since its last run, from {_described(before)} to "
                f"{_described(window)}. Of windows that start before {shown(start)} some rows are no longer there, and "
                "what is computed from the results would be too low. Change it back, or start from scratch with "
                "another checkpointLocation."
            )
            raise RecoveryError(message)


def _described(window: WindowGrid) -> str:
    return f"{window.size / 1_000_000:g} every {window.step / 1_000_000:g} seconds"
