"""A lag from a loss budget: what it says is lost, the replay of the policy loses, and no smaller lag would do."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sparkjet.errors import AnalysisError
from sparkjet.time import limiting_lag
from sparkjet.tools import LagReport, lag_for
from sparkjet.tools.lag import rounded
from sparkjet.tools.plotting import plot_losses
from sparkjet.tools.replay import replay
from tests.time.laws import law

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.integers(-99, 200)), min_size=1, max_size=25
)
SHARES = st.sampled_from(["0 %", "5 %", "12.5 %", 0.3, "60 %"])


def lost(arrivals: list[tuple[int, str, int]], lag: int, substreams: list[str]) -> Counter[str]:
    found = replay(arrivals, limiting_lag(lag), poll_every=None, substreams=substreams)
    return Counter(arrival.substream for arrival in found.late)


@law
@given(ARRIVALS, SHARES, st.sampled_from([[], ["a"], ["a", "b"]]))
def test_the_lag_keeps_the_budget_and_no_smaller_one_does(
    arrivals: list[tuple[int, str, int]], loss: str | float, substreams: list[str]
) -> None:
    substreams = [each for each in substreams if each in {name for _, name, _ in arrivals}]
    found = lag_for(arrivals, loss, trigger=None, substreams=substreams)
    most = int(found.allowed * len(arrivals))
    assert lost(arrivals, found.lag, substreams).total() <= most
    if found.lag:
        assert lost(arrivals, found.lag - 1, substreams).total() > most
    for lag in {0, 1, 50, *found.lags}:
        by_substream = lost(arrivals, lag, substreams)
        assert {name: found.lost(lag, name) for name in found.rows} == {name: by_substream[name] for name in found.rows}
        assert found.lost(lag) == by_substream.total()
    # One that is alone may need less, or more, than all of them: the budget is then of its own rows.
    for name, rows in found.rows.items():
        own = found.lag_of(name)
        assert found.lost(own, name) <= found.allowed * rows < (found.lost(own - 1, name) if own else rows)


@law
@given(ARRIVALS, SHARES, st.integers(1, 10**9))
def test_a_lag_has_three_digits_and_never_loses_more(
    arrivals: list[tuple[int, str, int]], loss: str | float, unit: int
) -> None:
    finer = [(at, substream, time * unit) for at, substream, time in arrivals]
    found = lag_for(finer, loss, trigger=None)
    exact = lag_for(arrivals, loss, trigger=None).lag * unit
    assert exact <= found.lag <= exact + exact // 100
    assert all(lag == rounded(lag) for lag in found.lags)
    assert lost(finer, found.lag, []).total() == found.lost(found.lag) <= found.allowed * len(finer)


def test_rows_of_one_trigger_are_one_epoch() -> None:
    # The second is behind the first of its own epoch: it was not judged by it.
    arrivals = [(0, "a", 10), (400, "a", 90), (700, "a", 40), (1200, "a", 85)]
    assert lag_for(arrivals, 0, trigger=None).lag == 50
    assert lag_for(arrivals, 0, trigger=1000).lag == 5
    assert lag_for(arrivals, 0).lag == 0


def a_time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


def test_a_table_gives_what_a_list_does(spark: SparkSession) -> None:
    second = 1_000_000
    arrivals = [
        (at * 700_001 - 3 * second, "ab"[at % 2] + "/x", at * second - 9 * second - (at * 7919 % 23) * 423_457)
        for at in range(200)
    ]
    # Of two epochs, in a year in which microseconds have more than 53 bits.
    last = 253_402_300_799 * second
    arrivals += [(last - 1, f"{each}/x", last) for each in "ab"] + [(last, "b/x", second)]
    rows: list[Any] = [(a_time(at), name[0], name[2:], a_time(time)) for at, name, time in arrivals]
    rows += [(None, "a", "x", a_time(0)), (a_time(0), "b", "x", None)]
    table = spark.createDataFrame(rows, "timestamp timestamp, k string, `l.l` string, ts timestamp").repartition(3)
    for trigger in (None, "1 second"):
        expected = lag_for(arrivals, "1 %", trigger=trigger)
        assert lag_for(table, "1 %", by=["k", "l.l"], trigger=trigger) == expected
        assert expected.lag > second
        assert expected.rows == {"a/x": 101, "b/x": 102}


def test_what_is_not_a_history_is_named(spark: SparkSession) -> None:
    table = spark.createDataFrame([(1, a_time(5))], "n long, ts timestamp")
    for options, message in (
        ({"arrival": "n"}, "arrival: 'n' is bigint, and has to be a timestamp"),
        ({"arrival": "ts", "event_time": "n"}, "event_time: 'n' is bigint"),
        ({"arrival": "ts", "event_time": "t"}, "event_time: there is no column 't'; did you mean .ts"),
        ({"arrival": "ts", "by": ["n", "x.y"]}, "by: there is no column 'x.y'"),
    ):
        with pytest.raises(AnalysisError, match=message):
            lag_for(table, 0, **options)
    # As the query calls its only substream.
    assert dict(lag_for(table, 0, arrival="ts").rows) == {"all": 1}
    with pytest.raises(AnalysisError, match="history has no rows with an event time"):
        lag_for(table.where("false"), 0, arrival="ts")
    with pytest.raises(AnalysisError, match="history is a stream"):
        lag_for(spark.readStream.format("rate").load(), 0)


@pytest.mark.parametrize("loss", ["100 %", -0.1, "1 per mille", "", 1, "1/0"])
def test_a_budget_is_a_share(loss: str | float) -> None:
    with pytest.raises(AnalysisError, match=r"loss = .*: a share of rows from 0 to below 1, such as 0\.0001"):
        lag_for([(0, "a", 0)], loss)


REPORT = LagReport(Fraction(1, 10), {"a": 10, "b": 10}, {"a": {5: 1, 20: 2}, "b": {20: 1}})


def test_a_report_is_a_table() -> None:
    assert (REPORT.lag, REPORT.lag_of("a"), REPORT.lag_of("b")) == (20, 20, 0)
    assert REPORT.policy == limiting_lag(20)
    assert [tuple(each) for each in REPORT.losses([5, 20])] == [
        (5, "a", 2, 0.2), (5, "b", 1, 0.1), (20, "a", 0, 0.0), (20, "b", 0, 0.0),
    ]  # fmt: skip
    first, *lines = str(REPORT).splitlines()
    assert first == "lag 20 microseconds loses 0 of 20 rows"
    assert lines[1].split() == ["5", "microseconds", "a:", "2", "(20.0000%)", "b:", "1", "(10.0000%)"]
    assert [line[:2] for line in lines] == ["  ", "  ", "->"]
    with pytest.raises(AnalysisError, match="substream = 'c': there are rows of 'a', 'b'"):
        REPORT.lost(5, "c")


def test_losses_are_drawn(tmp_path: Path) -> None:
    axes = plot_losses(REPORT, Figure().add_subplot(), unit=1)
    shown = {str(line.get_label()): line.get_xydata().tolist() for line in axes.lines}
    assert shown["all rows"] == [[0, 20], [5, 15], [20, 0]]
    assert shown["b"] == [[0, 10], [5, 10], [20, 0]]
    assert [x for x, _ in shown["lag for 10 %"]] == [20, 20]
    plot_losses(REPORT, tmp_path / "losses.svg", unit=1)
    assert (tmp_path / "losses.svg").stat().st_size > 1000


def test_rows_without_a_time_or_a_substream_are_as_those_of_a_table() -> None:
    rows: Any = [(1, "a", None), (None, "a", 5), (2, None, 7), (3, None, 4)]
    found = lag_for(rows, 0, trigger=None)
    assert (dict(found.rows), found.lag) == ({"null": 2}, 3)


def test_advice_names_what_was_meant() -> None:
    rows = [(1, "ab", 3), (10**7, "ab", 1)]
    # Not of "a" and "b", for which the watermark would wait.
    assert lag_for(rows, 0, substreams="ab").lag == lag_for(rows, 0).lag == 2
    frame = pd.DataFrame(rows, columns=["at", "substream", "time"])
    assert lag_for(frame.itertuples(index=False), 0) == lag_for(frame.to_numpy().tolist(), 0) == lag_for(rows, 0)
    with pytest.raises(AnalysisError, match="substreams: history has no rows of 'a'"):
        lag_for(rows, 0, substreams=["a"])
    wrong: list[Any] = [(1, "a", 2.5), (1, "a", float("nan")), (a_time(1), "a", a_time(2)), (1, 7, 3), (1, 3), "abc"]
    for each in wrong:
        with pytest.raises(AnalysisError, match=r"history: .* is not an Arrival"):
            lag_for([each], 0)
    assert str(lag_for([(0, "a\nb", 5), (0, "", 5)], 0)).splitlines()[1].split()[3:] == [
        "'':", "0", "(0.0000%)", "'a\\nb':", "0", "(0.0000%)",
    ]  # fmt: skip
