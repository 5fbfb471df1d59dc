from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import (
    MIN,
    Advance,
    InputsState,
    InputTracker,
    PolicySettings,
    SubstreamTracker,
    emit_by_frame,
    emit_by_min_step,
    limiting_lag,
)
from tests.time.laws import ANY_POLICY, law, through_json
from tests.time.model import SETTINGS, Epoch, Settings, model, scripts, union

PREFIXES = ["1/1/", "1/2/", "2/"]
SEVERAL = st.fixed_dictionaries(dict.fromkeys(PREFIXES, SETTINGS))
SCRIPTS = scripts([prefix + name for prefix in PREFIXES for name in "ab"])


def two(**settings: Any) -> InputTracker:
    """Two inputs without lag and throttle; the settings are the second's."""
    return InputTracker({"a/": SubstreamTracker(limiting_lag(0)), "b/": SubstreamTracker(limiting_lag(0), **settings)})


def holding(inputs: InputTracker) -> list[str]:
    return [progress.id for progress in inputs.progress() if progress.holds]


@law
@given(SEVERAL, SCRIPTS)
def test_inputs_answer_as_the_naive_model(settings: dict[str, Settings], script: list[Epoch]) -> None:
    inputs, oracle = union(settings), model(settings)
    now = 0
    for epoch in script:
        expected = oracle.run(epoch, now)
        advance, now = epoch.run(inputs, now)
        assert advance == expected
        assert inputs.watermark == oracle.watermark
        assert inputs.progress() == oracle.progress()
        assert inputs.discovering(now) == any(each.discovering for each in oracle.inputs.values())


@law
@given(SETTINGS, ANY_POLICY, scripts(["a", "b", "c"]))
def test_a_single_input_is_its_tracker(settings: Settings, policy: PolicySettings, script: list[Epoch]) -> None:
    inputs, alone = union({"": settings}, {"": policy}), settings.tracker(policy)
    now = 0
    for epoch in script:
        expected, _ = epoch.run(alone, now)
        advance, now = epoch.run(inputs, now)
        assert advance == expected
        assert inputs.watermark == alone.watermark
        assert inputs.progress() == alone.progress()
        assert inputs.discovering(now) == alone.discovering(now)


@law
@given(SEVERAL, st.fixed_dictionaries(dict.fromkeys(PREFIXES, ANY_POLICY)), SCRIPTS)
def test_restored_after_every_step_they_go_on_alike(
    settings: dict[str, Settings], policies: dict[str, PolicySettings], script: list[Epoch]
) -> None:
    inputs, restored = union(settings, policies), union(settings, policies)
    now = 0
    for epoch in script:
        expected, _ = epoch.run(inputs, now)
        advance, now = epoch.run(restored, now)
        assert advance == expected
        assert restored.progress() == inputs.progress()
        snapshot = through_json(restored.snapshot())
        assert snapshot == through_json(inputs.snapshot())
        restored = union(settings, policies)
        restored.report("2/forgotten", 99, now=99)
        restored.restore(snapshot)


@law
@given(SEVERAL, st.fixed_dictionaries(dict.fromkeys(PREFIXES, ANY_POLICY)), SCRIPTS)
def test_the_watermark_only_grows(
    settings: dict[str, Settings], policies: dict[str, PolicySettings], script: list[Epoch]
) -> None:
    inputs = union(settings, policies)
    now, last = 0, MIN
    for epoch in script:
        forced = max((action.time for action in epoch.actions if action.kind == "force"), default=MIN)
        advance, now = epoch.run(inputs, now)
        last = max(last, forced)
        if advance.watermark is not None:
            assert advance.watermark > last
            last = advance.watermark
        assert inputs.watermark == last


def test_the_input_furthest_behind_holds_the_query() -> None:
    inputs = two()
    inputs.report("a/1", 20, 0)
    inputs.report("a/2", 10, 0)
    assert inputs.advance(0) == Advance(10, went_idle=False)
    # The input b has no substream yet: it is idle, as a task of Jet without partitions is.
    inputs.report("b/1", 5, 1)
    inputs.report("a/2", 30, 1)
    assert inputs.advance(1) == Advance()
    assert holding(inputs) == ["b/1"]
    inputs.report("b/1", 15, 2)
    assert inputs.advance(2) == Advance(15)


