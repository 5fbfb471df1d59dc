from __future__ import annotations

import pytest

from sparkjet.time import (
    EmitByFrame,
    EmitByMinStep,
    LimitingLag,
    LimitingLagAndDelay,
    LimitingLagAndLull,
    LimitingRealTimeLag,
    LimitingTimestampAndWallClockLag,
    NoThrottling,
    PolicySettings,
    Throttle,
)
from tests.conformance.settings import history, policy, setting_call, throttle
from tests.conformance.trackers import tracker_setup
from tests.conformance.verdicts import NotationError


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("limitingLag(10)", LimitingLag(10)),
        ("limiting_lag(lag 10)", LimitingLag(10)),
        ("withFixedLag(10)", LimitingLag(10)),
        ("with_fixed_lag(10 ms)", LimitingLag(10)),
        ("limitingLagAndDelay(8,8,8 samples)", LimitingLagAndDelay(8, 8, 8)),
        ("limiting_lag_and_delay(lag 1, delay 40)", LimitingLagAndDelay(1, 40, 16)),
        ("limitingLagAndDelay(1,40,1 sample) clock in ns", LimitingLagAndDelay(1, 40, 1)),
        ("limitingLagAndLull(lag 2, lull 3) clock in ms", LimitingLagAndLull(2, 3)),
        ("limitingLagAndLull(lull 3, lag 2)", LimitingLagAndLull(2, 3)),
        ("limitingTimestampAndWallClockLag(3,10)", LimitingTimestampAndWallClockLag(3, 10)),
        ("limitingTimestampAndWallClockLag(wall clock lag 10, timestamp=3)", LimitingTimestampAndWallClockLag(3, 10)),
        ("limitingRealTimeLag(5)", LimitingRealTimeLag(5)),
    ],
)
def test_policies(text: str, settings: PolicySettings) -> None:
    setting = setting_call(text)
    assert setting is not None
    assert policy(setting) == settings
    assert throttle(setting) is None


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("emit_by_frame(3)", EmitByFrame(3)),
        ("emitByFrame(frame 3, offset 1)", EmitByFrame(3, 1)),
        ("emit_by_frame(3, 1)", EmitByFrame(3, 1)),
        ("emitByMinStep(3)", EmitByMinStep(3)),
        ("emit_by_min_step(min step 3)", EmitByMinStep(3)),
        ("no_throttling", NoThrottling()),
        ("noThrottling()", NoThrottling()),
    ],
)
def test_throttles(text: str, settings: Throttle) -> None:
    setting = setting_call(text)
    assert setting is not None
    assert throttle(setting) == settings
    assert policy(setting) is None


@pytest.mark.parametrize("text", ["timestamp history(delay 6, 3 samples)", "timestamp_history(6, 3)"])
def test_histories(text: str) -> None:
    setting = setting_call(text)
    assert setting is not None
    made = history(setting)
    assert made is not None
    assert made.snapshot().interval == 2


@pytest.mark.parametrize("text", ["limiting_lagg(3)", "win(4,4) CNT", "", "lag 3", "the limitingLag(3)"])
def test_what_names_no_setting(text: str) -> None:
    assert setting_call(text) is None


@pytest.mark.parametrize(
    "text", ["limitingLag", "limitingLag(1,2)", "limitingLag(x)", "limitingLag(1 2)", "limitingLag(leg 3)"]
)
def test_wrong_arguments(text: str) -> None:
    setting = setting_call(text)
    assert setting is not None
    with pytest.raises(NotationError):
        policy(setting)


@pytest.mark.parametrize("text", ["limitingLag(3", "limitingLag(3) and more", "limitingLag(3))"])
def test_what_stands_around_a_setting(text: str) -> None:
    with pytest.raises(NotationError):
        setting_call(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("throttle frame 4", EmitByFrame(4)),
        ("throttle 4", EmitByFrame(4)),
        ("throttle frame 4 offset 1", EmitByFrame(4, 1)),
        ("throttle 4 off=1", EmitByFrame(4, 1)),
        ("throttle frame 0", EmitByFrame(0)),
        ("throttle emit_by_frame(4, 1)", EmitByFrame(4, 1)),
        ("emitByMinStep(4)", EmitByMinStep(4)),
        ("throttle min step 4", EmitByMinStep(4)),
        ("throttle none", NoThrottling()),
        ("throttle no_throttling", NoThrottling()),
    ],
)
def test_throttles_of_trackers(text: str, made: Throttle) -> None:
    setup = tracker_setup(f"lag 3, {text}, idle timeout 5, 2 partition(s)")
    assert (setup.policy, setup.throttle, setup.idle_timeout, setup.substreams) == (LimitingLag(3), made, 5, 2)
    assert setup.rest == []


def test_trackers_may_have_any_policy_and_leave_the_rest_alone() -> None:
    setup = tracker_setup("win(10,5) CNT, off=1, limitingLagAndLull(lag 2, lull 3), throttle 1, 3 substreams")
    assert (setup.policy, setup.substreams) == (LimitingLagAndLull(2, 3), 3)
    assert setup.rest == ["win(10,5) CNT", "off=1"]


def test_no_timeout_and_a_timeout_of_zero_are_the_same() -> None:
    for timeout in ("", ", idle timeout 0"):
        tracker = tracker_setup(f"lag 0, throttle 1{timeout}").tracker()
        tracker.add("a", 0)
        assert not tracker.advance(10**9).went_idle


@pytest.mark.parametrize("text", ["lag 3", "throttle 1", "lag x, throttle 1", "lag 3, lag 4, throttle 1", "lag -1"])
def test_trackers_that_make_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        tracker_setup(text).tracker()
