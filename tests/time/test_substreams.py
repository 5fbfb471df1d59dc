from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import (
    MAX,
    MIN,
    Advance,
    PolicySettings,
    SubstreamProgress,
    SubstreamTracker,
    WatermarkPolicy,
    emit_by_frame,
    limiting_lag,
    limiting_lag_and_lull,
    limiting_real_time_lag,
)
from tests.time.laws import ANY_POLICY, PASSING, TIMES, law, through_json
from tests.time.model import SETTINGS, TIMEOUTS, Epoch, Settings, model, scripts
from tests.time.reinstating import reinstate

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(
        PASSING,
        st.one_of(
            st.tuples(st.just("report"), NAMES, TIMES),
            st.tuples(st.just("add"), NAMES, st.none()),
            st.tuples(st.just("retire"), NAMES, st.none()),
            st.tuples(st.just("poll"), NAMES, st.none()),
        ),
    ),
    max_size=20,
)


def known(tracker: SubstreamTracker) -> list[str]:
    return [progress.id for progress in tracker.progress()]


def act(tracker: SubstreamTracker, now: int, step: tuple[str, str, Any]) -> Advance:
    """One epoch: an action on a substream, then the watermark."""
    action, name, time = step
    if action == "report":
        tracker.report(name, time, now)
    elif action == "add":
        tracker.add(name, now)
    elif action == "retire" and name in known(tracker):
        tracker.retire(name, now)
    return tracker.advance(now)


@law
@given(SETTINGS, scripts(["a", "b", "c"]))
def test_the_watermark_is_the_minimum_of_the_live_ones(settings: Settings, script: list[Epoch]) -> None:
    tracker, oracle = settings.tracker(), model({"": settings})
    now = 0
    for epoch in script:
        expected = oracle.run(epoch, now)
        advance, now = epoch.run(tracker, now)
        assert advance == expected
        assert tracker.watermark == oracle.watermark
        assert tracker.progress() == oracle.progress()


@law
@given(ANY_POLICY, st.integers(1, 6), TIMEOUTS, STEPS)
def test_what_is_emitted_only_grows_and_lies_on_frames(
    policy: PolicySettings, step: int, timeout: int | None, steps: list[Any]
) -> None:
    tracker = SubstreamTracker(policy, emit_by_frame(step), timeout)
    now, last = 0, MIN
    for passing, each in steps:
        now += passing
        advance = act(tracker, now, each)
        if advance.watermark is not None:
            assert advance.watermark > last
            assert advance.watermark % step == 0
            last = advance.watermark
        assert tracker.watermark == last
        active = [progress.watermark for progress in tracker.progress() if not progress.idle]
        # No active substream is overtaken but by what was emitted while it was idle.
        assert advance.watermark is None or advance.watermark <= min(active, default=MAX)


@law
@given(ANY_POLICY, TIMEOUTS, STEPS, st.integers(0, 20))
def test_restored_at_any_step_it_goes_on_alike(
    policy: PolicySettings, timeout: int | None, steps: list[Any], cut: int
) -> None:
    tracker = SubstreamTracker(policy, emit_by_frame(3), timeout)
    now = 0
    for passing, step in steps[:cut]:
        now += passing
        act(tracker, now, step)
    restored = SubstreamTracker(policy, emit_by_frame(3), timeout)
    restored.report("forgotten", 99, now=99)
    restored.restore(through_json(tracker.snapshot()))
    assert restored.snapshot() == tracker.snapshot()
    assert restored.progress() == tracker.progress()
    for passing, step in steps[cut:]:
        now += passing
        assert act(restored, now, step) == act(tracker, now, step)


@law
@given(ANY_POLICY, TIMEOUTS, STEPS)
def test_a_substream_never_loses_its_watermark(policy: PolicySettings, timeout: int | None, steps: list[Any]) -> None:
    tracker = SubstreamTracker(policy, idle_timeout=timeout)
    now = 0
    for passing, step in steps:
        now += passing
        before = {progress.id: progress.watermark for progress in tracker.progress()}
        act(tracker, now, step)
        for progress in tracker.progress():
            assert progress.watermark >= before.get(progress.id, MIN)


@law
@given(ANY_POLICY, TIMEOUTS, STEPS)
def test_a_clock_that_goes_back_counts_as_standing_still(
    policy: PolicySettings, timeout: int | None, steps: list[Any]
) -> None:
    jumping = SubstreamTracker(policy, idle_timeout=timeout)
    steady = SubstreamTracker(policy, idle_timeout=timeout)
    highest = MIN
    for reading, (_, step) in enumerate(steps):
        now = (reading * 7) % 11
        highest = max(highest, now)
        assert act(jumping, now, step) == act(steady, highest, step)


