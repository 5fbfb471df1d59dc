"""The window operator equals the naive one, in one batch, in many, and with a restart after each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkjet.aggregates import built_in as J
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.segments import FEWEST
from sparkjet.time import WindowGrid
from sparkjet.windows import sliding
from tests.laws import QUICK_MODES, RANDOM_RUNS, law, only_examples
from tests.parameters import mostly_crash
from tests.windows.model import Batch, Event, naive
from tests.windows.operator import OperatorRun
from tests.windows.paths import PATHS, SUM, check_modes, events, in_order
from tests.windows.timeline import Timeline, timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WINDOW = WindowGrid(6, 2, 1)
EXAMPLE = timeline("""
    time                0         10        20        30        40        50
    a                    5       -3
    b                      2
    null            1
    watermark               |
    a                [==1==)
    null       [==1==)
    null         [==1==)
    null           [==1==)

    a               9       7
    b                                 1
    null                                              2
    watermark                          |
    a                  [==2==) [==1==)
    a                    [==2==) [==1==)
    a                      [==1==)
    a                        [==1==)
    b                  [==1==)   [==1==)
    b                    [==1==)
    b                      [==1==)

    watermark                           |

    a                                                           1
    b                                4
    watermark                                              |
    b                              [==1==)
    b                                [==1==)
    null                                         [==1==)
    null                                           [==1==)
    null                                             [==1==)

    watermark end
    a                                                      [==1==)
    a                                                        [==1==)
    a                                                          [==1==)
    late 2
""")
"""Late by a frame, late events of an open frame, a null key, negative times, gaps, an empty epoch."""

UNEVEN = WindowGrid(10, 4, 1)
UNEVEN_EXAMPLE = timeline("""
    time      -10       0         10        20
    a               5      4
    b                   2
    null                        1
    watermark               |
    a        [====1====)
    a            [====1====)
    b            [====1====)

    a                     67 8
    watermark                 |

    b                      3
    watermark                      |
    a                [====3====)
    a                    [====3====)
    b                [====2====)
    b                    [====1====)
    null                 [====1====)

    watermark end
    a                        [====1====)
    null                     [====1====)
    late 1
