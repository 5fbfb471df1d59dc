"""The contract of watermark policies as a suite that every policy passes, including yours.

Inherit :class:`PolicyContract` in a pytest test class and give it a fixture ``settings``::

    class TestMyPolicy(PolicyContract):
        @pytest.fixture
        def settings(self):
            return MyPolicy(lag=5)
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from sparkjet.time import MAX, MIN, Json, PolicySettings, WatermarkPolicy, uses_clock

_RUNS = 40
_LONGEST = 15
_BACK = 1000
"""Steps by which a clock is set back: more than any run is long."""


class Action(NamedTuple):
    """The events of an epoch: the clock reading, and the substream's highest timestamp if it had rows."""

    now: int
    timestamp: int | None


def through_json(snapshot: Json) -> Json:
    """A snapshot as read back from a record."""
    return json.loads(json.dumps(snapshot))


def act(policy: WatermarkPolicy, action: Action) -> int:
    """Run an epoch as the engine does: at most one report, then the question for the watermark."""
    if action.timestamp is not None:
        policy.report(action.timestamp, action.now)
    return policy.current(action.now)


class PolicyContract:
    """Tests that each policy's test class inherits; it provides the fixture ``settings``.

    Attributes:
        step: Length of the steps in which the tests' event time and clock advance. Choose it so that the policy's lags
            and timeouts are a few steps long.
    """

    step: ClassVar[int] = 1

    def runs(self) -> Iterator[list[Action]]:
        """Epochs with disorder, lulls and a clock that does not go back; the same in every run of the tests."""
        for seed in range(_RUNS):
            chance = random.Random(seed)  # noqa: S311 - the same ones every time is what is wanted
            now, actions = 0, []
            for _ in range(chance.randint(1, _LONGEST)):
                now += chance.randint(0, 12) * self.step
                timestamp = chance.randint(-60, 60) * self.step if chance.random() < 2 / 3 else None
                actions.append(Action(now, timestamp))
            yield actions

    def test_settings_create_policies(self, settings: PolicySettings) -> None:
        assert isinstance(settings, PolicySettings)
        assert isinstance(settings.create(), WatermarkPolicy)

    def test_each_substream_has_its_own_state(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            one, other = settings.create(), settings.create()
            before = through_json(other.snapshot())
            for action in actions:
                act(one, action)
            assert through_json(other.snapshot()) == before

    def test_the_same_epochs_give_the_same_watermarks(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            one, other = settings.create(), settings.create()
            assert [act(one, action) for action in actions] == [act(other, action) for action in actions]

    def test_a_watermark_is_a_64_bit_integer(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            policy = settings.create()
            extreme = [Action(actions[-1].now, timestamp) for timestamp in (MIN + 1, MAX - 1)]
            for action in [*actions, *extreme]:
                watermark = act(policy, action)
                assert type(watermark) is int
                assert MIN <= watermark <= MAX

    def test_asked_again_at_the_same_reading_it_gives_the_same_answer(self, settings: PolicySettings) -> None:
        # A tick asks, and so does the resulting epoch.
        for actions in self.runs():
            policy = settings.create()
            for action in actions:
                assert act(policy, action) == policy.current(action.now)

    def test_a_snapshot_is_json_and_no_longer_changes(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            policy = settings.create()
            act(policy, actions[0])
            snapshot = policy.snapshot()
            before = through_json(snapshot)
            assert snapshot == before
            for action in actions[1:]:
                act(policy, action)
            assert snapshot == before

    def test_restored_after_any_epoch_it_goes_on_alike(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            for cut in range(len(actions)):
                policy = settings.create()
                for action in actions[:cut]:
                    act(policy, action)
                restored = settings.create()
                restored.restore(through_json(policy.snapshot()))
                assert restored.snapshot() == policy.snapshot()
                assert [act(restored, a) for a in actions[cut:]] == [act(policy, a) for a in actions[cut:]]

    def test_restoring_forgets_what_was_before(self, settings: PolicySettings) -> None:
        # A failed epoch is run again from the snapshot taken before it.
        for actions in self.runs():
            policy = settings.create()
            before = through_json(policy.snapshot())
            first = [act(policy, action) for action in actions]
            policy.restore(before)
            assert [act(policy, action) for action in actions] == first

    def test_a_lull_moves_the_watermark_only_if_the_settings_use_the_clock(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            policy = settings.create()
            watermark = [act(policy, action) for action in actions][-1]
            assert policy.current(actions[-1].now + _BACK * self.step) == watermark or uses_clock(settings)

    def test_it_goes_on_after_a_restart_and_after_the_clock_was_set_back(self, settings: PolicySettings) -> None:
        for actions in self.runs():
            policy = settings.create()
            for action in actions:
                act(policy, action)
            last = actions[-1].now
            for hook, arguments in (("resume", (last,)), ("set_back", (last, last - _BACK * self.step))):
                if hasattr(policy, hook):
                    getattr(policy, hook)(*arguments)
                restored = settings.create()
                restored.restore(through_json(policy.snapshot()))
                following = [Action(arguments[-1] + n * self.step, None) for n in range(_LONGEST)]
                assert [act(restored, a) for a in following] == [act(policy, a) for a in following]
