from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import (
    IDLE,
    MIN,
    Signal,
    SubstreamTracker,
    WatermarkCoalescer,
    WatermarkOrderError,
    emit_by_frame,
    limiting_lag,
)
from tests.time.laws import PASSING, TIMES, law, through_json

STEPS = st.lists(
    st.tuples(st.sampled_from(["watermark", "idle", "event", "done", "poll"]), st.integers(0, 2), st.integers(1, 9)),
    max_size=25,
)


class Inputs:
    """Feeds a coalescer without breaking its rules: watermarks rise, nothing follows the end."""

    def __init__(self, inputs: int) -> None:
        self.last = [0] * inputs
        self.idle = [False] * inputs
        self.done = [False] * inputs

    def feed(self, coalescer: WatermarkCoalescer, step: tuple[str, int, int]) -> int | Signal | None:
        action, source, rise = step
        if action == "poll":
            return coalescer.poll()
        source %= len(self.last)
        if self.done[source]:
            return None
        self.idle[source] = action == "idle"
        if action == "watermark":
            self.last[source] += rise
            return coalescer.watermark(source, self.last[source])
        if action == "event":
            coalescer.event(source)
            return None
        if action == "idle":
            return coalescer.idle(source)
        self.done[source] = True
        return coalescer.done(source)

    def active(self) -> list[int]:
        state = zip(self.last, self.idle, self.done, strict=True)
        return [last or MIN for last, idle, done in state if not (idle or done)]


@law
@given(st.integers(1, 3), STEPS)
def test_the_output_is_the_minimum_of_the_active_and_only_grows(inputs: int, steps: list[Any]) -> None:
    coalescer, feed = WatermarkCoalescer(inputs), Inputs(inputs)
    last, top = MIN, MIN
    for step in steps:
        answer = feed.feed(coalescer, step)
        top = max([top, *(each for each in feed.last if each)])
        expected = max(last, min(feed.active(), default=top))
        if isinstance(answer, int):
            assert answer > last
            assert answer == expected
            last = answer
        elif step[0] not in {"event", "poll"}:
            assert last == expected or not feed.active()
        assert coalescer.coalesced == last
        assert coalescer.top == top


@law
@given(st.integers(2, 3), STEPS)
def test_idle_is_reported_only_while_no_input_is_active_and_once(inputs: int, steps: list[Any]) -> None:
    coalescer, feed = WatermarkCoalescer(inputs), Inputs(inputs)
    reported = False
    for step in steps:
        answer = feed.feed(coalescer, step)
        if feed.active() or step[0] in {"event", "watermark"}:
            reported = False
        if answer is IDLE:
            assert not feed.active()
            assert not reported
            assert not all(feed.done)
            reported = True


@law
@given(st.integers(1, 3), STEPS, st.integers(0, 25))
def test_restored_at_any_step_it_goes_on_alike(inputs: int, steps: list[Any], cut: int) -> None:
    coalescer, feed = WatermarkCoalescer(inputs), Inputs(inputs)
    for step in steps[:cut]:
        feed.feed(coalescer, step)
    restored, again = WatermarkCoalescer(inputs), Inputs(inputs)
    restored.restore(through_json(coalescer.snapshot()))
    again.last, again.idle, again.done = list(feed.last), list(feed.idle), list(feed.done)
    assert restored.snapshot() == coalescer.snapshot()
    for step in steps[cut:]:
        assert again.feed(restored, step) == feed.feed(coalescer, step)