def test_substreams_of_equal_watermarks_hold_over_all_inputs() -> None:
    inputs = two()
    inputs.report("a/1", 10, 0)
    inputs.report("a/2", 20, 0)
    inputs.report("b/1", 10, 0)
    inputs.advance(0)
    assert holding(inputs) == ["a/1", "b/1"]


def test_an_idle_input_does_not_hold_and_revived_it_never_lowers() -> None:
    inputs = two(idle_timeout=5)
    inputs.report("a/1", 20, 0)
    inputs.report("b/1", 10, 0)
    assert inputs.advance(0) == Advance(10)
    assert inputs.advance(5) == Advance(20)
    assert holding(inputs) == ["a/1"]
    inputs.report("a/1", 30, 6)
    inputs.report("b/1", 12, 6)
    assert inputs.advance(6) == Advance()
    assert holding(inputs) == ["b/1"]
    inputs.report("b/1", 25, 7)
    assert inputs.advance(7) == Advance(25)


def test_an_idle_input_with_a_new_substream_is_waited_for_though_it_has_no_data() -> None:
    inputs = two(idle_timeout=5)
    inputs.report("b/1", 10, 0)
    inputs.report("a/1", 10, 5)
    assert inputs.advance(5) == Advance(10)
    inputs.add("b/2", 6)
    inputs.report("a/1", 20, 6)
    assert inputs.advance(6) == Advance()
    assert inputs.advance(11) == Advance(20)


def test_an_idle_input_with_unread_data_is_waited_for() -> None:
    inputs = two(idle_timeout=5)
    inputs.report("b/1", 10, 0)
    inputs.report("a/1", 20, 5)
    assert inputs.advance(5, caught_up={"b/1": True, "a/1": False}) == Advance(20)
    assert [progress.caught_up for progress in inputs.progress()] == [False, True]
    inputs.report("a/1", 30, 6)
    assert inputs.advance(6, caught_up={"b/1": False}) == Advance()


def test_all_idle_the_highest_watermark_of_all_leaves_once() -> None:
    trackers = {prefix: SubstreamTracker(limiting_lag(0), idle_timeout=5) for prefix in ("a/", "b/")}
    inputs = InputTracker(trackers)
    inputs.report("a/1", 10, 0)
    inputs.report("b/1", 20, 0)
    inputs.report("b/2", 30, 0)
    assert inputs.advance(0) == Advance(10)
    assert inputs.advance(5) == Advance(30, went_idle=True)
    assert inputs.advance(6) == Advance()
    inputs.report("a/1", 11, 7)
    assert inputs.advance(7) == Advance()
    assert inputs.advance(12) == Advance(None, went_idle=True)


def test_the_last_to_go_idle_releases_what_an_idle_one_had_reached() -> None:
    trackers = {"a/": SubstreamTracker(limiting_lag(0), idle_timeout=5)}
    inputs = InputTracker({**trackers, "b/": SubstreamTracker(limiting_lag(0), idle_timeout=8)})
    inputs.report("a/1", 30, 0)
    inputs.report("b/1", 10, 0)
    assert inputs.advance(0) == Advance(10)
    assert inputs.advance(5) == Advance()
    assert inputs.advance(8) == Advance(30, went_idle=True)


def test_a_discovering_input_holds_everything() -> None:
    inputs = two(discover=10)
    inputs.report("a/1", 20, 0)
    assert inputs.advance(0) == Advance()
    assert inputs.discovering(9)
    inputs.report("b/late", 5, 9)
    assert inputs.advance(9) == Advance()
    assert not inputs.discovering(10)
    assert inputs.advance(10) == Advance(5)


def test_an_idle_input_that_discovers_again_after_a_restart_holds_the_others() -> None:
    inputs = two()
    inputs.report("a/1", 20, 0)
    assert inputs.advance(0) == Advance(20)
    restarted = two(discover=10)
    restarted.restore(through_json(inputs.snapshot()))
    restarted.report("a/1", 30, 5)
    assert restarted.advance(5) == Advance()
    assert restarted.advance(10) == Advance(30)


def test_each_input_has_its_own_throttle() -> None:
    inputs = InputTracker(
        {
            "a/": SubstreamTracker(limiting_lag(0), emit_by_frame(10)),
            "b/": SubstreamTracker(limiting_lag(3), emit_by_frame(4)),
        }
    )
    inputs.report("a/1", 19, 0)
    inputs.report("b/1", 19, 0)
    assert inputs.advance(0) == Advance(10)
    inputs.report("a/1", 20, 1)
    assert inputs.advance(1) == Advance(16)


