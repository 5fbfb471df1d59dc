"""Deduplication equals the naive one, in one batch, in many, and with a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkjet.time import MAX, MIN
from tests.laws import QUICK_MODES, RANDOM_RUNS, law, only_examples
from tests.lines import needs_unions_in_place
from tests.persisted import persisted
from tests.stateful.deduplication_run import DeduplicationRun, Kind, naive
from tests.windows.model import Batch, Event
from tests.windows.session_run import session_of
from tests.windows.timeline import timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {"by time": Kind(0, by_time=True), "within 10": Kind(10), "forever": Kind(None)}
# In CI, `plan/test_deduplication.py` has those by time, and `ported/test_installed_state.py` those within a while.
QUICK_KINDS = [
    pytest.param(kind, id=name, marks=pytest.mark.crash if kind.keep is None else pytest.mark.long)
    for name, kind in KINDS.items()
]
EXAMPLE = timeline("""
    time            -10       0         10        20        30        40
    a                 12      1
    b                         3  4
    null       4    5
    watermark         |

    a                 3        7
    b               1               9
    null            6
    c                              2
    watermark                 |

    a                                   2
    c                               1
    watermark                            |

    a                                    1
    b                                     8
    null                                   2
    watermark end
""").batches

events = st.builds(Event, key=st.sampled_from(["a", "b", None]), time=st.integers(-30, 50), value=st.integers(0, 9))


@st.composite
def runs(draw: st.DrawFn) -> list[Batch]:
    """Batches that move on, with some late events; the last one closes all."""
    batches = []
    watermark = -35
    for _ in range(draw(st.integers(2, 5))):
        watermark += draw(st.integers(0, 25))
        batches.append(Batch(draw(st.lists(events, max_size=15)), watermark))
    return [*batches, Batch([], None)]


def check_modes(
    session: SparkSession,
    kind: Kind,
    batches: Sequence[Batch],
    home: Path,
    modes: Sequence[str] = ("one batch", "many batches", "restarts"),
) -> None:
    """Feed everything at once, batch by batch, and batch by batch with a restart after each."""
    for mode in modes:
        fed = [Batch([e for batch in batches for e in batch.events], None)] if mode == "one batch" else batches
        expected, late = naive(fed, kind)
        before = persisted(session)
        run = DeduplicationRun(session, kind)
        for batch, rows in zip(fed, expected, strict=True):
            found = run.feed(batch)
            assert sorted((row[:2] for row in found), key=repr) == sorted((row[:2] for row in rows), key=repr), mode
            allowed = {(key, time): values for key, time, values in rows}
            assert all(value in allowed[key, time] for key, time, value in found), (mode, batch)
            if mode == "restarts":
                (home / mode).mkdir(exist_ok=True)
                run.restart(home / mode)
        assert run.late == late
        if kind.keep is None:
            assert sum(segment.statistics.rows for segment in run.operator.segments) == sum(map(len, expected))
            run.discard()
        assert run.operator.segments == []
        assert run.operator.open_until is None
        assert persisted(session) <= before


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return session_of(spark)


@pytest.mark.parametrize("kind", QUICK_KINDS)
@example(batches=EXAMPLE)
@only_examples()
@given(batches=runs())
def test_first_rows_equal_the_naive_ones(
    session: SparkSession, kind: Kind, batches: list[Batch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_modes(session, kind, batches, tmp_path_factory.mktemp("deduplication"), modes=QUICK_MODES)


@pytest.mark.parametrize("times", RANDOM_RUNS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_first_rows_equal_the_naive_ones_over_random_runs(
    session: SparkSession, kind: Kind, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(2 * times)
    @given(batches=runs())
    def holds(batches: list[Batch]) -> None:
        check_modes(session, kind, batches, tmp_path_factory.mktemp("deduplication"))

    holds()


@pytest.mark.crash
def test_the_state_is_bounded_while_the_watermark_moves(session: SparkSession) -> None:
    run = DeduplicationRun(session, Kind(10))
    for epoch in range(6):
        keys = [f"{epoch}-{number}" for number in range(4)]
        batch = Batch([Event(key, 5 * epoch, 1) for key in (*keys, *keys)], 5 * epoch)
        assert sorted(key or "" for key, _, _ in run.feed(batch)) == sorted(keys)
        # Of three epochs are remembered; segments go when all their keys are forgotten.
        assert sum(segment.statistics.rows for segment in run.operator.segments) <= 12, epoch
    run.discard()


def test_the_state_is_the_keys_and_nothing_else(session: SparkSession) -> None:
    run = DeduplicationRun(session, Kind(10))
    run.feed(Batch([Event("a", 5, 1), Event("a", 3, 2)], 0))
    (segment,) = run.operator.segments
    assert segment.partials.columns == ["key_hash", "key0", "due"]
    # The number of the first row, for the results of the epoch; it is not stored.
    assert segment.rows.table.columns == [*segment.partials.columns, "first"]
    assert [(row.key0, row.due) for row in segment.partials.collect()] == [("a", 13)]
    run.discard()


@needs_unions_in_place
def test_the_state_is_neither_shuffled_nor_sorted_and_watermarks_compile_nothing(session: SparkSession) -> None:
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    run = DeduplicationRun(session, Kind(10))
    run.feed(Batch([Event(str(key), key, 1) for key in range(100)], 1))
    executions = []
    for watermark in (20, 31):
        run.operator.skip_to(watermark)
        executions.append(run.new_keys(Batch([Event("50", 55, 1)], None))._jdf.queryExecution())
    plan = executions[0].executedPlan().toString()
    assert "Exchange" not in plan
    assert "Sort" not in plan
    assert "BuildRight" in plan
    codes, other_codes = ([each._2() for each in _items(e.debug().codegenToSeq())] for e in executions)
    assert codes
    assert codes == other_codes
    run.append(Batch([Event("101", 60, 1)], None))
    rows = run.operator.close(40)
    assert rows is not None
    assert "Exchange" not in rows._jdf.queryExecution().executedPlan().toString()
    run.discard()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


@pytest.mark.crash
def test_what_is_remembered_of_other_times_is_not_read(session: SparkSession) -> None:
    run = DeduplicationRun(session, Kind(0, by_time=True))
    for time in (10, 20, 30):
        run.feed(Batch([Event("a", time, 1), Event("b", time + 3, 1)], 5))
    assert len(run.operator.segments) == 3
    for times, read in (((14, 19), 0), ((21, 22), 1), ((23, 30), 2), ((5, 99), 3)):
        plan = run.new_keys(Batch([Event("c", time, 1) for time in times], None))._jdf.queryExecution().executedPlan()
        assert plan.toString().count("Scan ExistingRDD") == (1 if read == 0 else 2 + read), times
    run.discard()


def test_at_the_limits_of_64_bits_nothing_overflows(session: SparkSession) -> None:
    run = DeduplicationRun(session, Kind(MAX))
    times = (MIN, -1, 0, MAX)
    assert len(run.feed(Batch([Event(str(time), time, 1) for time in times], MIN))) == len(times)
    assert [time for _, time, _ in run.feed(Batch([Event(str(time), time, 1) for time in times], MAX))] == []
    assert run.operator.open_until == MAX
    run.discard()
