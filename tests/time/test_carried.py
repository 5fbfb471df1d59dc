"""Watermarks that come with the rows: of each substream, coalesced to the least, restored, and none at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import (
    MIN,
    InputTracker,
    SubstreamTracker,
    WriterProgress,
    carried,
    delay_of,
    emit_by_frame,
    least_carried,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    uses_clock,
)
from tests.time.laws import TIMES, law, through_json

NAMES = ("a", "b", "c")
CARRIED = st.one_of(st.just(MIN), TIMES)
EPOCHS = st.lists(
    st.tuples(st.fixed_dictionaries(dict.fromkeys(NAMES, CARRIED)), st.dictionaries(st.sampled_from(NAMES), TIMES)),
    max_size=12,
)


def a_tracker(step: int = 1) -> SubstreamTracker:
    tracker = SubstreamTracker(carried(), emit_by_frame(step))
    for name in NAMES:
        tracker.add(name, 0)
    return tracker


def run(tracker: SubstreamTracker, now: int, epoch: tuple[dict[str, int], dict[str, int]]) -> int:
    """An epoch as the engine runs it: what has arrived, what its offsets carry, then the watermark."""
    found, rows = epoch
    for name, time in rows.items():
        tracker.report(name, time, now)
    for name, watermark in found.items():
        tracker.carry(name, watermark, now)
    tracker.advance(now)
    return tracker.watermark


@law
@given(EPOCHS, st.integers(1, 5))
def test_the_least_counts_whoever_has_rows(epochs: list[Any], step: int) -> None:
    tracker, highest, expected = a_tracker(step), dict.fromkeys(NAMES, MIN), MIN
    for now, (found, rows) in enumerate(epochs):
        highest = {name: max(highest[name], found[name]) for name in NAMES}
        least = min(highest.values())
        if least > MIN:
            expected = max(expected, least - least % step)
        assert run(tracker, now, (found, rows)) == expected


@law
@given(EPOCHS, st.integers(0, 12))
def test_restored_at_any_step_it_goes_on_alike(epochs: list[Any], cut: int) -> None:
    tracker = a_tracker()
    for now, epoch in enumerate(epochs[:cut]):
        run(tracker, now, epoch)
    restored = SubstreamTracker(carried(), emit_by_frame(1))
    restored.restore(through_json(tracker.snapshot()))
    restored.resume(cut)
    for now, epoch in enumerate(epochs[cut:], cut):
        assert run(restored, now, epoch) == run(tracker, now, epoch)


def test_another_policy_counts_as_long_as_nothing_is_carried() -> None:
    tracker = SubstreamTracker(carried(otherwise=limiting_lag(3)))
    tracker.add("a", 0)
    assert run(tracker, 1, ({}, {"a": 10})) == 7
    # The source carries watermarks, and this one has not begun: it must be waited for.
    tracker = SubstreamTracker(carried(otherwise=limiting_lag(3)))
    tracker.add("a", 0)
    assert run(tracker, 1, ({"a": MIN}, {"a": 10})) == MIN
    assert run(tracker, 2, ({"a": 4}, {})) == 4
    # A writer without a watermark has joined.
    assert run(tracker, 3, ({"a": None}, {})) == 7  # type: ignore[dict-item]


def test_substreams_may_have_different_ones() -> None:
    tracker = SubstreamTracker(carried(otherwise=limiting_lag(3)))
    assert run(tracker, 1, ({"a": 5}, {"a": 10, "b": 10})) == 5
    assert run(tracker, 2, ({"a": 9}, {})) == 7


def test_a_new_watermark_is_a_sign_of_life() -> None:
    tracker = SubstreamTracker(carried(), idle_timeout=5)
    for name in ("a", "b"):
        tracker.add(name, 0)
    assert run(tracker, 1, ({"a": 5, "b": 3}, {})) == 3
    assert run(tracker, 5, ({"a": 8, "b": 3}, {})) == 3
    # The same one again is none: of "b" nothing has been heard since 1.
    assert run(tracker, 6, ({"a": 8, "b": 3}, {})) == 8
    assert [each.idle for each in tracker.progress()] == [False, True]
    assert run(tracker, 7, ({"a": 8, "b": 9}, {})) == 8
    assert run(tracker, 8, ({"a": 10, "b": 9}, {})) == 9


def test_an_unknown_or_retired_substream_stays_so() -> None:
    tracker = a_tracker()
    tracker.retire("c", 1)
    assert run(tracker, 2, ({"a": 5, "b": 6, "c": 1, "d": 1}, {})) == 5
    assert [each.id for each in tracker.progress()] == ["a", "b"]


def test_other_policies_ignore_it() -> None:
    tracker = SubstreamTracker(limiting_lag(3))
    assert run(tracker, 1, ({"a": 9}, {"a": 10})) == 7


def test_of_several_inputs_each_has_its_own() -> None:
    tracker = InputTracker({"1/": SubstreamTracker(carried()), "2/": SubstreamTracker(limiting_lag(0))})
    tracker.add("1/a", 0)
    tracker.report("2/b", 10, 1)
    assert tracker.advance(1).watermark is None
    tracker.carry("1/a", 8, 2)
    assert tracker.advance(2).watermark == 8


def test_settings() -> None:
    assert (uses_clock(carried()), delay_of(carried())) == (False, None)
    other = carried(otherwise=limiting_lag_and_lull(3, 5))
    assert (uses_clock(other), delay_of(other)) == (True, 3)
    with pytest.raises(AnalysisError, match=r"otherwise='5 minutes' is not a policy; write e\.g\. carried\(otherwise="):
        carried(otherwise="5 minutes")  # type: ignore[arg-type]


def test_a_policy_of_another_type_starts_over() -> None:
    one = carried(otherwise=limiting_lag(3)).create()
    one.report(10, 1)
    restored = carried(otherwise=limiting_lag_and_delay(3, 5, samples=4)).create()
    restored.restore(through_json(one.snapshot()))
    assert restored.current(1) == MIN
    with pytest.raises(RecoveryError, match="snapshot of carried"):
        restored.restore({"watermark": "5"})


def test_of_several_writers_the_least_counts() -> None:
    one = WriterProgress(query="q", output="out", epoch=3, watermark=7, rows=5, offsets={"0": "17"})
    other = msgspec.structs.replace(one, query="p", watermark=5)
    assert least_carried(each.watermark for each in (one, other)) == 5


def test_later_versions_may_have_more() -> None:
    one = WriterProgress(query="q", output="out", epoch=3, watermark=MIN)
    found = {**msgspec.to_builtins(one), "schema": "new"}
    assert msgspec.convert(found, WriterProgress) == one
