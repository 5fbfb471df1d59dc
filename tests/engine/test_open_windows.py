"""How many windows are open, by the deltas of a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.engine.progress import open_windows
from sparkjet.snapshots.record import SavedStage, SessionSettings, SlidingSettings
from sparkjet.snapshots.store import Delta
from sparkjet.time import WindowGrid


def stage(settings: SlidingSettings | SessionSettings, closed: int | None, *stretches: tuple[int, int]) -> SavedStage:
    deltas = [Delta(str(number), [], 1, low, high) for number, (low, high) in enumerate(stretches)]
    return SavedStage(settings, closed, deltas, {}, {})


@pytest.mark.parametrize(
    ("closed", "stretches", "count"),
    [
        (None, [], 0),
        (None, [(60, 60)], 1),
        (None, [(60, 180)], 3),
        (60, [(60, 180)], 2),
        (180, [(60, 180)], 0),
        (None, [(60, 120), (120, 180), (600, 600)], 4),
    ],
)
def test_tumbling_windows(closed: int | None, stretches: list[tuple[int, int]], count: int) -> None:
    assert open_windows([stage(SlidingSettings(60, 60, 0), closed, *stretches)]) == count


def test_only_windows_of_a_fixed_length_are_counted() -> None:
    sessions, tumbling = SessionSettings(5, None), SlidingSettings(60, 60, 0)
    assert open_windows([]) is None
    assert open_windows([stage(sessions, None, (1, 2))]) is None
    stages = [stage(sessions, None, (1, 2)), stage(tumbling, None, (60, 60)), stage(tumbling, 60, (60, 120))]
    assert open_windows(stages) == 2


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
    st.none() | st.integers(-20, 20),
    st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 6)), max_size=4),
)
def test_they_are_those_that_some_frame_is_in(
    times: int, step: int, offset: int, upto: int | None, found: list[tuple[int, int]]
) -> None:
    window = WindowGrid(times * step, step, offset % step)
    closed = None if upto is None else window.closed_end(upto)
    frames = FrameNames(window)
    stretches = [(frames.of(low), frames.of(low + length)) for low, length in found]
    ends = {
        end
        for low, high in stretches
        for frame in range(low, high + 1, window.frame)
        for end in range(frame, frame + window.size, window.frame)
        if (end - window.offset - window.size) % window.step == 0 and (closed is None or end > closed)
    }
    assert open_windows([stage(SlidingSettings(window.size, step, window.offset), closed, *stretches)]) == len(ends)


class FrameNames:
    def __init__(self, window: WindowGrid) -> None:
        self.window = window

    def of(self, time: int) -> int:
        """The frame's exclusive end."""
        return time - (time - self.window.offset) % self.window.frame + self.window.frame
