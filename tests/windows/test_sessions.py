"""Session windows equal the naive ones, in one batch, in many, and with a restart after each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate, Inputs
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.time import MAX, MIN
from sparkjet.windows import Accumulators, SessionWindows
from tests.laws import QUICK_MODES, RANDOM_RUNS, law, only_examples
from tests.lines import needs_unions_in_place
from tests.parameters import mostly_long
from tests.persisted import persisted
from tests.state.touching import made_of
from tests.windows.model import Batch, Event, Fold, Row
from tests.windows.session_model import Gap, naive, sessions
from tests.windows.session_run import SessionRun, session_of
from tests.windows.timeline import Timeline, timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS = {"unlimited": False, "limited": True}
NAMES = {limited: name for name, limited in LIMITS.items()}
# In CI, sessions without a limit are in `engine/test_laws.py` and, beside Spark's, in `tests/differential`.
SOME_LIMITS = [
    pytest.param(False, id="unlimited", marks=pytest.mark.long),
    pytest.param(True, id="limited", marks=pytest.mark.crash),
]
FOLDS: list[Fold] = [
    len,
    lambda events: sum(event.value for event in events),
    lambda events: sorted((event.value for event in events), reverse=True)[:2],
    lambda events: [value for _, value in sorted((event.time, event.value) for event in events)],
]

Run = tuple[int, int, list[Batch]]

GAP, LONGEST = 10, 7
EXAMPLE = timeline("""
    time            -10       0         10        20        30        40        50        60        70        80
    a                                             1                    2
    b                         3         5
    null       4
    watermark       |

    a                                     6
    b                                  9
    null           78
    watermark                             |
    null       [======2=======)

    a                                                       1  2
    b                                    43
    null                                  5
    watermark                             |

    watermark                                    |

    a                                            1      9
    b                                            1
    c                                                                                     1
    watermark                                     |

    b                                                  1
    c                                                                            1                 1
    watermark                                                                    |
    b                         [================6=================)
    null                                  [====1====)

    a                                                                            2        2
    c                                                                           00
    watermark                                                                          |
    a                                     [==================7===================)

    c                                                                                   7                    7
    watermark                                                                                              |
    a                                                                            [========2=========)

    watermark end
    c                                                                            [=============5=============)
    c                                                                                                        [====1====)
    late 3
""")
"""Touching, bridging, moving left, negative times, a null key, late by one, a session that outlives its pieces.

The rows are those of sessions without a longest piece.
"""

OWN_EXAMPLE = timeline("""
    time                0         10        20        30
    a                   9  2    5    4
    b                     0  -3
    null                     2
    watermark             |

    a                               9
    b                   0
    c                    9
    watermark                         |
    null                     [1)

    a                                       1
    c                                 5
    watermark                                |
    c                                 [=1==)

    b                                            7
    watermark                                 |
    a                   [=========6==========)

    watermark end
    b                                            [==1===)
    late 1
""")
"""The digits are gaps too: a long one outlasts others, a later one joins sessions that touch, and some are none."""

OWN_GAP: Gap = lambda event: event.value  # noqa: E731 - a gap, named once

events = st.builds(Event, key=st.sampled_from(["a", "b", None]), time=st.integers(-40, 60), value=st.integers(-9, 9))


def _aggregates() -> list[Aggregate]:
    return [J.count(), J.sum("value"), J.top_n("value", 2), J.collect_list("value")]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A gap, a longest piece, and batches that move on, with some late events; the last one closes all."""
    batches = []
    watermark = -45
    for _ in range(draw(st.integers(2, 5))):
        watermark += draw(st.integers(0, 30))
        batches.append(Batch(draw(st.lists(events, max_size=20)), watermark))
    return draw(st.integers(1, 12)), draw(st.integers(1, 30)), [*batches, Batch([], None)]


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def check_modes(
    session: SparkSession,
    run: Run,
    home: Path,
    *,
    limited: bool,
    own: bool = False,
    modes: Sequence[str] = ("one batch", "many batches", "restarts"),
) -> None:
    """Feed everything at once, batch by batch, and batch by batch with a restart after each.

    Args:
        session: The session.
        run: The gap, the longest piece and the batches.
        home: Where snapshots go.
        limited: Whether sessions are cut.
        own: Whether the gap of an event is its value.
        modes: Which of these.
    """
    fixed, longest, batches = run
    max_duration = longest if limited else None
    own_gap = F.concat(F.col("value").cast("string"), F.lit(" microseconds")).cast("interval")
    gap: Gap = OWN_GAP if own else fixed
    for mode in modes:
        fed = [Batch([e for batch in batches for e in batch.events], None)] if mode == "one batch" else batches
        expected, late = naive(fed, gap, max_duration, FOLDS)
        before = persisted(session)
        operator = SessionRun(session, own_gap if own else fixed, max_duration, _aggregates())
        for batch, rows in zip(fed, expected, strict=True):
            assert _sorted(operator.feed(batch)) == _sorted(rows), (mode, batch)
            if mode == "restarts":
                (home / mode).mkdir(exist_ok=True)
                operator.restart(home / mode)
        assert operator.late == late
        assert operator.operator.segments == []
        assert operator.operator.open_until is None
        assert persisted(session) <= before


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return session_of(spark)


