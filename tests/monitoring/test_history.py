"""The history: nothing that is counted is lost by merging, and a reader who comes back sees what everybody sees."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparkjet.engine.progress_report import SinkReport
from sparkjet.monitoring.history import AGE, History, Point
from sparkjet.monitoring.runs import Run
from sparkjet.monitoring.standing import FURTHEST, OTHERS
from sparkjet.monitoring.view import details
from tests.monitoring.reports import NOW, SECOND, report, substream

gaps = st.integers(-5 * SECOND, 5 * 60 * SECOND)
epochs = st.lists(st.tuples(gaps, st.integers(0, 9), st.booleans()), max_size=60)


@given(epochs, st.integers(2, 9))
def test_sums_stay_and_points_are_bounded(steps: list[tuple[int, int, bool]], most: int) -> None:
    history, now = History(most), NOW
    for number, (gap, rows, _) in enumerate(steps):
        now += gap
        history.add(
            report(number, {"a": substream(now)}, late=rows, failed={"where n": rows}, duration_ms={"save": rows}),
            now,
            rows,
        )
        points = history.points
        assert len(points) <= most
        assert all(before.at < after.at for before, after in pairwise(points))
        assert points[-1].epoch == number
        assert points[-1].lines["a"].watermark == now
    points, total = history.points, sum(rows for _, rows, _ in steps)
    assert sum(point.epochs for point in points) == len(steps)
    assert sum(point.rows_in for point in points) == sum(point.late for point in points) == total
    assert sum(point.failed for point in points) == history.totals.failed["where n"] == total
    if steps:
        # A record of the same epoch that was written again.
        history.add(report(len(steps) - 1, failed={"where n": 1}), now)
        assert history.totals.failed["where n"] == total
    assert sum(point.duration_ms.get("save", 0) for point in points) == total == history.totals.rows_in


@given(epochs, st.integers(2, 9))
def test_a_reader_who_comes_back_has_all_points(steps: list[tuple[int, int, bool]], most: int) -> None:
    history, now = History(most), NOW
    merges: int | None = None
    read: list[Point] = []
    for number, (gap, rows, comes_back) in enumerate(steps):
        now += gap
        history.add(report(number, late=rows), now, rows)
        if comes_back:
            merges, points, whole = history.since(merges, read[-1].at if read else 0)
            read = points if whole else [*read, *points]
            assert read == history.points


def test_after_a_day_a_point_goes() -> None:
    history = History()
    for day in (0, 1, 2):
        history.add(report(day), NOW + day * (AGE + 1))
    assert [point.epoch for point in history.points] == [2]
    assert history.totals.epochs == 3


def test_what_was_before_the_clock_was_set_back_stays_in_its_order() -> None:
    history = History()
    for number, now in enumerate((NOW + AGE, NOW + AGE + SECOND, NOW, NOW + 2 * SECOND)):
        history.add(report(number), now)
    ends = [NOW - SECOND - 1, NOW - 1, NOW, NOW + 2 * SECOND]
    assert [(point.epoch, point.at) for point in history.points] == list(enumerate(ends))


def test_what_a_sink_of_the_users_calls_rows_and_epoch_may_be_something_else() -> None:
    run = Run("query", "run", None, NOW, recorded=True)
    named = {"schema": {"fields": ["_reason"]}, "files": [], "directory": "", "format": "parquet"}
    for epoch in ("2026-01-05", None, 1.5, True):
        sink = SinkReport.of("mine", {"rows": "many", "epoch": epoch, **named})
        run.history.add(report(3, sinks=[sink]), NOW)
        assert details(run, NOW)["transactions"] == [{"output": "mine", "rows": None, "epoch": 3}]
        assert details(run, NOW)["unsettled"] == 0


def test_a_day_of_epochs_stays_a_chart() -> None:
    history, step = History(100), 20 * SECOND
    for number in range(2 * AGE // step):
        history.add(report(number, {"a": substream(NOW)}), NOW + number * step)
    points = history.points
    assert points[-1].at - points[0].at > AGE * 9 // 10
    # A hundred points are 15 minutes each; room for new ones takes half of them.
    assert max(after.at - before.at for before, after in pairwise(points)) < 2 * 3600 * SECOND


def test_a_clock_that_was_set_back_does_not_make_epochs_end_in_the_future() -> None:
    history, hour = History(), 3600 * SECOND
    for epoch, now in enumerate((NOW + hour, NOW)):
        history.add(report(epoch, {"a": substream(epoch)}), now)
    assert (history.ended_at, history.moved_at("a")) == (NOW, NOW)


def test_of_many_substreams_those_furthest_behind_have_names() -> None:
    known = {f"p{i}": substream(NOW - i * SECOND) for i in range(1000)}
    known |= {"silent": substream(NOW - 10_000 * SECOND, idle=True), "new": substream(None, holds=True)}
    known |= {"retired": substream(None)}
    history = History()
    history.add(report(1, known), NOW)
    lines = history.points[-1].lines
    assert list(lines)[:3] == ["new", "p999", "p998"]
    assert list(lines)[-1] == OTHERS
    assert len(lines) == FURTHEST + 1
    assert lines[OTHERS].watermark == known["p980"].watermark


def test_when_a_substream_last_moved() -> None:
    history = History()
    assert history.moved_at("a") is None
    for second, watermark in enumerate([5, 5, 6, 6, 6]):
        history.add(report(second, {"a": substream(watermark)}), NOW + second * SECOND)
    assert history.moved_at("a") == NOW + 2 * SECOND
    history.add(report(9), NOW + 9 * SECOND)
    assert history.moved_at("a") is None


def test_rows_of_an_epoch_are_counted_once_while_its_transaction_waits() -> None:
    history = History()
    waits = SinkReport("results", 7, {"epoch": 1})
    history.add(report(1, sinks=[waits]), NOW)
    history.add(report(2, sinks=[waits]), NOW + SECOND)
    history.add(report(3, sinks=[SinkReport("other", None, {"epoch": 3})]), NOW + 2 * SECOND)
    history.add(report(4, sinks=[SinkReport("own", 2, {"place": "x"})]), NOW + 3 * SECOND)
    # One that does not count its rows is not one with no rows.
    assert dict(history.totals.rows_out) == {"results": 7, "own": 2}
    assert [point.rows_out for point in history.points] == [7, 0, 0, 2]


def test_another_record_of_an_epoch_counts_no_rows_again() -> None:
    history, sinks = History(), [SinkReport("out", 7, {"epoch": 2})]
    for later in range(3):
        history.add(report(2, sinks=sinks), NOW + later * SECOND)
    history.add(report(3, sinks=[SinkReport("out", 1, {"epoch": 3})]), NOW + 9 * SECOND)
    assert history.totals.rows_out == {"out": 8}
    assert sum(point.rows_out for point in history.points) == 8
