"""The throttles keep the contract of throttles, and the suite finds what breaks it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sparkjet.testing.throttle_contract import ThrottleContract
from sparkjet.time import Throttle, emit_by_frame, emit_by_min_step, no_throttling
from tests.contracts import broken

OURS = [
    no_throttling(),
    emit_by_frame(7),
    emit_by_frame(7, 3),
    emit_by_frame(0),
    emit_by_min_step(7),
    emit_by_min_step(0),
]


@pytest.mark.parametrize("throttle", OURS, ids=repr)
class TestContract(ThrottleContract):
    pass


class TestContractInSeconds(ThrottleContract):
    step = 1_000_000

    @pytest.fixture
    def throttle(self) -> Throttle:
        return emit_by_frame("7 seconds", "1 second")


class RoundingUp:
    def throttle(self, ideal: int, last_emitted: int) -> int:
        return -(-ideal // 10) * 10


@dataclass
class EverySecond:
    """Lets every second watermark through, and so counts them."""

    calls: int = 0

    def throttle(self, ideal: int, last_emitted: int) -> int:
        self.calls += 1
        return last_emitted if self.calls % 2 else ideal


class Fractional:
    def throttle(self, ideal: int, last_emitted: int) -> int:
        return ideal / 2  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("throttle", "test"),
    [
        (RoundingUp(), "test_it_emits_nothing_above_the_ideal_watermark"),
        (EverySecond(), "test_it_has_no_state"),
        (Fractional(), "test_what_it_emits_is_an_integer"),
    ],
)
def test_violations_are_found(throttle: Throttle, test: str) -> None:
    assert test in broken(ThrottleContract, lambda: {"throttle": throttle})


def test_what_is_not_a_throttle_is_found() -> None:
    # Everything else would fail with the error of its missing method.
    with pytest.raises(AssertionError):
        ThrottleContract().test_it_is_a_throttle(object())  # type: ignore[arg-type]