@law
@given(STEPS, st.integers(1, 15))
def test_all_idle_is_reported_once_until_there_is_data(steps: list[Any], timeout: int) -> None:
    tracker = SubstreamTracker(limiting_lag(1), idle_timeout=timeout)
    now, reported = 0, False
    for passing, step in steps:
        now += passing
        advance = act(tracker, now, step)
        live = [progress for progress in tracker.progress() if not progress.idle]
        if step[0] == "report" or live:
            reported = reported and not live
        if advance.went_idle:
            assert not live
            assert not reported or step[0] == "report"
        reported = not live


def test_a_revived_substream_holds_back_and_never_lowers() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.add("a", 0)
    tracker.add("b", 0)
    tracker.report("a", 10, 4)
    assert tracker.advance(5) == Advance(10)
    tracker.report("b", 3, 6)
    assert tracker.advance(6) == Advance(None)
    tracker.report("a", 20, 7)
    assert tracker.advance(7) == Advance(None)
    assert [p.id for p in tracker.progress() if p.holds] == ["b"]
    tracker.report("b", 15, 8)
    assert tracker.advance(8) == Advance(15)


def test_the_highest_watermark_leaves_before_everybody_is_idle() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.report("a", 10, 0)
    tracker.report("b", 30, 0)
    assert tracker.advance(0) == Advance(10)
    assert tracker.advance(5) == Advance(30, went_idle=True)
    assert tracker.advance(6) == Advance()


def test_a_late_comer_is_added_by_its_first_report_and_holds() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.report("a", 10, 0)
    assert tracker.advance(0) == Advance(10)
    tracker.report("b", 2, 1)
    tracker.report("a", 20, 1)
    assert tracker.advance(1) == Advance()
    assert tracker.progress() == [
        SubstreamProgress("a", 20, idle=False, holds=False, last_data_at=1, caught_up=None),
        SubstreamProgress("b", 2, idle=False, holds=True, last_data_at=1, caught_up=None),
    ]


def test_without_a_timeout_a_silent_substream_is_waited_for() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.add("silent", 0)
    tracker.report("a", 10, 0)
    assert tracker.advance(10**15) == Advance()
    tracker.retire("silent", 10**15)
    assert tracker.advance(10**15) == Advance(10)


def test_a_substream_that_is_not_caught_up_is_not_idle() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.add("b", 0)
    tracker.report("a", 10, 9)
    assert tracker.advance(9, caught_up={"a": True, "b": False}) == Advance()
    assert [p.caught_up for p in tracker.progress()] == [False, True]
    assert tracker.advance(9, caught_up={"b": True}) == Advance(10)
    assert [(p.id, p.idle, p.caught_up) for p in tracker.progress()] == [("b", True, True), ("a", False, None)]
    # New data of b is known of, but not read: it is waited for again.
    tracker.report("a", 20, 10)
    assert tracker.advance(10, caught_up={"b": False}) == Advance()


@pytest.mark.parametrize("known", [{}, {"a": None}, None])
def test_where_the_source_knows_nothing_the_timeout_alone_decides(known: dict[str, bool | None] | None) -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.report("a", 10, 0)
    assert tracker.advance(4, caught_up=known) == Advance(10)
    assert tracker.advance(5, caught_up=known) == Advance(None, went_idle=True)
    assert [p.caught_up for p in tracker.progress()] == [None]


def test_caught_up_is_not_idle_before_the_timeout() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.report("a", 10, 0)
    assert not tracker.advance(4, caught_up={"a": True}).went_idle
    assert not tracker.idle
    assert tracker.advance(5, caught_up={"a": True}).went_idle
    assert tracker.idle
    tracker.report("a", 10, 5)
    assert not tracker.idle


def test_what_the_source_knows_of_others_is_ignored() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    assert tracker.advance(0, caught_up={"unknown": False}) == Advance(None, went_idle=True)


def test_the_cap_bounds_this_call_only() -> None:
    tracker = SubstreamTracker(limiting_real_time_lag(0))
    tracker.add("a", 0)
    assert tracker.advance(100, cap=40) == Advance(40)
    assert tracker.advance(100, cap=30) == Advance()
    assert tracker.advance(100) == Advance(100)


def test_idle_policies_are_not_polled() -> None:
    tracker = SubstreamTracker(limiting_lag_and_lull(0, 0), idle_timeout=5)
    tracker.report("a", 10, 0)
    assert tracker.advance(4) == Advance(14)
    assert tracker.advance(50) == Advance(None, went_idle=True)
    assert tracker.watermark == 14


def test_force_raises_for_good() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.report("a", 10, 0)
    tracker.advance(0)
    tracker.force(50)
    tracker.force(20)
    assert tracker.watermark == 50
    tracker.report("a", 40, 1)
    assert tracker.advance(1) == Advance()
    tracker.report("a", 60, 2)
    assert tracker.advance(2) == Advance(60)


def test_after_a_restart_silence_counts_from_the_start() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.report("a", 10, 0)
    tracker.report("b", 20, 0)
    tracker.advance(0)
    restarted = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    restarted.restore(through_json(tracker.snapshot()))
    restarted.add("a", 1000)
    restarted.add("new", 1000)
    restarted.resume(1000)
    restarted.report("b", 30, 1001)
    assert restarted.advance(1001) == Advance()
    assert restarted.advance(1005) == Advance(30)


