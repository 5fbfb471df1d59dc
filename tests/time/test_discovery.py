from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.time import MIN, Advance, SubstreamTracker, limiting_lag, limiting_real_time_lag
from tests.time.laws import through_json


def test_nothing_leaves_while_substreams_may_show_up() -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=10)
    assert tracker.discovering(10**6)
    tracker.report("fast", 50, 100)
    assert tracker.advance(100) == Advance()
    tracker.report("laggard", 5, 109)
    assert tracker.advance(109) == Advance()
    assert tracker.watermark == MIN
    # They are polled all the same, so that progress can say how far they are.
    assert [(p.id, p.watermark, p.holds) for p in tracker.progress()] == [("fast", 50, False), ("laggard", 5, True)]
    assert tracker.discovering(109)
    assert not tracker.discovering(110)
    assert tracker.advance(110) == Advance(5)


def test_without_discovery_the_first_watermark_leaves_at_once() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    assert not tracker.discovering(0)
    tracker.report("fast", 50, 0)
    assert tracker.advance(0) == Advance(50)


def test_the_first_reading_counts_wherever_it_comes_from() -> None:
    for start in ("add", "advance", "resume"):
        tracker = SubstreamTracker(limiting_lag(0), discover=10)
        if start == "add":
            tracker.add("a", 5)
        elif start == "advance":
            tracker.advance(5)
        else:
            tracker.resume(5)
        assert tracker.discovering(14)
        assert not tracker.discovering(15)


def test_asking_starts_nothing() -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=10)
    assert tracker.discovering(3)
    tracker.advance(50)
    assert tracker.discovering(59)


def test_a_restart_does_not_start_it_over() -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=10)
    tracker.report("a", 7, 100)
    tracker.advance(100)
    restarted = SubstreamTracker(limiting_lag(0), discover=10)
    restarted.restore(through_json(tracker.snapshot()))
    restarted.resume(109)
    assert restarted.advance(109) == Advance()
    assert restarted.advance(110) == Advance(7)


def test_a_clock_that_goes_back_does_not_prolong_it() -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=10)
    tracker.report("a", 7, 100)
    assert tracker.advance(110) == Advance(7)
    assert not tracker.discovering(50)


def test_idleness_is_announced_after_it_with_the_highest_watermark() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=3, discover=10)
    tracker.report("a", 30, 0)
    assert tracker.advance(0) == Advance()
    tracker.report("b", 5, 6)
    assert tracker.advance(6) == Advance()
    assert tracker.advance(9) == Advance()
    assert not tracker.idle
    assert tracker.advance(10) == Advance(30, went_idle=True)
    assert tracker.advance(11) == Advance()


def test_no_substream_shows_up() -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=10)
    assert tracker.advance(0) == Advance()
    assert tracker.advance(10) == Advance(None, went_idle=True)


def test_discovering_again_after_a_restart_keeps_what_was_emitted() -> None:
    tracker = SubstreamTracker(limiting_real_time_lag(0), idle_timeout=5)
    tracker.report("a", 0, 10)
    assert tracker.advance(10) == Advance(10)
    assert tracker.advance(15).went_idle
    restarted = SubstreamTracker(limiting_real_time_lag(0), idle_timeout=5, discover=30)
    restarted.restore(through_json(tracker.snapshot()))
    restarted.add("new", 20)
    assert restarted.advance(20) == Advance()
    assert restarted.watermark == 10
    # What the clock did to a substream meanwhile is not lost when it is idle again by then.
    assert restarted.advance(40) == Advance(20, went_idle=True)


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(AnalysisError, match="discover = '0 seconds'"):
        SubstreamTracker(limiting_lag(0), discover="0 seconds")