@pytest.mark.parametrize(("gap", "drawn"), [(GAP, EXAMPLE), (OWN_GAP, OWN_EXAMPLE)], ids=["fixed", "own"])
def test_the_model_gives_the_rows_that_are_drawn(gap: Gap, drawn: Timeline) -> None:
    rows, late = naive(drawn.batches, gap, None, FOLDS[:1])
    assert [_sorted(each) for each in rows] == [_sorted(each) for each in drawn.rows]
    assert late == drawn.late


@pytest.mark.parametrize("limited", SOME_LIMITS)
@example(run=(GAP, LONGEST, EXAMPLE.batches))
@only_examples()
@given(run=runs())
def test_sessions_equal_the_naive_ones(
    session: SparkSession, limited: bool, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_modes(session, run, tmp_path_factory.mktemp("sessions"), limited=limited, modes=QUICK_MODES)


# In CI, those are in `tests/differential`, whose seeds have sessions with their own gaps, beside Spark's batch.
@pytest.mark.long
@pytest.mark.parametrize("limited", LIMITS.values(), ids=list(LIMITS))
@example(run=(GAP, LONGEST, OWN_EXAMPLE.batches))
@only_examples()
@given(run=runs())
def test_sessions_of_events_with_their_own_gaps_equal_the_naive_ones(
    session: SparkSession, limited: bool, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_modes(session, run, tmp_path_factory.mktemp("sessions"), limited=limited, own=True, modes=QUICK_MODES)


@pytest.mark.parametrize("times", RANDOM_RUNS)
@pytest.mark.parametrize("own", [False, True], ids=["fixed", "own"])
@pytest.mark.parametrize("limited", LIMITS.values(), ids=list(LIMITS))
def test_sessions_equal_the_naive_ones_over_random_runs(
    session: SparkSession, limited: bool, own: bool, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(times)
    @given(run=runs())
    def holds(run: Run) -> None:
        check_modes(session, run, tmp_path_factory.mktemp("sessions"), limited=limited, own=own)

    holds()


# In CI, `conformance/test_spark.py` asks for early rows of sessions, over a restore too.
@pytest.mark.parametrize("limited", mostly_long(LIMITS, ()))
def test_early_rows_are_the_open_sessions_and_change_nothing(session: SparkSession, limited: bool) -> None:
    max_duration = LONGEST if limited else None
    run = SessionRun(session, GAP, max_duration, _aggregates()[:2])
    assert run.operator.early() is None
    accepted: list[Event] = []
    for batch in EXAMPLE.batches[:4]:
        closed = run.operator.closed
        accepted += [event for event in batch.events if closed is None or event.time >= closed]
        run.append(batch)
        early = run.rows(run.operator.early())
        found = sessions(accepted, GAP, max_duration, FOLDS[:2])
        assert _sorted(early) == _sorted([row for row in found if closed is None or row[2] >= closed])
        assert batch.watermark is not None
        final = run.rows(run.operator.close(batch.watermark))
        assert _sorted(final) == _sorted([row for row in early if row[2] < batch.watermark])
        run.operator.release()
    for _ in range(2):
        assert _sorted(run.rows(run.operator.early())) == _sorted([row for row in early if row not in final])
    run.discard()


# In CI, one order is a case of `conformance/test_spark.py`.
@pytest.mark.long
def test_n02_every_order_gives_the_same_sessions(session: SparkSession) -> None:
    drawn = timeline("""
        time       0         10        20        30        40        50
        any         1    1     1                 1
        watermark end
        any         [=========3==========)       [====1====)
    """)
    times = [event.time for event in drawn.events]
    orders = list(permutations(times))
    run = SessionRun(session, 10, None, [J.count()])
    for place in range(len(times)):
        run.append(Batch([Event(str(key), order[place], 1) for key, order in enumerate(orders)], None))
        # Nothing closes, but what has come becomes state, and the next place meets it there.
        assert run.operator.close(0) is None
        run.operator.release()
    rows = run.rows(run.operator.close(100))
    expected = [(str(key), *row[1:]) for key in range(len(orders)) for row in drawn.rows[0]]
    assert _sorted(rows) == _sorted(expected)
    assert run.operator.segments == []
    run.discard()


@pytest.mark.crash
def test_pieces_do_not_depend_on_the_order_of_arrival(session: SparkSession) -> None:
    drawn = timeline("""
        time       0         10        20        30        40
        a           1  2   34   5   6            7     8 9
        watermark end
        a           [=2==)    [=1==)             [=1==)
        a                [=2==)    [=1==)             [=2==)
    """)
    arrivals = drawn.events
    expected = sessions(arrivals, 7, 5, FOLDS[:2])
    assert _sorted([(*row[:3], row[3][:1]) for row in expected]) == _sorted(drawn.rows[0])
    for order in (arrivals[::-1], arrivals[4:] + arrivals[:4]):
        run = SessionRun(session, 7, 5, _aggregates()[:2])
        # Below the first event: the start may still move, whatever comes.
        rows = [row for first in range(0, len(order), 4) for row in run.feed(Batch(order[first : first + 4], -1))]
        assert rows == []
        assert _sorted(run.feed(Batch([], None))) == _sorted(expected)


@pytest.mark.long
def test_a_session_that_outlives_its_pieces_keeps_its_cuts_and_little_state(session: SparkSession) -> None:
    gap, longest = 100, 7
    # Each watermark closes all pieces: what comes next finds the session only by what is left of them.
    batches = [Batch([Event("a", time, 1), Event("a", time + 9, 1)], time + 20) for time in range(3, 170, 33)]
    batches.append(Batch([], None))
    expected, late = naive(batches, gap, longest, FOLDS[:1])
    run = SessionRun(session, gap, longest, _aggregates()[:1])
    for batch, rows in zip(batches, expected, strict=True):
        assert _sorted(run.feed(batch)) == _sorted(rows)
        assert max((segment.statistics.rows for segment in run.operator.segments), default=0) <= 6
    assert (run.late, late) == (0, 0)


@pytest.mark.long
def test_neither_blocks_nor_segments_pile_up(session: SparkSession) -> None:
    before = persisted(session)
    run = SessionRun(session, 10, None, [J.count()])
    most = 0
    for epoch in range(12):
        rows = run.feed(Batch([Event(key, 10 * epoch, 1) for key in ("stays", f"{epoch}")], 10 * epoch))
        assert len(rows) == (0 if epoch < 2 else 2)
        assert len(run.operator.segments) <= 3
        most = max(most, len(persisted(session) - before))
    assert most <= 3
    run.feed(Batch([], None))
    assert run.operator.segments == []
    assert persisted(session) <= before


@needs_unions_in_place
def test_the_state_is_neither_shuffled_nor_sorted_and_watermarks_compile_nothing(session: SparkSession) -> None:
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    run = SessionRun(session, 10, None, [J.count()])
    run.feed(Batch([Event(str(key), key, 1) for key in range(100)], 1))
    run.append(Batch([Event("50", 55, 1)], None))
    operator = run.operator
    execution, others = (
        made_of(*operator._pending, operator._store, operator._sessions, watermark)._jdf.queryExecution()
        for watermark in (20, 31)
    )
    plan = execution.executedPlan().toString()
    assert "Exchange" not in plan
    # Sorted is only what has been looked up, once for its versions and once with the new rows.
    assert plan.rindex("Sort ") < plan.index("ShuffledHashJoin")
    assert plan.count("Sort ") == 2
    assert "BuildRight" in plan
    codes, other_codes = ([each._2() for each in _items(e.debug().codegenToSeq())] for e in (execution, others))
    assert codes
    assert codes == other_codes
    run.discard()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def test_at_the_limits_of_64_bits_nothing_overflows(session: SparkSession) -> None:
    run = SessionRun(session, MAX, None, [J.count()])
    times = (MIN, MIN + 1, -1, 0, MAX - 1, MAX)
    assert run.feed(Batch([Event(str(time), time, 1) for time in times], MIN)) == []
    rows = run.rows(run.operator.early())
    assert _sorted(rows) == _sorted([(str(time), time, min(time + MAX, MAX), (1,)) for time in times])
    assert run.operator.open_until == MAX
    assert len(run.feed(Batch([], None))) == 3
    run.discard()


# In CI, cases of `conformance/test_spark.py`.
@pytest.mark.long
def test_late_is_what_is_below_the_watermark(session: SparkSession) -> None:
    run = SessionRun(session, 10, None, [J.count()])
    run.operator.skip_to(5)
    run.operator.skip_to(4)
    drawn = timeline("""
        time       0         10        20
        a              11
        watermark     |

        watermark                  |
        a               [====1====)
        late 1
    """)
    first, second = drawn.batches
    assert run.feed(first) == drawn.rows[0] == []
    assert (run.late, run.operator.closed) == (drawn.late, 5)
    assert run.feed(second) == drawn.rows[1] == [("a", 5, 15, (1,))]


def test_keys_that_a_collation_holds_equal_are_one_key(session: SparkSession) -> None:
    shape = session.createDataFrame([], "key string collate UTF8_LCASE, time long")
    results = [("result", J.count().resolve(Inputs(shape, F.col("time"))))]
    partials = shape.groupBy().agg(*Accumulators.aggregations(results))
    operator = SessionWindows(10, None, ["key"], Accumulators(results, partials.schema), 2)
    for key, time in (("A", 1), ("a", 5)):
        row = f"'{key}' COLLATE UTF8_LCASE AS key, {time}L AS frame, {time}L AS start, {time + 10}L AS end"
        partial = session.sql(f"SELECT {row}, 1L AS row_count, 1L AS acc0_count")
        operator.append(Segment(operator.partitioned(partial), SegmentStatistics(1, time, time)))
        assert operator.close(0) is None
    closed = operator.close(100)
    assert closed is not None
    assert [tuple(row)[1:] for row in closed.collect()] == [(1, 15, 2)]
    operator.release()
