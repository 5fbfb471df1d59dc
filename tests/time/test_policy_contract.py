"""The policies keep the contract of policies, and the suite finds what breaks it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from sparkjet.testing.policy_contract import PolicyContract
from sparkjet.time import (
    MIN,
    LimitingRealTimeLag,
    PolicySettings,
    WatermarkPolicy,
    carried,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
)
from tests.contracts import broken

ONE_OF_EACH = [
    limiting_lag(5),
    limiting_lag_and_delay(5, 8, samples=4),
    limiting_lag_and_lull(5, 3),
    limiting_timestamp_and_wall_clock_lag(5, 3),
    limiting_real_time_lag(5),
    carried(),
    carried(otherwise=limiting_lag_and_lull(5, 3)),
]


@pytest.mark.parametrize("settings", ONE_OF_EACH, ids=lambda settings: type(settings).__name__)
class TestContract(PolicyContract):
    pass


class TestContractInSeconds(PolicyContract):
    step = 1_000_000

    @pytest.fixture
    def settings(self) -> PolicySettings:
        return limiting_lag_and_delay("5 seconds", "8 seconds")


@dataclass
class Own:
    """A policy of a user's: the highest timestamp. The classes below it get one thing wrong each."""

    uses_clock: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.state: dict[str, Any] = {"top": MIN}

    def create(self) -> WatermarkPolicy:
        return type(self)()

    def report(self, timestamp: int, now: int) -> None:
        self.state["top"] = max(self.state["top"], timestamp)

    def current(self, now: int) -> int:
        return int(self.state["top"])

    def snapshot(self) -> Any:
        return dict(self.state)

    def restore(self, snapshot: Any) -> None:
        self.state = dict(snapshot)


class Shared(Own):
    def create(self) -> WatermarkPolicy:
        return self


class Alive(Own):
    def snapshot(self) -> Any:
        return self.state


class Forgetful(Own):
    def snapshot(self) -> Any:
        return {"top": MIN}


class Keeping(Own):
    def restore(self, snapshot: Any) -> None:
        self.state = {"top": max(self.state["top"], snapshot["top"])}


class Fractional(Own):
    def current(self, now: int) -> int:
        return self.state["top"] / 2  # type: ignore[return-value]


class Boundless(Own):
    def current(self, now: int) -> int:
        return super().current(now) - 1


class Counting(Own):
    def current(self, now: int) -> int:
        self.state["top"] += 1
        return super().current(now)


class Ticking(Own):
    def current(self, now: int) -> int:
        return max(super().current(now), now)


class WallClock(Own):
    uses_clock = True

    def current(self, now: int) -> int:
        return time.monotonic_ns()


class ForgettingTheRestart(Own):
    """Its hook notes something that its snapshot does not have."""

    uses_clock = True
    resumed = MIN

    def resume(self, now: int) -> None:
        self.resumed = now

    def current(self, now: int) -> int:
        return max(super().current(now), self.resumed)


class NotJson(Own):
    def snapshot(self) -> Any:
        return {"top": self.state["top"], "seen": ()}


def found(settings: Callable[[], PolicySettings]) -> set[str]:
    return broken(PolicyContract, lambda: {"settings": settings()})


def test_a_policy_of_a_users_own_keeps_it() -> None:
    assert found(Own) == set()


@pytest.mark.parametrize(
    ("settings", "test"),
    [
        (Shared, "test_each_substream_has_its_own_state"),
        (Alive, "test_a_snapshot_is_json_and_no_longer_changes"),
        (NotJson, "test_a_snapshot_is_json_and_no_longer_changes"),
        (Forgetful, "test_restored_after_any_epoch_it_goes_on_alike"),
        (Keeping, "test_restoring_forgets_what_was_before"),
        (Fractional, "test_a_watermark_is_a_64_bit_integer"),
        (Boundless, "test_a_watermark_is_a_64_bit_integer"),
        (Counting, "test_asked_again_at_the_same_reading_it_gives_the_same_answer"),
        (Ticking, "test_a_lull_moves_the_watermark_only_if_the_settings_use_the_clock"),
        (WallClock, "test_the_same_epochs_give_the_same_watermarks"),
        (ForgettingTheRestart, "test_it_goes_on_after_a_restart_and_after_the_clock_was_set_back"),
    ],
)
def test_violations_are_found(settings: type[Own], test: str) -> None:
    assert test in found(settings)


def test_malformed_settings_are_found() -> None:
    # Everything else would fail with the error of its missing method.
    with pytest.raises(AssertionError):
        PolicyContract().test_settings_create_policies(limiting_lag(5).create())  # type: ignore[arg-type]


def test_only_the_plain_lag_promises_that_a_lull_changes_nothing() -> None:
    class Lying(LimitingRealTimeLag):
        uses_clock = False

    assert found(lambda: Lying(5)) == {"test_a_lull_moves_the_watermark_only_if_the_settings_use_the_clock"}
