from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sparkjet.errors import AnalysisError
from sparkjet.time import (
    FrameGrid,
    PolicySettings,
    emit_by_frame,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
)
from sparkjet.tools.plotting import plot_watermark
from sparkjet.tools.replay import Arrival, Replay, Silence, WatermarkChange, replay
from tests.time.laws import law

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

# One substream in abstract units: disorder, a lull from 3 to 9, then a straggler and a new event.
SCRIPT = [(0, "a", 10), (1, "a", 14), (2, "a", 12), (3, "a", 20), (9, "a", 16), (10, "a", 21)]
ARRIVALS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.integers(-9, 20)), min_size=1, max_size=15)


def run(policy: PolicySettings) -> Replay:
    return replay(SCRIPT, policy, poll_every=1)


def late_times(found: Replay) -> list[int]:
    return [arrival.event_time for arrival in found.late]


def test_lag_stands_still_in_a_lull() -> None:
    found = run(limiting_lag(5))
    assert found.watermarks == (
        WatermarkChange(0, 5),
        WatermarkChange(1, 9),
        WatermarkChange(3, 15),
        WatermarkChange(10, 16),
    )
    assert late_times(found) == []


def test_lag_and_delay_reaches_the_highest_event_time() -> None:
    # 20 came at 3, and is reached three units later; 14, the highest until 3, is below 20 - 5 by then.
    found = run(limiting_lag_and_delay(5, 3, samples=3))
    assert found.watermarks == (
        WatermarkChange(0, 5),
        WatermarkChange(1, 9),
        WatermarkChange(3, 15),
        WatermarkChange(6, 20),
    )
    assert late_times(found) == [16]


def test_lag_and_lull_moves_on_with_the_clock() -> None:
    # The lull is over at 3 + 2; from there to 9, where the straggler starts a new one, four units pass unit by unit.
    found = run(limiting_lag_and_lull(5, 2))
    assert found.watermarks == (
        WatermarkChange(0, 5),
        WatermarkChange(1, 9),
        WatermarkChange(3, 15),
        WatermarkChange(6, 16),
        WatermarkChange(7, 17),
        WatermarkChange(8, 18),
    )
    assert late_times(found) == [16]


def test_wall_clock_lag_overtakes_the_events() -> None:
    # Event times as the clock has them: from -2 at 0 on, it is the clock less two that counts in the lull.
    moved = [(at, substream, time - 10) for at, substream, time in SCRIPT]
    found = replay(moved, limiting_timestamp_and_wall_clock_lag(5, 2), poll_every=1)
    expected = [(0, -2), (1, -1), (2, 0), (3, 5), (8, 6), (9, 7), (10, 8)]
    assert found.watermarks == tuple(WatermarkChange(*each) for each in expected)
    assert late_times(found) == []
    later = replay([*moved, (11, "a", 7)], limiting_timestamp_and_wall_clock_lag(5, 2), poll_every=1)
    assert late_times(later) == [7]


def test_real_time_lag_ignores_events() -> None:
    found = replay([(0, "a", 100), (4, "a", 1), (5, "a", 1)], limiting_real_time_lag(2), poll_every=1)
    assert found.watermarks == tuple(WatermarkChange(now, now - 2) for now in range(6))
    assert late_times(found) == [1]
    assert found.late[0].at == 5


def test_events_of_one_time_are_one_epoch() -> None:
    together = replay([(0, "a", 20), (0, "a", 3), (1, "a", 3)], 5)
    assert together.late == (Arrival(1, "a", 3),)
    assert together.watermarks == (WatermarkChange(0, 15),)


def test_an_event_at_the_watermark_is_on_time() -> None:
    assert late_times(replay([(0, "a", 20), (1, "a", 15), (2, "a", 14)], 5)) == [14]


def test_by_frame_an_event_is_late_only_with_its_frame() -> None:
    arrivals = [(0, "a", 20), (1, "a", 12), (2, "a", 11)]
    assert late_times(replay(arrivals, 5)) == [12, 11]
    assert late_times(replay(arrivals, 5, frames=FrameGrid(4))) == [11]


def test_a_throttle_holds_small_advances_back() -> None:
    assert replay(SCRIPT, 5, throttle=emit_by_frame(4)).watermarks == (
        WatermarkChange(0, 4),
        WatermarkChange(1, 8),
        WatermarkChange(3, 12),
        WatermarkChange(10, 16),
    )


def test_the_least_substream_holds_the_watermark() -> None:
    found = replay([(0, "a", 20), (1, "b", 8), (2, "a", 30), (3, "b", 9)], 5, substreams=["a", "b"])
    assert found.watermarks == (WatermarkChange(1, 3), WatermarkChange(3, 4))
    assert found.substreams == {
        "a": (WatermarkChange(0, 15), WatermarkChange(2, 25)),
        "b": (WatermarkChange(1, 3), WatermarkChange(3, 4)),
    }
    assert late_times(found) == []


