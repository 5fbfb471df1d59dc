"""The contract of throttles as a suite that every throttle passes, including yours.

Inherit :class:`ThrottleContract` in a pytest test class and give it a fixture ``throttle``::

    class TestMyThrottle(ThrottleContract):
        @pytest.fixture
        def throttle(self):
            return MyThrottle(...)
"""

from __future__ import annotations

import random
from typing import ClassVar

from sparkjet.time import MAX, MIN, Throttle

_CALLS = 400


class ThrottleContract:
    """Tests that each throttle's test class inherits; it provides the fixture ``throttle``.

    Attributes:
        step: Size of the steps between the tests' watermarks. Choose it so that the throttle's own steps are a few of
        these.
    """

    step: ClassVar[int] = 1

    def calls(self) -> list[tuple[int, int]]:
        """The ideal and last emitted watermark of many calls, as made by the engine: the former is the higher one."""
        chance = random.Random(0)  # noqa: S311 - the same ones every time is what is wanted
        found = [(chance.randint(-30, 30) * self.step + chance.randint(0, self.step - 1), MIN) for _ in range(_CALLS)]
        found += [(ideal, ideal - chance.randint(1, 30) * self.step) for ideal, _ in found]
        return [*found, (MIN + 1, MIN), (MAX, MIN), (MAX, MAX - 1), (MAX, 0)]

    def test_it_is_a_throttle(self, throttle: Throttle) -> None:
        assert isinstance(throttle, Throttle)

    def test_what_it_emits_is_an_integer(self, throttle: Throttle) -> None:
        for call in self.calls():
            assert type(throttle.throttle(*call)) is int

    def test_it_emits_nothing_above_the_ideal_watermark(self, throttle: Throttle) -> None:
        for ideal, last_emitted in self.calls():
            answer = throttle.throttle(ideal, last_emitted)
            assert answer <= max(ideal, last_emitted), f"rows between {ideal} and {answer} are dropped"

    def test_it_has_no_state(self, throttle: Throttle) -> None:
        # One object serves every restart of a query and is saved in none of its records.
        calls = self.calls()
        answers = {call: throttle.throttle(*call) for call in calls}
        for call in reversed(calls):
            assert throttle.throttle(*call) == answers[call]
