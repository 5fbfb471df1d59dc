"""Interval joins equal the naive ones, in one batch, in many, and with a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.stateful.interval_join import FOREVER, MANY
from sparkjet.stateful.join_type import JoinType
from tests.laws import QUICK_MODES, RANDOM_RUNS, law
from tests.lines import needs_unions_in_place
from tests.persisted import persisted
from tests.stateful.join_model import Arrived, JoinBatch, JoinCase, Pair, naive
from tests.stateful.join_run import JoinRun
from tests.windows.session_run import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def row(time: int, key: str | None = "a", value: int = 0) -> Arrived:
    return Arrived(time, key, value)


# Bounds 0 and 10.
EXAMPLE = [
    # On the bounds and one beside them; duplicates; null keys; a right row before its left one.
    JoinBatch(
        [row(0), row(0), row(5, "b"), row(3, None)], [row(0), row(10), row(11), row(3, None), row(7, "c")], (0, 0)
    ),
    # The left side lags, the right one moves on: left rows are final at once, and still have their partners.
    JoinBatch([row(7, "c"), row(7, "c"), row(6, "d")], [row(15, "b"), row(16, "b"), row(30, "e")], (4, 17)),
    # Late rows on both sides, each by its own watermark, and one that is just in time on each.
    JoinBatch(
        [row(3), row(4), row(20, "e"), row(28, "y")], [row(16, "e"), row(17), row(17, "z"), row(30, "e")], (20, 17)
    ),
    # Nothing arrives, and the left side is idle: its watermark follows the right one's.
    JoinBatch([], [], (40, 40)),
    # Held from here on: the second match of a left row, and a first one.
    JoinBatch([row(41, "f"), row(42, "g")], [row(45, "f")], (41, 41)),
    JoinBatch([row(41, "f")], [row(46, "f"), row(52, "g"), row(53, "g")], (45, 45)),
    JoinBatch([], [], None),
]
arrivals = st.builds(Arrived, time=st.integers(-30, 60), key=st.sampled_from(["a", "b", None]), value=st.integers(0, 3))


@st.composite
def cases(draw: st.DrawFn, types: Sequence[JoinType] = tuple(JoinType), *, unbounded: bool = False) -> JoinCase:
    """Any bounds, and batches whose sides move on independently; the last one makes everything final."""
    lower = draw(st.integers(-15, 15))
    bounds = lower, lower + draw(st.integers(0, 20))
    if unbounded:
        bounds = draw(st.sampled_from([(-FOREVER, bounds[1]), (bounds[0], FOREVER), (-FOREVER, FOREVER)]))
    batches = []
    watermarks = [-35, -35]
    for _ in range(draw(st.integers(2, 5))):
        watermarks = [each + draw(st.integers(0, 30)) for each in watermarks]
        left, right = draw(st.lists(arrivals, max_size=12)), draw(st.lists(arrivals, max_size=12))
        batches.append(JoinBatch(left, right, (watermarks[0], watermarks[1])))
    return JoinCase(
        draw(st.sampled_from(types)),
        *bounds,
        [*batches, JoinBatch([], [], None)],
        ordered=draw(st.booleans()),
        null_safe=draw(st.booleans()),
    )


def _sorted(pairs: Sequence[Pair]) -> list[Pair]:
    return sorted(pairs, key=repr)


def check_modes(
    session: SparkSession,
    case: JoinCase,
    home: Path,
    modes: Sequence[str] = ("one batch", "many batches", "restarts"),
) -> None:
    """Feed everything at once, batch by batch, and batch by batch with a restart after each."""
    for mode in modes:
        fed = case
        if mode == "one batch":
            lefts = [each for batch in case.batches for each in batch.left]
            rights = [each for batch in case.batches for each in batch.right]
            fed = replace(case, batches=[JoinBatch(lefts, rights, None)])
        expected, late = naive(fed)
        before = persisted(session)
        run = JoinRun(session, fed)
        for number, (batch, pairs) in enumerate(zip(fed.batches, expected, strict=True)):
            assert _sorted(run.feed(batch)) == _sorted(pairs), (mode, number)
            if mode == "restarts":
                (home / mode).mkdir(exist_ok=True)
                run.restart(home / mode)
        assert tuple(run.late) == late
        assert _held(run) == _held_for_ever(fed, late)
        assert run.operator.open_until is None
        run.discard()
        assert persisted(session) <= before


def _held(run: JoinRun) -> list[int]:
    """Number of rows on both sides."""
    return [sum(segment.statistics.rows for segment in side.segments) for side in run.operator.sides]


def _held_for_ever(case: JoinCase, late: tuple[int, int]) -> list[int]:
    """All rows of a side whose partners may come at any time, and none of the other."""
    left, right = sum(len(batch.left) for batch in case.batches), sum(len(batch.right) for batch in case.batches)
    return [left - late[0] if case.upper == FOREVER else 0, right - late[1] if case.lower == -FOREVER else 0]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return session_of(spark)


@pytest.mark.long
@pytest.mark.parametrize("join_type", JoinType, ids=lambda each: each.value)
def test_the_example_equals_the_naive_join(session: SparkSession, join_type: JoinType, tmp_path: Path) -> None:
    """In CI, `engine/test_join_laws.py` compares whole queries with the same model."""
    check_modes(session, JoinCase(join_type, 0, 10, EXAMPLE), tmp_path, ("one batch", *QUICK_MODES))


def test_the_example_has_what_it_is_there_for() -> None:
    results, late = naive(JoinCase(JoinType.FULL, 0, 10, EXAMPLE))
    assert late == (1, 1)
    # Found at once by a left row that is final when it comes.
    assert results[1].count((row(7, "c"), row(7, "c"))) == 2
    assert (row(6, "d"), None) in results[1]
    assert (row(0), row(11)) not in results[0]
    assert [len(each) for each in results] == [4, 6, 7, 1, 1, 4, 1]


@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_joins_equal_the_naive_ones_over_random_runs(
    session: SparkSession, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(5 * times)
    @given(case=cases())
    def holds(case: JoinCase) -> None:
        check_modes(session, case, tmp_path_factory.mktemp("joins"))

    holds()


@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_inner_joins_without_a_bound_equal_the_naive_ones_over_random_runs(
    session: SparkSession, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(2 * times)
    @given(case=cases([JoinType.INNER], unbounded=True))
    def holds(case: JoinCase) -> None:
        check_modes(session, case, tmp_path_factory.mktemp("joins"))

    holds()


@pytest.mark.parametrize("bounds", [(-FOREVER, 10), (0, FOREVER), (-FOREVER, FOREVER)], ids=["upper", "lower", "none"])
@pytest.mark.long
def test_the_example_without_a_bound_equals_the_naive_join(
    session: SparkSession, bounds: tuple[int, int], tmp_path: Path
) -> None:
    check_modes(session, JoinCase(JoinType.INNER, *bounds, EXAMPLE), tmp_path, ("restarts",))


@needs_unions_in_place
def test_the_state_is_neither_shuffled_nor_sorted(session: SparkSession) -> None:
    run = JoinRun(session, JoinCase(JoinType.FULL, 0, 10, [], ordered=True))
    run.feed(JoinBatch([row(time) for time in range(20)], [row(time) for time in range(20)], (5, 5)))
    run.append(JoinBatch([row(20)], [row(20)], None))
    results = run.operator.close(15, 15)
    assert results is not None
    plan = results._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert "Sort" not in plan
    assert plan.count("ShuffledHashJoin") == 4
    # By the hash alone, which is a long: with the keys beside it the rows would be shuffled by them.
    assert plan.count("ShuffledHashJoin [left_hash") + plan.count("ShuffledHashJoin [right_hash") == 4
    run.discard()


@pytest.mark.parametrize(
    ("epochs", "upper", "most"),
    [pytest.param(300, 15, 60, marks=pytest.mark.long), pytest.param(100, 400, 600, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_the_state_stays_small_over_many_epochs(session: SparkSession, epochs: int, upper: int, most: int) -> None:
    before = persisted(session)
    run = JoinRun(session, JoinCase(JoinType.FULL, -5, upper, []))
    for epoch in range(epochs):
        time = 10 * epoch
        rows = [row(time + step, key) for step, key in enumerate("abc")]
        # The left side is two epochs behind.
        run.append(JoinBatch([row(each.time - 20, each.key) for each in rows], rows, None))
        results = run.operator.close(time - 20, time)
        if epoch % 100 == 50:
            # Rows of a key are ten apart.
            assert len(run.results(results)) == 3 * (upper // 10 + 1)
        run.operator.release()
        assert len(run.operator.segments) <= 2 * MANY
        assert sum(segment.statistics.rows for segment in run.operator.segments) <= most
        assert len(persisted(session) - before) <= 2 * MANY
    assert run.late == [0, 0]
    run.discard()
    assert persisted(session) <= before
