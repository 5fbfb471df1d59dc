from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError
from sparkjet.time import (
    MAX,
    MIN,
    EmitByFrame,
    EmitByMinStep,
    FrameGrid,
    Throttle,
    emit_by_frame,
    emit_by_min_step,
    no_throttling,
)
from tests.time.laws import law

IDEALS = st.lists(st.one_of(st.integers(-30, 30), st.sampled_from([MIN, MIN + 1, MAX])), max_size=20)
STEPS = st.integers(1, 9)


def emitted(throttle: Throttle, ideals: list[int]) -> list[int]:
    """The watermarks that a throttle lets through, one ideal watermark after the other."""
    passed: list[int] = []
    for ideal in ideals:
        last = passed[-1] if passed else MIN
        answer = throttle.throttle(ideal, last)
        if answer > last:
            assert answer <= ideal
            passed.append(answer)
        else:
            assert answer == last
    return passed


@law
@given(IDEALS)
def test_without_throttling_every_new_maximum_passes(ideals: list[int]) -> None:
    maxima = [ideal for i, ideal in enumerate(ideals) if ideal > max([MIN, *ideals[:i]])]
    assert emitted(no_throttling(), ideals) == maxima


@law
@given(IDEALS, STEPS, st.data())
def test_by_frame_only_frame_ends_pass_and_each_that_is_reached(
    ideals: list[int], step: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, step - 1))
    grid = FrameGrid(step, offset)
    floors = [grid.floor_frame(ideal) for ideal in ideals]
    maxima = [floor for i, floor in enumerate(floors) if floor > max([MIN, *floors[:i]])]
    assert emitted(emit_by_frame(step, offset), ideals) == maxima


@law
@given(IDEALS, STEPS)
def test_by_min_step_what_passes_is_a_step_apart_and_raw(ideals: list[int], step: int) -> None:
    passed = emitted(emit_by_min_step(step), ideals)
    assert all(later - earlier >= step for earlier, later in zip([MIN, *passed], passed, strict=False))
    assert set(passed) <= set(ideals)
    # Nothing that is due is held back.
    last = passed[-1] if passed else MIN
    assert all(ideal < last + step for ideal in ideals)


@law
@given(IDEALS)
def test_a_step_of_zero_emits_nothing(ideals: list[int]) -> None:
    assert emitted(emit_by_frame(0), ideals) == emitted(emit_by_min_step(0), ideals) == []


def test_durations_may_be_written_out() -> None:
    assert emit_by_frame("1 second", "100 milliseconds") == EmitByFrame(1_000_000, 100_000)
    assert emit_by_min_step("1 second") == EmitByMinStep(1_000_000)


@pytest.mark.parametrize(("step", "offset"), [(-1, 0), (4, 4), (4, -1), (0, 1)])
def test_what_is_not_a_grid_is_refused(step: int, offset: int) -> None:
    with pytest.raises(AnalysisError):
        EmitByFrame(step, offset)


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(AnalysisError, match="emit_by_min_step"):
        emit_by_min_step(-1)


def test_all_are_throttles() -> None:
    assert all(isinstance(each, Throttle) for each in (no_throttling(), emit_by_frame(1), emit_by_min_step(1)))
