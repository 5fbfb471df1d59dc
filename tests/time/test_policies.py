from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import (
    MAX,
    MIN,
    LimitingRealTimeLag,
    PolicySettings,
    WatermarkPolicy,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
    uses_clock,
    with_fixed_lag,
)
from tests.time.laws import ANY_POLICY, PASSING, TIMES, law, through_json

ACTIONS = st.lists(st.tuples(PASSING, st.one_of(st.none(), TIMES)), max_size=15)


def act(policy: WatermarkPolicy, now: int, timestamp: int | None) -> int:
    """Report, unless it is a poll, and ask."""
    if timestamp is not None:
        policy.report(timestamp, now)
    return policy.current(now)


@law
@given(ANY_POLICY, ACTIONS)
def test_watermarks_only_grow_under_a_clock_that_does(settings: PolicySettings, actions: list[Any]) -> None:
    policy = settings.create()
    now, last = 0, MIN
    for passing, timestamp in actions:
        now += passing
        watermark = act(policy, now, timestamp)
        assert watermark >= last
        last = watermark


@law
@given(ANY_POLICY, ACTIONS, st.integers(0, 15))
def test_restored_at_any_step_it_goes_on_alike(settings: PolicySettings, actions: list[Any], cut: int) -> None:
    policy = settings.create()
    now = 0
    for passing, timestamp in actions[:cut]:
        now += passing
        act(policy, now, timestamp)
    restored = settings.create()
    restored.restore(through_json(policy.snapshot()))
    assert restored.snapshot() == policy.snapshot()
    for passing, timestamp in actions[cut:]:
        now += passing
        assert act(restored, now, timestamp) == act(policy, now, timestamp)


@law
@given(ANY_POLICY, ACTIONS)
def test_a_snapshot_no_longer_changes(settings: PolicySettings, actions: list[Any]) -> None:
    policy = settings.create()
    act(policy, 0, 1)
    snapshot = policy.snapshot()
    before = through_json(snapshot)
    for passing, timestamp in actions:
        act(policy, passing, timestamp)
    assert snapshot == before


@law
@given(st.integers(0, 9), ACTIONS)
def test_a_lag_is_behind_the_highest_timestamp(lag: int, actions: list[Any]) -> None:
    policy = limiting_lag(lag).create()
    top = MIN
    for _, timestamp in actions:
        top = top if timestamp is None else max(top, timestamp)
        assert act(policy, 0, timestamp) == (MIN if top == MIN else top - lag)


@law
@given(st.integers(0, 9), st.integers(4, 12), ACTIONS)
def test_with_a_delay_the_watermark_reaches_what_was_seen_and_nothing_more(
    lag: int, delay: int, actions: list[Any]
) -> None:
    policy = limiting_lag_and_delay(lag, delay, samples=4).create()
    now, top = 0, MIN
    for passing, timestamp in actions:
        # Polled at every tick, as the promise needs it.
        for tick in range(now, now + passing):
            policy.current(tick)
        now += passing
        top = top if timestamp is None else max(top, timestamp)
        watermark = act(policy, now, timestamp)
        assert watermark <= top
        assert top == MIN or watermark >= top - lag
    for tick in range(now, now + delay + 1):
        policy.current(tick)
    assert policy.current(now + delay) == top


@law
@given(st.integers(0, 9), st.integers(0, 9), TIMES, st.lists(PASSING, max_size=10))
def test_in_a_lull_the_watermark_moves_with_the_clock(lag: int, lull: int, time: int, polls: list[int]) -> None:
    policy = limiting_lag_and_lull(lag, lull).create()
    policy.report(time, 0)
    now = 0
    for passing in polls:
        now += passing
        assert policy.current(now) == time - lag + max(0, now - lull)


def test_a_lull_that_was_not_polled_is_lost_and_old_timestamps_end_it() -> None:
    policy = limiting_lag_and_lull(2, 3).create()
    policy.report(12, 0)
    policy.report(1, 10)
    assert policy.current(13) == 10
    assert policy.current(14) == 11


