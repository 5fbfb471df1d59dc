"""Windows of a large state equal the naive ones, whether few or many close with a batch, and sort no suffixes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkjet.time import WindowGrid
from sparkjet.windows import sliding, stacks
from sparkjet.windows.spans import ClosingRange
from sparkjet.windows.stacks import FinishedBlock
from tests.laws import RANDOM_RUNS, law
from tests.windows.model import Batch, Event
from tests.windows.paths import check_modes, events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that windows have closed by two stacks, whether it was without suffixes."""
    found = []
    decide = FinishedBlock.serves

    def serves(block: FinishedBlock, closing: ClosingRange, rows: int) -> bool:
        found.append(decide(block, closing, rows))
        return found[-1]

    monkeypatch.setattr(FinishedBlock, "serves", serves)
    return found


@pytest.mark.parametrize(
    ("path", "large"),
    [
        ("stacks", True),
        # Finished blocks are of stacks: what else closes windows is fed in test_sliding.
        *(
            pytest.param(*other, marks=pytest.mark.long)
            for other in (("deduct", False), ("stacks", False), ("deduct", True))
        ),
    ],
)
def test_windows_that_close_one_by_one_or_by_a_few_equal_the_naive_ones(
    spark: SparkSession, path: str, *, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[bool]
) -> None:
    """Each key comes and goes, through two lengths of a window; in a state that counts as large, or as it is."""
    if large:
        monkeypatch.setattr(stacks, "MANY", 0)
        monkeypatch.setattr(sliding, "LARGE", 0)
        monkeypatch.setattr(sliding, "_SEPARATE", 9)
    closed = [9, *range(10, 13), 15, 18, *range(19, 23), 29, 30]
    batches, before = [], 0
    for watermark in closed:
        times = range(before, watermark)
        batches.append(
            Batch([Event(key, t, t % 5) for t in times for key in "abc" if t % 13 < 6 or key == "a"], watermark)
        )
        before = watermark
    check_modes(spark, path, WindowGrid(9, 1), [*batches, Batch([], None)], tmp_path, ["many batches"])
    # Not the first ones, nor the seven, nor what is open at the end.
    assert served.count(True) == (len(closed) - 2 if large and path == "stacks" else 0)


@st.composite
def slow_runs(draw: st.DrawFn) -> tuple[WindowGrid, list[Batch]]:
    """A long window, and batches of which each closes few of them, with late events; the last closes everything."""
    step = draw(st.integers(1, 3))
    window = WindowGrid(step + draw(st.integers(3, 18)), step, draw(st.integers(0, step - 1)))
    batches = []
    watermark = -20
    for _ in range(draw(st.integers(5, 9))):
        watermark += draw(st.integers(0, 5))
        rows = [
            Event(event.key, watermark + draw(st.integers(-5, 15)), event.value)
            for event in draw(st.lists(events, max_size=15))
        ]
        batches.append(Batch(rows, watermark))
    return window, [*batches, Batch([], None)]


@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_windows_of_a_large_state_equal_the_naive_ones_over_random_runs(
    spark: SparkSession,
    times: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    served: list[bool],
) -> None:
    monkeypatch.setattr(stacks, "MANY", 0)

    # Frames of half a slide; twice, a boundary of blocks is between the ends that close together.
    window = WindowGrid(9, 2, 1)
    drawn = [Batch([Event("ab"[t % 2], t, t % 7) for t in range(end - 4, end)], end) for end in range(4, 40, 4)]

    @law(times)
    @example(run=(window, [*drawn, Batch([], None)]))
    @given(run=slow_runs())
    def holds(run: tuple[WindowGrid, list[Batch]]) -> None:
        check_modes(spark, "stacks", *run, tmp_path_factory.mktemp("windows"), ["many batches", "restarts"])

    holds()
    assert any(served)
