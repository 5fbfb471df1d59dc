from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.time import MIN, Advance, SubstreamTracker, emit_by_frame, limiting_lag
from tests.time.laws import through_json


def known(tracker: SubstreamTracker) -> list[str]:
    return [progress.id for progress in tracker.progress()]


def test_a_substream_that_is_silent_for_the_timeout_is_retired() -> None:
    tracker = SubstreamTracker(limiting_lag(0), substream_timeout=10)
    tracker.add("silent", 0)
    tracker.report("a", 20, 9)
    assert tracker.advance(9) == Advance()
    assert known(tracker) == ["silent", "a"]
    assert tracker.advance(10) == Advance(20)
    assert known(tracker) == ["a"]


@pytest.mark.parametrize("answer", [True, False, None])
def test_whatever_the_source_knows(answer: bool | None) -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5, substream_timeout=10)
    tracker.report("a", 20, 0)
    tracker.advance(0)
    tracker.advance(10, caught_up={"a": answer})
    assert known(tracker) == []


def test_when_the_last_is_retired_the_highest_watermark_leaves_once() -> None:
    tracker = SubstreamTracker(limiting_lag(0), substream_timeout=10)
    tracker.report("a", 30, 0)
    tracker.report("b", 5, 0)
    assert tracker.advance(0) == Advance(5)
    assert tracker.advance(10) == Advance(30, went_idle=True)
    assert tracker.advance(11) == Advance()


def test_retiring_the_last_by_hand_flushes_too() -> None:
    tracker = SubstreamTracker(limiting_lag(0), emit_by_frame(10))
    tracker.report("a", 34, 0)
    tracker.report("b", 5, 0)
    assert tracker.advance(0) == Advance(0)
    tracker.retire("a", 1)
    tracker.retire("b", 1)
    assert tracker.advance(1) == Advance(30, went_idle=True)


def test_those_that_were_idle_already_are_retired_silently() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5, substream_timeout=10)
    tracker.report("a", 30, 0)
    tracker.advance(0)
    assert tracker.advance(5) == Advance(None, went_idle=True)
    assert tracker.advance(10) == Advance()


def test_a_retired_one_that_the_list_still_names_is_not_waited_for() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.add("gone", 0)
    tracker.retire("gone", 1)
    restarted = SubstreamTracker(limiting_lag(0))
    restarted.restore(through_json(tracker.snapshot()))
    for name in ("gone", "a"):
        restarted.add(name, 2)
    restarted.resume(2)
    restarted.report("a", 20, 3)
    assert restarted.advance(3) == Advance(20)
    assert known(restarted) == ["a"]


def test_data_of_a_retired_one_make_it_a_new_substream() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.report("a", 20, 0)
    tracker.report("b", 20, 0)
    assert tracker.advance(0) == Advance(20)
    tracker.retire("b", 1)
    tracker.report("b", 3, 2)
    tracker.report("a", 30, 2)
    assert tracker.advance(2) == Advance()
    assert [(p.id, p.watermark, p.holds) for p in tracker.progress()] == [("a", 30, False), ("b", 3, True)]
    assert tracker.watermark == 20
    # It is no longer retired: it can be listed and retired again.
    tracker.retire("b", 3)
    assert tracker.advance(3) == Advance(30)


def test_a_new_one_has_no_watermark_from_its_former_life() -> None:
    tracker = SubstreamTracker(limiting_lag(0), substream_timeout=5)
    tracker.report("a", 20, 0)
    tracker.advance(0)
    tracker.advance(5)
    tracker.report("a", MIN + 7, 6)
    tracker.advance(6)
    assert [p.watermark for p in tracker.progress()] == [MIN + 7]
    assert tracker.watermark == 20


def test_downtime_is_not_silence() -> None:
    tracker = SubstreamTracker(limiting_lag(0), substream_timeout=10)
    tracker.report("a", 20, 0)
    tracker.advance(0)
    restarted = SubstreamTracker(limiting_lag(0), substream_timeout=10)
    restarted.restore(through_json(tracker.snapshot()))
    restarted.resume(1000)
    restarted.advance(1009)
    assert known(restarted) == ["a"]
    restarted.advance(1010)
    assert known(restarted) == []


def test_retiring_twice_is_retiring_once_and_a_misspelt_name_an_error() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.add("trades-1", 0)
    tracker.add("orders-1", 0)
    tracker.retire("orders-1", 0)
    tracker.retire("orders-1", 1)
    with pytest.raises(AnalysisError, match="no substream 'trades-7': did you mean \"trades-1\""):
        tracker.retire("trades-7", 1)


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(AnalysisError, match="substreamTimeout = 0"):
        SubstreamTracker(limiting_lag(0), substream_timeout=0)