def test_an_idle_substream_is_not_waited_for_until_it_returns() -> None:
    arrivals = [(0, "a", 10), (0, "b", 5), (3, "a", 13), (6, "b", 6), (8, "a", 18), (9, "a", 20)]
    found = replay(arrivals, 0, idle_timeout=4, poll_every=1, until=12)
    # b is silent from 0 on, and a from 3 on; then b from 6 on, whose 6 came too late, and a from 9 on.
    assert found.idle == (Silence("b", 4, 6), Silence("a", 7, 8), Silence("b", 10, 12))
    assert found.late == (Arrival(6, "b", 6),)
    assert found.watermarks == (WatermarkChange(0, 5), WatermarkChange(4, 13), WatermarkChange(10, 20))
    assert found.end == 12


@law
@given(ARRIVALS, st.integers(0, 9), st.integers(1, 5))
def test_the_watermark_rises_and_judges_every_event(
    arrivals: list[tuple[int, str, int]], lag: int, poll_every: int
) -> None:
    found = replay(arrivals, limiting_lag_and_lull(lag, 2), poll_every=poll_every)
    marks = [step.watermark for step in found.watermarks]
    assert marks == sorted(set(marks))
    assert sorted(found.arrivals) == sorted(arrivals)
    for arrival in found.arrivals:
        before = [step.watermark for step in found.watermarks if step.at < arrival.at]
        assert (arrival in found.late) == bool(before and arrival.event_time < before[-1])


@pytest.mark.parametrize(
    ("arrivals", "options", "message"),
    [
        ([], {}, "no arrivals; give at least one"),
        ([(0.5, "a", 1)], {}, r"at=0\.5.*whole numbers"),
        ([(5, "a", 1)], {"until": 4}, "until = 4 is before the last arrival, at 5"),
        ([(0, "a", 1), (10**13, "a", 1)], {}, "poll_every = '1 second' makes 10000001 polls"),
        ([(0, "a", 1)], {"poll_every": 0}, "poll_every = 0: it must not be less than 1 microsecond"),
    ],
)
def test_what_cannot_be_replayed_is_named(
    arrivals: list[tuple[int, str, int]], options: dict[str, int], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message):
        replay(arrivals, 5, **options)


def crosses(axes: Axes, label: str = "late") -> list[tuple[float, float]]:
    return [
        (float(x), float(y)) for line in axes.lines if line.get_label() == label for x, y in line.get_xydata().tolist()
    ]


def test_every_late_event_is_a_cross() -> None:
    axes = Figure().add_subplot()
    found = replay(SCRIPT, limiting_lag_and_lull(5, 2), poll_every=1)
    assert plot_watermark(found, axes, unit=1) is axes
    assert crosses(axes) == [(9.0, 16.0)]
    assert len(crosses(axes, "events of a")) == len(SCRIPT)


def test_without_late_events_there_is_neither_cross_nor_entry() -> None:
    axes = plot_watermark(replay(SCRIPT, 5), Figure().add_subplot(), unit=1)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["watermark", "events of a"]


def test_the_watermark_is_a_step_line_in_units_from_the_origin() -> None:
    axes = plot_watermark(replay(SCRIPT, 5, until=12), Figure().add_subplot(), unit=2, origin=10)
    (line,) = [line for line in axes.lines if line.get_label() == "watermark"]
    assert line.get_drawstyle() == "steps-post"
    assert line.get_xydata().tolist() == [[-5, -2.5], [-4.5, -0.5], [-3.5, 2.5], [0, 3], [1, 3]]


def test_another_replay_is_drawn_for_comparison() -> None:
    events = [(0, "a", 20), (1, "b", 8), (2, "a", 30), (3, "b", 9)]
    each, one = replay(events, 5, substreams=["a", "b"]), replay([(at, "", time) for at, _, time in events], 5)
    axes = plot_watermark(each, Figure().add_subplot(), unit=1, against=("Spark", one))
    assert crosses(axes) == []
    assert crosses(axes, "late for Spark") == [(1.0, 8.0), (3.0, 9.0)]


def test_no_watermark_at_all_can_be_drawn() -> None:
    found = replay([(0, "a", 1)], 5, substreams=["a", "b"])
    assert found.watermarks == ()
    plot_watermark(found, Figure().add_subplot())


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_replay_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    found = replay(SCRIPT, limiting_lag_and_lull(5, 2), poll_every=1)
    for name in ("first", "second"):
        plot_watermark(found, tmp_path / f"{name}.{ending}", unit=1, title="A lull")
    first = (tmp_path / f"first.{ending}").read_bytes()
    assert len(first) > 1000
    assert first == (tmp_path / f"second.{ending}").read_bytes()


def test_a_file_matplotlib_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"cannot write '.*picture\.svgg': did you mean \"svg\""):
        plot_watermark(replay(SCRIPT, 5), tmp_path / "picture.svgg")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AnalysisError, match=r'pip install "sparkjet\[plots\]"'):
        plot_watermark(replay(SCRIPT, 5), tmp_path / "picture.svg")