@law
@given(st.integers(0, 9), st.integers(0, 9), ACTIONS)
def test_two_lags_are_the_higher_one(timestamp_lag: int, wall_clock_lag: int, actions: list[Any]) -> None:
    policy = limiting_timestamp_and_wall_clock_lag(timestamp_lag, wall_clock_lag).create()
    seen: list[int] = []
    for now, timestamp in actions:
        # The clock jumps here and there; only its highest reading counts.
        seen += [now - wall_clock_lag] + ([] if timestamp is None else [timestamp - timestamp_lag])
        assert act(policy, now, timestamp) == max(seen)


def test_real_time_ignores_events_and_follows_its_clock_back() -> None:
    policy = limiting_real_time_lag(3).create()
    assert [act(policy, now, 100) for now in (10, 12, 5)] == [7, 9, 2]


@pytest.mark.parametrize(
    "settings", [limiting_lag(10), limiting_lag_and_delay(10, 16), limiting_lag_and_lull(10, 5)], ids=repr
)
def test_a_timestamp_too_near_to_the_limit_gives_no_watermark(settings: PolicySettings) -> None:
    policy = settings.create()
    policy.report(MIN + 5, 0)
    assert policy.current(0) == MIN


def test_watermarks_stay_in_64_bits() -> None:
    lull = limiting_lag_and_lull(0, 0).create()
    lull.report(MAX - 1, 0)
    assert lull.current(1000) == MAX
    assert limiting_real_time_lag(10).create().current(MIN + 5) == MIN


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: limiting_lag(-1), "limiting_lag: lag"),
        (lambda: limiting_lag("1 month"), "limiting_lag: lag"),
        (lambda: limiting_lag_and_delay(-1, 16), "limiting_lag_and_delay: lag"),
        (lambda: limiting_lag_and_delay(1, 0), "limiting_lag_and_delay: delay"),
        (lambda: limiting_lag_and_delay(1, 15), "delay = 15"),
        (lambda: limiting_lag_and_delay(1, 15, samples=0), "samples = 0"),
        (lambda: limiting_lag_and_lull(1, -1), "limiting_lag_and_lull: lull"),
        (lambda: limiting_timestamp_and_wall_clock_lag(-1, 0), "timestamp_lag"),
        (lambda: limiting_timestamp_and_wall_clock_lag(0, -1), "wall_clock_lag"),
        (lambda: limiting_real_time_lag(-1), "limiting_real_time_lag: lag"),
        (lambda: LimitingRealTimeLag(-1), "limiting_real_time_lag: lag"),
    ],
)
def test_wrong_settings_are_refused_when_written(make: Callable[[], object], option: str) -> None:
    with pytest.raises(AnalysisError, match=option):
        make()


def test_durations_may_be_written_out() -> None:
    assert limiting_lag("500 milliseconds") == limiting_lag(500_000)
    assert limiting_lag_and_delay("1 second", "2 seconds") == limiting_lag_and_delay(1_000_000, 2_000_000, 16)
    assert with_fixed_lag is limiting_lag


def test_each_substream_gets_its_own_policy() -> None:
    settings = limiting_lag(0)
    one, other = settings.create(), settings.create()
    one.report(5, 0)
    assert (one.current(0), other.current(0)) == (5, MIN)


def test_changed_settings_continue_from_the_saved_watermark() -> None:
    before = limiting_lag_and_delay(2, 16).create()
    before.report(50, 0)
    after = limiting_lag_and_delay(5, 32).create()
    after.restore(before.snapshot())
    assert after.current(0) == 48
    for tick in range(33):
        after.current(tick)
    assert after.current(33) == 50


@law
@given(ANY_POLICY)
def test_all_are_settings_and_refuse_what_is_not_theirs(settings: PolicySettings) -> None:
    policy = settings.create()
    assert isinstance(settings, PolicySettings)
    assert isinstance(policy, WatermarkPolicy)
    if policy.snapshot():
        act(policy, 0, 7)
        before = policy.snapshot()
        with pytest.raises(RecoveryError, match="watermark"):
            policy.restore({"top": 3})
        assert policy.snapshot() == before


def test_only_the_plain_lag_needs_no_clock() -> None:
    class Own:
        def create(self) -> WatermarkPolicy:
            return limiting_lag(0).create()

    assert not uses_clock(limiting_lag(0))
    assert uses_clock(limiting_lag_and_lull(0, 0))
    assert uses_clock(Own())