@law
@given(
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 12)),
    st.lists(st.tuples(PASSING, st.integers(0, 2), st.one_of(st.none(), TIMES)), max_size=25),
)
def test_a_task_for_each_substream_coalesced_is_one_tracker(
    step: int, timeout: int | None, polls: list[tuple[int, int, int | None]]
) -> None:
    def tracker(names: str) -> SubstreamTracker:
        made = SubstreamTracker(limiting_lag(2), emit_by_frame(step), timeout)
        for name in names:
            made.add(name, 0)
        return made

    whole, tasks, coalescer = tracker("abc"), [tracker(name) for name in "abc"], WatermarkCoalescer(3)
    now = 0
    for passing, task, time in polls:
        now += passing
        name = "abc"[task]
        outputs: list[int | Signal | None] = []
        if time is not None:
            whole.report(name, time, now)
            tasks[task].report(name, time, now)
        own = tasks[task].advance(now)
        if own.watermark is not None:
            outputs.append(coalescer.watermark(task, own.watermark))
        elif time is not None:
            coalescer.event(task)
        if own.went_idle:
            outputs.append(coalescer.idle(task))
        outputs.append(coalescer.poll())
        # A task looks at its own clock only when it is polled.
        noticed = {progress.id: progress.idle or progress.id == name for progress in whole.progress()}
        advance = whole.advance(now, caught_up=noticed)
        expected = [advance.watermark, IDLE if advance.went_idle else None]
        assert [each for each in outputs if each is not None] == [each for each in expected if each is not None]


def test_a_pending_idle_is_taken_back_by_an_event() -> None:
    coalescer = WatermarkCoalescer(2)
    coalescer.watermark(0, 10)
    coalescer.watermark(1, 11)
    coalescer.idle(1)
    assert coalescer.idle(0) == 11
    coalescer.event(0)
    assert coalescer.poll() is None
    assert coalescer.idle(0) is IDLE


def test_a_single_input_passes_through() -> None:
    coalescer = WatermarkCoalescer(1)
    assert [coalescer.watermark(0, 5), coalescer.idle(0), coalescer.idle(0)] == [5, IDLE, IDLE]
    assert coalescer.done(0) is None
    assert coalescer.coalesced == 5


def test_what_was_forced_is_passed_on_no_more() -> None:
    coalescer = WatermarkCoalescer(2)
    coalescer.watermark(0, 10)
    coalescer.force(20)
    coalescer.force(15)
    assert coalescer.coalesced == 20
    assert [coalescer.watermark(1, 12), coalescer.watermark(0, 30), coalescer.watermark(1, 25)] == [None, None, 25]
    assert coalescer.top == 30


def test_no_inputs_emit_nothing() -> None:
    coalescer = WatermarkCoalescer(0)
    assert coalescer.poll() is None
    assert coalescer.coalesced == coalescer.top == MIN


def test_after_the_end_of_an_input_nothing_may_follow() -> None:
    coalescer = WatermarkCoalescer(2)
    coalescer.done(0)
    for call in (coalescer.done, coalescer.idle, coalescer.event, lambda source: coalescer.watermark(source, 5)):
        with pytest.raises(WatermarkOrderError, match="input 0 has ended"):
            call(0)
    with pytest.raises(WatermarkOrderError, match="does not exist"):
        coalescer.idle(2)


@pytest.mark.parametrize("watermark", [9, 10, MIN])
def test_a_watermark_must_rise(watermark: int) -> None:
    coalescer = WatermarkCoalescer(2)
    coalescer.watermark(0, 10)
    with pytest.raises(WatermarkOrderError, match="after 10"):
        coalescer.watermark(0, watermark)


def test_a_negative_number_of_inputs_is_refused() -> None:
    with pytest.raises(AnalysisError, match="-1"):
        WatermarkCoalescer(-1)


def test_what_is_not_a_snapshot_changes_nothing() -> None:
    coalescer = WatermarkCoalescer(2)
    coalescer.watermark(0, 10)
    before = coalescer.snapshot()
    renamed = through_json(before)
    renamed["frontier"]["members"] = {"2": {"watermark": 10, "idle": False}}
    for broken in (None, {}, WatermarkCoalescer(3).snapshot(), {**through_json(before), "idle_pending": 0}, renamed):
        with pytest.raises(RecoveryError):
            coalescer.restore(broken)
    assert coalescer.snapshot() == before