""")
"""Two frames a slide, windows that end between them: late is what a closed window contains, however old it is."""


@st.composite
def runs(draw: st.DrawFn) -> tuple[WindowGrid, list[Batch]]:
    """A window, and batches whose events and watermarks advance, with some late events; the last closes everything."""
    step = draw(st.integers(1, 6))
    window = WindowGrid(step + draw(st.integers(0, 18)), step, draw(st.integers(0, step - 1)))
    batches = []
    watermark = -45
    for _ in range(draw(st.integers(2, 4))):
        watermark += draw(st.integers(0, 40))
        batches.append(Batch(draw(st.lists(events, max_size=25)), watermark))
    return window, [*batches, Batch([], None)]


@pytest.mark.parametrize(("window", "drawn"), [(WINDOW, EXAMPLE), (UNEVEN, UNEVEN_EXAMPLE)], ids=["even", "uneven"])
def test_the_model_gives_the_rows_that_are_drawn(window: WindowGrid, drawn: Timeline) -> None:
    rows, late = naive(drawn.batches, window, [len])
    assert [in_order(each) for each in rows] == [in_order(each) for each in drawn.rows]
    assert late == drawn.late


@pytest.mark.parametrize("path", mostly_crash(PATHS, quick=(), crash={"stacks", "deduct"}))
@example(run=(WINDOW, EXAMPLE.batches))
@example(run=(UNEVEN, UNEVEN_EXAMPLE.batches))
@only_examples()
@given(run=runs())
def test_windows_equal_the_naive_ones(
    spark: SparkSession, path: str, run: tuple[WindowGrid, list[Batch]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_modes(spark, path, *run, tmp_path_factory.mktemp("windows"), QUICK_MODES)


def test_early_rows_are_the_open_windows_where_a_slide_has_several_frames(spark: SparkSession, tmp_path: Path) -> None:
    run = OperatorRun(spark, UNEVEN, [J.count()], tmp_path)
    first = UNEVEN_EXAMPLE.batches[0]
    final = run.feed(first)
    early = run.state.operator.early()
    assert early is not None
    whole, _ = naive([Batch(first.events, None)], UNEVEN, [len])
    rows = [(row[0], row[1], row[2], (row[3],)) for row in early.collect()]
    assert in_order(rows + final) == in_order(whole[0])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (WINDOW, WindowGrid(12, 2, 1)),
        pytest.param(WINDOW, WindowGrid(4, 2, 1), marks=pytest.mark.long),
        (WINDOW, WindowGrid(5, 2)),
        pytest.param(UNEVEN, WindowGrid(6, 3, 2), marks=pytest.mark.long),
        pytest.param(UNEVEN, WindowGrid(7, 4), marks=pytest.mark.long),
    ],
    ids=["longer", "shorter", "uneven", "even", "other frames"],
)
def test_a_changed_shape_goes_on_with_the_first_windows_that_are_whole(
    spark: SparkSession, before: WindowGrid, after: WindowGrid, tmp_path: Path
) -> None:
    first, later = [Event("a", time, time) for time in range(20)], [Event("a", time, 1) for time in (8, 14, 21)]
    run = OperatorRun(spark, before, [J.count(), J.sum("value")], tmp_path)
    run.feed(Batch(first, 12))
    closed = before.closed_end(12)
    highest = before.grid.higher_frame(19)
    start = after.whole_from(before, closed, highest)
    run.restart(after)
    # Windows of the new shape that end between two of the old one are still to come.
    end = next(end for end in range(closed + 1, 99) if after.ends.floor_frame(end) == end)
    assert run.state.operator.closed == end - after.step
    run.restart()
    early = run.state.operator.early()
    assert all(row[1] >= start for row in (early.collect() if early is not None else ()))
    rows = run.feed(Batch(later, None))
    on_time = [event for event in later if event.time >= after.closed_end(end - after.step)]
    (whole,), _ = naive([Batch(first + on_time, None)], after, [len, SUM[1]])
    assert in_order(rows) == in_order([row for row in whole if row[2] >= end and row[1] >= start])
    assert run.state.operator.withheld == sum(row[2] >= end and row[1] < start for row in whole)
    assert run.late == len(later) - len(on_time)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_windows_equal_the_naive_ones_over_random_runs(
    spark: SparkSession, path: str, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(times)
    @given(run=runs())
    def holds(run: tuple[WindowGrid, list[Batch]]) -> None:
        check_modes(spark, path, *run, tmp_path_factory.mktemp("windows"))

    holds()


def test_large_segments_are_merged_where_that_combines_frames(spark: SparkSession, tmp_path: Path) -> None:
    operator = OperatorRun(spark, WindowGrid(60, 1), [J.count()], tmp_path).state.operator

    def count(*bounds: tuple[int, int], rows: int = sliding.LARGE) -> int:
        none = spark.range(0)
        operator.segments = [Segment(none, SegmentStatistics(rows, low, high)) for low, high in bounds]
        return operator._mergeable()

    own = [(second, second) for second in range(sliding._SEPARATE)]
    assert count(*own[:FEWEST], rows=1) == FEWEST
    assert count(*own[:-1]) == 0
    assert count(*own) == sliding._SEPARATE
    assert count(*[(7, 7)] * FEWEST) == FEWEST
    halves = [(second // 2, second // 2) for second in range(2 * FEWEST)]
    assert count(*halves) == 0
    thirds = [(second // 3, second // 3) for second in range(3 * FEWEST)]
    assert count(*thirds) == 3 * FEWEST


def test_windows_that_close_do_not_wait_until_few_segments_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    run = OperatorRun(spark, WindowGrid(1000, 10), [J.count()], tmp_path)

    def segments_after(watermark: int, time: int) -> int:
        run.feed(Batch([Event("a", time, 1)], watermark))
        return len(run.state.operator.segments)

    # Each epoch closes a window: they are merged later, and all the same.
    assert [segments_after(10 * epoch, 10 * epoch + 1) for epoch in range(FEWEST + 1)] == [*range(1, FEWEST + 2)]
    assert segments_after(10 * FEWEST + 1, 10 * FEWEST + 2) == 1
    assert min(segments_after(10 * epoch, 10 * epoch + 1) for epoch in range(FEWEST + 1, 3 * FEWEST + 2)) == 1