def test_the_watermark_does_not_go_back_over_a_restart_with_a_new_substream() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.report("a", 10, 0)
    tracker.advance(0)
    restarted = SubstreamTracker(limiting_lag(0))
    restarted.restore(tracker.snapshot())
    restarted.report("new", 3, 1)
    assert restarted.advance(1) == Advance()
    assert restarted.watermark == 10


def test_another_policy_continues_from_the_watermarks() -> None:
    tracker = SubstreamTracker(limiting_lag(2))
    tracker.report("a", 10, 0)
    tracker.advance(0)
    restarted = SubstreamTracker(limiting_real_time_lag(5))
    restarted.restore(through_json(tracker.snapshot()))
    assert restarted.progress() == tracker.progress()
    assert restarted.advance(12) == Advance()
    assert restarted.advance(20) == Advance(15)


def test_the_clock_survives_a_restart() -> None:
    tracker = SubstreamTracker(limiting_real_time_lag(0))
    tracker.add("a", 100)
    tracker.advance(100)
    restarted = SubstreamTracker(limiting_lag_and_lull(0, 0))
    restarted.restore(through_json(tracker.snapshot()))
    restarted.report("a", 200, now=50)
    restarted.advance(now=60)
    # Both readings counted as 100, so no time has passed.
    assert restarted.watermark == 200
    assert restarted.advance(101) == Advance(201)


def test_reinstated_watermarks_count_as_emitted() -> None:
    tracker = SubstreamTracker(limiting_lag(0), emit_by_frame(10))
    tracker.add("a", 0)
    tracker.add("b", 0)
    reinstate(tracker, "a", 17)
    assert tracker.watermark == MIN
    reinstate(tracker, "b", 14)
    assert tracker.watermark == 14


def test_adding_twice_is_adding_once() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=5)
    tracker.add("a", 0)
    tracker.add("a", 4)
    assert tracker.advance(5).went_idle


def test_settings_and_names_that_are_wrong_are_refused() -> None:
    with pytest.raises(AnalysisError, match="idleTimeout"):
        SubstreamTracker(limiting_lag(0), idle_timeout="0 seconds")
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout="5 seconds")
    tracker.add("trades-1", 0)
    with pytest.raises(AnalysisError, match="trades-1"):
        tracker.retire("trades-2", 0)
    with pytest.raises(AnalysisError, match="trades-1"):
        reinstate(tracker, "trade-1", 0)


def test_a_throttle_that_runs_ahead_is_refused() -> None:
    class Ahead:
        def throttle(self, ideal: int, last_emitted: int) -> int:
            return ideal + 1

    tracker = SubstreamTracker(limiting_lag(0), Ahead())
    tracker.report("a", 10, 0)
    with pytest.raises(AnalysisError, match="11 for the ideal watermark 10"):
        tracker.advance(0)


def test_a_policy_of_the_users_own() -> None:
    class Fixed:
        def report(self, timestamp: int, now: int) -> None: ...

        def current(self, now: int) -> int:
            return 7 - now

        def snapshot(self) -> None: ...

        def restore(self, snapshot: object) -> None:
            assert snapshot is None

    class FixedSettings:
        def create(self) -> WatermarkPolicy:
            return Fixed()

    tracker = SubstreamTracker(FixedSettings())
    tracker.add("a", 0)
    assert tracker.advance(0) == Advance(7)
    assert tracker.advance(5) == Advance()
    restored = SubstreamTracker(FixedSettings())
    restored.restore(through_json(tracker.snapshot()))
    assert restored.progress()[0].watermark == 7


def test_what_is_not_a_snapshot_changes_nothing() -> None:
    tracker = SubstreamTracker(limiting_lag(0))
    tracker.report("a", 10, 0)
    tracker.advance(0)
    before = tracker.snapshot()
    plain, damaged = through_json(before), through_json(before)
    damaged["frontier"]["members"]["a"]["watermark"] = "10"
    for broken in (
        None,
        {},
        damaged,
        {**plain, "emitted": None},
        {**plain, "substreams": {1: {}}},
        {**plain, "substreams": {}},
        {**plain, "retired": [1]},
        {**plain, "started": "0"},
    ):
        with pytest.raises(RecoveryError):
            tracker.restore(broken)
    assert tracker.snapshot() == before


def test_a_lull_is_counted_from_the_restart_and_not_from_the_last_event_before_it() -> None:
    tracker = SubstreamTracker(limiting_lag_and_lull(2, 3))
    tracker.report("a", 12, now=0)
    assert tracker.advance(now=0).watermark == 10
    again = SubstreamTracker(limiting_lag_and_lull(2, 3))
    again.restore(tracker.snapshot())
    again.resume(now=3600)
    assert again.advance(now=3600).watermark is None
    assert again.advance(now=3603).watermark is None
    assert again.advance(now=3604).watermark == 11
