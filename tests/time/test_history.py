from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.time import MIN, TimestampHistory
from tests.time.laws import PASSING, TIMES, law, through_json

CALLS = st.lists(st.tuples(PASSING, TIMES), max_size=15)


class Stepwise:
    """The rule as Jet's manual-less class has it: slot by slot."""

    def __init__(self, delay: int, samples: int) -> None:
        self.interval = delay // samples
        self.slots = [MIN] * (samples + 1)
        self.advance_at = MIN

    def sample(self, now: int, value: int) -> int:
        steps = 0
        while self.advance_at <= now and steps < len(self.slots):
            self.slots = [*self.slots[1:], self.slots[-1]]
            self.advance_at += self.interval
            steps += 1
        if steps == len(self.slots):
            self.advance_at = now + self.interval
        self.slots[-1] = value
        return self.slots[0]


@law
@given(st.integers(1, 6), st.integers(0, 20), CALLS)
def test_counting_steps_is_taking_them(samples: int, more: int, calls: list[tuple[int, int]]) -> None:
    history, stepwise = TimestampHistory(samples + more, samples), Stepwise(samples + more, samples)
    now = -20
    for passing, value in calls:
        now += passing
        assert history.sample(now, value) == stepwise.sample(now, value)


@law
@given(st.integers(1, 6), st.integers(1, 5), st.integers(-50, 50))
def test_polled_densely_the_answer_is_about_a_delay_old(samples: int, interval: int, start: int) -> None:
    delay = samples * interval
    history = TimestampHistory(delay, samples)
    for now in range(start, start + 4 * delay):
        answer = history.sample(now, now)
        if now >= start + delay:
            assert delay - interval < now - answer <= delay
        elif answer != MIN:
            assert start <= answer


@law
@given(CALLS)
def test_asking_twice_changes_nothing(calls: list[tuple[int, int]]) -> None:
    once, twice = TimestampHistory(9, 3), TimestampHistory(9, 3)
    now = 0
    for passing, value in calls:
        now += passing
        twice.sample(now, value)
        assert twice.sample(now, value) == once.sample(now, value)


@law
@given(CALLS, st.integers(0, 15))
def test_restored_at_any_step_it_goes_on_alike(calls: list[tuple[int, int]], cut: int) -> None:
    history = TimestampHistory(9, 3)
    now = 0
    for passing, value in calls[:cut]:
        now += passing
        history.sample(now, value)
    restored = TimestampHistory(9, 3)
    restored.restore(through_json(history.snapshot()))
    assert restored.snapshot() == history.snapshot()
    for passing, value in calls[cut:]:
        now += passing
        assert restored.sample(now, value) == history.sample(now, value)


def test_the_clock_going_back_counts_as_standing_still() -> None:
    history = TimestampHistory(4, 2)
    assert [history.sample(now, now) for now in (10, 12, 14)] == [MIN, MIN, 10]
    assert history.sample(3, 15) == 10
    assert history.sample(16, 16) == 12


def test_one_sample() -> None:
    history = TimestampHistory(3, 1)
    assert [history.sample(now, now) for now in range(4)] == [MIN, MIN, MIN, 2]


@pytest.mark.parametrize(("delay", "samples"), [(0, 1), (3, 4), (5, 0), (5, -1), (-5, 1)])
def test_without_a_time_unit_for_each_sample_it_is_refused(delay: int, samples: int) -> None:
    with pytest.raises(AnalysisError):
        TimestampHistory(delay, samples)


def test_a_snapshot_of_other_settings_starts_over() -> None:
    history = TimestampHistory(9, 3)
    for now in range(30):
        history.sample(now, now)
    other = TimestampHistory(12, 3)
    other.restore(history.snapshot())
    assert other.snapshot() == TimestampHistory(12, 3).snapshot()


def test_what_is_not_a_snapshot_changes_nothing() -> None:
    history = TimestampHistory(9, 3)
    history.sample(1, 1)
    before = history.snapshot()
    plain = through_json(before)
    for broken in (None, {}, {**plain, "slots": [1, None]}, {**plain, "advance_at": "soon"}):
        with pytest.raises(RecoveryError):
            history.restore(broken)
    assert history.snapshot() == before