def test_retiring_the_last_that_holds_releases_the_others() -> None:
    inputs = two()
    inputs.add("b/1", 0)
    inputs.report("a/1", 20, 0)
    assert inputs.advance(0) == Advance()
    inputs.retire("b/1", 1)
    assert inputs.advance(1) == Advance(20)
    inputs.add("b/1", 2)
    inputs.report("a/1", 30, 2)
    assert inputs.advance(2) == Advance(30)
    assert [progress.id for progress in inputs.progress()] == ["a/1"]


def test_force_raises_for_good_and_counts_for_every_throttle() -> None:
    inputs = InputTracker({prefix: SubstreamTracker(limiting_lag(0), emit_by_min_step(5)) for prefix in ("a/", "b/")})
    inputs.report("a/1", 10, 0)
    inputs.report("b/1", 10, 0)
    assert inputs.advance(0) == Advance(10)
    inputs.force(50)
    inputs.force(20)
    assert inputs.watermark == 50
    inputs.report("a/1", 60, 1)
    inputs.report("b/1", 54, 1)
    assert inputs.advance(1) == Advance()
    inputs.report("b/1", 55, 2)
    assert inputs.advance(2) == Advance(55)


def test_after_a_restart_silence_counts_from_the_start() -> None:
    inputs = two(idle_timeout=5)
    inputs.report("a/1", 20, 0)
    inputs.report("b/1", 10, 0)
    inputs.advance(0)
    restarted = two(idle_timeout=5)
    restarted.restore(through_json(inputs.snapshot()))
    restarted.resume(100)
    assert restarted.advance(104) == Advance()
    assert restarted.advance(105) == Advance(20)


def test_inputs_in_another_order_find_their_own_state() -> None:
    inputs = two()
    inputs.report("a/1", 20, 0)
    inputs.report("b/1", 10, 0)
    inputs.advance(0)
    reordered = InputTracker({prefix: SubstreamTracker(limiting_lag(0)) for prefix in ("b/", "a/")})
    reordered.restore(through_json(inputs.snapshot()))
    reordered.report("b/1", 15, 1)
    assert reordered.advance(1) == Advance(15)
    assert [progress.id for progress in reordered.progress()] == ["b/1", "a/1"]


def test_the_clock_is_one_for_all_inputs() -> None:
    inputs = two(idle_timeout=5)
    inputs.report("a/1", 20, 100)
    inputs.report("b/1", 10, 50)
    assert inputs.advance(104) == Advance(10)
    assert [progress.last_data_at for progress in inputs.progress()] == [100, 100]


def test_names_of_unknown_inputs_are_refused() -> None:
    inputs = InputTracker({"orders/": SubstreamTracker(limiting_lag(0)), "1/2/": SubstreamTracker(limiting_lag(0))})
    inputs.add("orders/trades-1", 0)
    for call in (
        lambda: inputs.add("order/a", 0),
        lambda: inputs.report("order/a", 5, 0),
        lambda: inputs.retire("order/a", 0),
        lambda: inputs.advance(0, caught_up={"order/a": True}),
    ):
        with pytest.raises(AnalysisError, match=r"'order/a' is of no input.*did you mean \"orders/\""):
            call()
    with pytest.raises(AnalysisError, match="no substream 'orders/trades-2': did you mean \"orders/trades-1\""):
        inputs.retire("orders/trades-2", 0)


def test_inputs_that_cannot_be_distinguished_are_refused() -> None:
    for prefixes in (["a", "a/"], ["", "b/"], ["1/2/", "x", "1/"]):
        with pytest.raises(AnalysisError, match="begin with another's"):
            InputTracker({prefix: SubstreamTracker(limiting_lag(0)) for prefix in prefixes})


def test_without_inputs_there_is_no_watermark() -> None:
    inputs = InputTracker({})
    restored = InputTracker({})
    restored.restore(inputs.snapshot())
    for each in (inputs, restored):
        each.resume(3)
        assert each.advance(5) == Advance(None, False)
        assert (each.watermark, each.progress(), each.discovering(5)) == (MIN, [], False)
        with pytest.raises(AnalysisError, match="'a': a query without windows has no watermark"):
            each.retire("a", 5)
    with pytest.raises(RecoveryError, match=r"disappeared \[''\]"):
        inputs.restore(InputTracker({"": SubstreamTracker(limiting_lag(0))}).snapshot())


