"""A clock that jumps forward and is set back: what stands still afterwards, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.time import (
    MIN,
    InputTracker,
    LimitingRealTimeLag,
    LimitingTimestampAndWallClockLag,
    PolicySettings,
    SubstreamTracker,
    TimestampHistory,
    WatermarkPolicy,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
)
from tests.time.laws import ANY_POLICY, PASSING, TIMES, law, through_json
from tests.time.model import SETTINGS, TOLERANCE, Epoch, Settings, scripts, union

JUMPS = st.integers(TOLERANCE + 1, 10_000)
TIMEOUTS = st.integers(1, 40)
REPORTS = st.lists(st.tuples(PASSING, st.sampled_from(["a", "b"]), TIMES), max_size=10)


def jump(tracker: SubstreamTracker | InputTracker, reports: list[Any], by: int) -> int:
    """Epochs before a jump and after it, then one by the clock as it was set back; answers that clock."""
    now = 0
    for number, (passing, name, time) in enumerate(reports):
        now += passing
        clock = now if 2 * number < len(reports) else now + by
        tracker.report(name, time, clock)
        tracker.advance(clock)
    tracker.advance(now + by)
    tracker.advance(now)
    return now


@law
@given(SETTINGS, ANY_POLICY, scripts(["a", "b"]))
def test_the_watermark_never_goes_back(settings: Settings, policy: PolicySettings, script: list[Epoch]) -> None:
    inputs = union({"": settings}, {"": policy})
    now, last = 0, MIN
    known: dict[str, int] = {}
    for epoch in script:
        advance, now = epoch.run(inputs, now)
        assert inputs.watermark >= last
        assert advance.watermark in {None, inputs.watermark}
        last = inputs.watermark
        retired = {action.name for action in epoch.actions if action.kind in {"retire", "report"}}
        for each in inputs.progress():
            assert each.id in retired or settings.substream_timeout or each.watermark >= known.get(each.id, MIN)
        known = {each.id: each.watermark for each in inputs.progress()}


@law
@given(SETTINGS, ANY_POLICY, scripts(["a", "b"]))
def test_an_epoch_run_again_with_the_same_readings_ends_alike(
    settings: Settings, policy: PolicySettings, script: list[Epoch]
) -> None:
    inputs = union({"": settings}, {"": policy})
    now = 0
    for epoch in script:
        before, started = through_json(inputs.snapshot()), now
        answer, now = epoch.run(inputs, started)
        after = inputs.snapshot()
        inputs.restore(before)
        assert epoch.run(inputs, started) == (answer, now)
        assert inputs.snapshot() == after


@law
@given(REPORTS, JUMPS, TIMEOUTS)
def test_a_substream_is_idle_no_later_than_its_timeout_after_the_clock_was_set_back(
    reports: list[Any], by: int, timeout: int
) -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=timeout, tolerance=TOLERANCE)
    now = jump(tracker, reports, by)
    tracker.add("c", now)
    tracker.advance(now + timeout)
    assert all(each.idle for each in tracker.progress())


@law
@given(REPORTS, JUMPS, TIMEOUTS)
def test_a_substream_is_retired_no_later_than_its_timeout_after_the_clock_was_set_back(
    reports: list[Any], by: int, timeout: int
) -> None:
    tracker = SubstreamTracker(limiting_lag(0), substream_timeout=timeout, tolerance=TOLERANCE)
    now = jump(tracker, reports, by)
    tracker.advance(now + timeout)
    assert tracker.progress() == []


@law
@given(REPORTS, JUMPS, TIMEOUTS)
def test_discovery_ends_no_later_than_its_length_after_the_clock_was_set_back(
    reports: list[Any], by: int, timeout: int
) -> None:
    tracker = SubstreamTracker(limiting_lag(0), discover=timeout, tolerance=TOLERANCE)
    now = jump(tracker, reports, by)
    assert not tracker.discovering(now + timeout)
    # Once over it does not begin anew, though the clock is before the first reading.
    tracker.advance(now + timeout)
    tracker.advance(now + timeout - 1000)
    assert not tracker.discovering(now + timeout - 1000)


@law
@given(st.integers(0, 9), st.integers(5, 12), st.integers(1, 5), REPORTS, JUMPS)
def test_what_was_seen_is_reached_within_its_delay_after_the_clock_was_set_back(
    lag: int, delay: int, samples: int, reports: list[Any], by: int
) -> None:
    tracker = SubstreamTracker(limiting_lag_and_delay(lag, delay, samples), tolerance=TOLERANCE)
    now = jump(tracker, reports, by)
    for passed in range(delay + 1):
        tracker.advance(now + passed)
    for each in tracker.progress():
        assert each.watermark == max(time for _, name, time in reports if name == each.id)


@law
@given(st.integers(0, 9), st.integers(0, 20), TIMES, JUMPS, st.integers(0, 30))
def test_a_lull_moves_the_watermark_on_no_later_than_its_length_after_the_clock_was_set_back(
    lag: int, lull: int, time: int, by: int, polled: int
) -> None:
    tracker = SubstreamTracker(limiting_lag_and_lull(lag, lull), tolerance=TOLERANCE)
    tracker.report("a", time, 0)
    tracker.advance(by)
    tracker.report("a", time, by)
    tracker.advance(by + polled)
    tracker.advance(polled)
    before = tracker.watermark
    tracker.advance(polled + lull + 1)
    assert tracker.watermark > before


@law
@given(SETTINGS, ANY_POLICY, REPORTS, st.integers(1000, 10_000))
def test_a_clock_that_was_wrong_from_the_start_and_is_put_right_changes_nothing(
    settings: Settings, policy: PolicySettings, reports: list[Any], by: int
) -> None:
    """All that was noted is of the wrong clock, and is moved with it. But what was emitted by it stays."""
    wrong, right = settings.tracker(policy), settings.tracker(policy)
    now = 0
    for passing, name, time in reports:
        now += passing
        for tracker, ahead in ((wrong, by), (right, 0)):
            tracker.report(name, time, now + ahead)
            tracker.advance(now + ahead)
    follows = isinstance(policy, (LimitingRealTimeLag, LimitingTimestampAndWallClockLag))
    for each in range(now, now + 150, 7):
        advances = wrong.advance(each), right.advance(each)
        assert follows or advances[0] == advances[1]
        for one, other in zip(wrong.progress(), right.progress(), strict=True):
            assert follows or one.watermark == other.watermark
            assert (one.id, one.idle, one.last_data_at) == (other.id, other.idle, other.last_data_at)


@pytest.mark.parametrize("policy", [limiting_timestamp_and_wall_clock_lag(5, 10), limiting_real_time_lag(10)], ids=repr)
def test_a_policy_that_follows_the_clock_waits_until_that_has_come_as_far_as_it_had_jumped(
    policy: PolicySettings,
) -> None:
    tracker = SubstreamTracker(policy, tolerance=TOLERANCE)
    tracker.report("a", 95, now=100)
    assert tracker.advance(100).watermark == 90
    assert tracker.advance(1100).watermark == 1090
    assert tracker.advance(101).watermark is None
    assert tracker.advance(1100).watermark is None
    assert tracker.advance(1101).watermark == 1091


def test_over_a_restart_too() -> None:
    def tracker() -> InputTracker:
        settings: dict[str, Any] = {"idle_timeout": 20, "tolerance": TOLERANCE}
        return InputTracker({"": SubstreamTracker(limiting_lag(0), **settings)}, tolerance=TOLERANCE)

    before = tracker()
    before.report("a", 10, 1000)
    before.report("b", 5, 1000)
    before.advance(1000)
    after = tracker()
    after.restore(through_json(before.snapshot()))
    after.resume(100)
    after.report("a", 30, 101)
    assert after.advance(119).watermark is None
    assert after.advance(120).watermark == 30


def test_a_step_back_within_the_tolerance_is_standing_still() -> None:
    tracker = SubstreamTracker(limiting_lag(0), idle_timeout=20, tolerance=TOLERANCE)
    tracker.report("a", 10, 100)
    assert not tracker.advance(100 - TOLERANCE).went_idle
    assert [each.last_data_at for each in tracker.progress()] == [100]
    assert not tracker.advance(119).went_idle
    assert tracker.advance(120).went_idle


def test_all_inputs_go_back_together() -> None:
    inputs = InputTracker(
        {prefix: SubstreamTracker(limiting_lag(0), idle_timeout=20, tolerance=TOLERANCE) for prefix in ("a/", "b/")},
        tolerance=TOLERANCE,
    )
    inputs.report("a/1", 10, 1000)
    inputs.report("b/1", 5, 995)
    inputs.advance(1000)
    inputs.report("a/1", 30, 100)
    assert [each.last_data_at for each in inputs.progress()] == [100, 100]
    inputs.report("a/1", 40, 119)
    assert inputs.advance(119).watermark is None
    assert inputs.advance(120).watermark == 40


def test_a_policy_of_the_users_own_is_notified() -> None:
    class Notified:
        def __init__(self) -> None:
            self.calls: list[tuple[int, int]] = []

        def report(self, timestamp: int, now: int) -> None: ...

        def current(self, now: int) -> int:
            return len(self.calls)

        def set_back(self, before: int, now: int) -> None:
            self.calls.append((before, now))

        def snapshot(self) -> None: ...

        def restore(self, snapshot: object) -> None: ...

    made: list[Notified] = []

    class OwnSettings:
        def create(self) -> WatermarkPolicy:
            made.append(Notified())
            return made[-1]

    tracker = SubstreamTracker(OwnSettings(), tolerance=TOLERANCE)
    tracker.add("a", 1000)
    for now in (995, 100, 99, 102):
        tracker.advance(now)
    assert made[0].calls == [(1000, 100)]


@law
@given(st.integers(1, 6), st.integers(1, 5), st.lists(st.tuples(PASSING, TIMES), max_size=10), JUMPS)
def test_a_history_that_was_set_back_goes_on_as_if_its_clock_had_been_right(
    samples: int, interval: int, calls: list[tuple[int, int]], by: int
) -> None:
    wrong, right = (TimestampHistory(samples * interval, samples) for _ in range(2))
    now = 0
    for passing, value in calls:
        now += passing
        assert wrong.sample(now + by, value) == right.sample(now, value)
    if by > interval:
        wrong.set_back(now + by, now)
        goes_on: Callable[[int], int] = lambda each: wrong.sample(each, each)  # noqa: E731
        for each in range(now, now + 3 * samples * interval):
            assert goes_on(each) == right.sample(each, each)