def test_the_snapshot_of_other_inputs_is_refused() -> None:
    inputs = two()
    snapshot = InputTracker({prefix: SubstreamTracker(limiting_lag(0)) for prefix in ("b/", "c/")}).snapshot()
    with pytest.raises(RecoveryError, match=r"appeared \['a/'\], disappeared \['c/'\]"):
        inputs.restore(snapshot)


def test_an_input_that_has_gone_no_longer_holds_and_one_that_has_come_does() -> None:
    inputs = two()
    inputs.report("a/1", 30, now=1)
    inputs.report("b/1", 20, now=1)
    assert inputs.advance(now=1).watermark == 20
    other = InputTracker({"x/": SubstreamTracker(limiting_lag(0))})
    other.restore(through_json(inputs.snapshot().among({"x/": "a/"}, other.snapshot())))
    assert other.watermark == 20
    # Nobody says anything of it.
    assert other.advance(now=2).watermark == 30
    third = InputTracker({prefix: SubstreamTracker(limiting_lag(0)) for prefix in ("a/", "c/")})
    third.restore(through_json(other.snapshot().among({"a/": "x/", "c/": None}, third.snapshot())))
    third.add("c/1", now=3)
    third.report("a/1", 50, now=3)
    assert third.advance(now=3).watermark is None
    assert third.watermark == 30
    third.report("c/1", 45, now=4)
    assert third.advance(now=4).watermark == 45


def test_where_all_are_idle_one_that_has_gone_releases_nothing_more_and_one_that_comes_holds() -> None:
    inputs = InputTracker({each: SubstreamTracker(limiting_lag(0), idle_timeout=5) for each in ("a/", "b/")})
    inputs.report("a/1", 30, now=1)
    inputs.report("b/1", 20, now=1)
    assert inputs.advance(now=1).watermark == 20
    assert inputs.advance(now=10) == Advance(30, went_idle=True)
    other = InputTracker({each: SubstreamTracker(limiting_lag(0)) for each in ("a/", "b/", "c/")})
    other.restore(inputs.snapshot().among({"a/": "a/", "b/": "b/", "c/": None}, other.snapshot()))
    other.add("c/1", now=11)
    other.report("b/1", 40, now=11)
    assert other.advance(now=11) == Advance(None, went_idle=False)
    alone = InputTracker({"": SubstreamTracker(limiting_lag(0), idle_timeout=5)})
    alone.restore(inputs.snapshot().among({"": "b/"}, alone.snapshot()))
    assert alone.advance(now=12) == Advance(None, went_idle=False)
    assert alone.watermark == 30


def test_what_is_not_a_snapshot_changes_nothing() -> None:
    inputs = two()
    inputs.report("a/1", 10, 0)
    inputs.advance(0)
    before = inputs.snapshot()
    inputs.report("b/1", 20, 1)
    now = inputs.snapshot()
    plain, damaged, foreign = through_json(before), through_json(before), through_json(before)
    damaged["inputs"]["b/"]["frontier"]["top"] = None
    foreign["coalescer"]["inputs"] = 3
    for broken in (None, {}, {**plain, "now": None}, {**plain, "coalescer": {}}, damaged, foreign):
        with pytest.raises(RecoveryError):
            inputs.restore(broken)
        assert inputs.snapshot() == now


@law
@given(SEVERAL, SCRIPTS, st.lists(st.integers(0, 70), min_size=15, max_size=15))
def test_a_poll_after_which_it_goes_on_alike_need_not_have_been(
    settings: dict[str, Settings], script: list[Epoch], pauses: list[int]
) -> None:
    polled, other = union(settings), union(settings)
    now = 0
    for epoch, pause in zip(script, pauses, strict=False):
        onward = [replace(action, passing=abs(action.passing)) for action in epoch.actions]
        now += pause
        before = other.snapshot()
        polled.advance(now)
        assert before.goes_on_like(msgspec.convert(through_json(before), InputsState))
        if not polled.snapshot().goes_on_like(before):
            # It is kept, and another tracker begins with it.
            other.restore(polled.snapshot())
        onwards = replace(epoch, actions=onward, passing=abs(epoch.passing))
        found = onwards.run(other, now)
        assert found == onwards.run(polled, now)
        now = found[1]
        assert other.snapshot() == polled.snapshot()
