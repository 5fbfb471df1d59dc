"""A naive model of the trackers: for a fixed lag, by level instead of by transition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from sparkjet.time import (
    MIN,
    Advance,
    InputTracker,
    PolicySettings,
    SubstreamProgress,
    SubstreamTracker,
    emit_by_frame,
    limiting_lag,
)
from tests.time.laws import PASSING, TIMES

CaughtUp: TypeAlias = dict[str, bool | None]
TIMEOUTS = st.one_of(st.none(), st.integers(1, 15))
TOLERANCE = 6
"""How far a clock may go back without effect, in the trackers and their models."""


@dataclass(frozen=True)
class Settings:
    """Settings of one tracker and of its model."""

    lag: int
    step: int
    idle_timeout: int | None
    discover: int | None
    substream_timeout: int | None

    def tracker(self, policy: PolicySettings | None = None) -> SubstreamTracker:
        return SubstreamTracker(
            limiting_lag(self.lag) if policy is None else policy,
            emit_by_frame(self.step),
            self.idle_timeout,
            discover=self.discover,
            substream_timeout=self.substream_timeout,
            tolerance=TOLERANCE,
        )


SETTINGS = st.builds(
    Settings,
    lag=st.integers(0, 5),
    step=st.integers(1, 5),
    # Mostly short: with several inputs it takes all of them to be idle.
    idle_timeout=st.sampled_from([1, 2, 3, 5, 8, 15, None]),
    discover=st.sampled_from([None, None, 1, 4, 25]),
    substream_timeout=st.sampled_from([None, None, 1, 6, 40]),
)


@dataclass(frozen=True)
class Action:
    """Something done to a tracker; ``passing`` may be negative, for clocks go back, and are set back."""

    passing: int
    kind: str
    name: str
    time: int

    def do(self, tracker: SubstreamTracker | InputTracker, now: int) -> None:
        if self.kind == "report":
            tracker.report(self.name, self.time, now)
        elif self.kind == "add":
            tracker.add(self.name, now)
        elif self.kind == "retire" and any(each.id == self.name for each in tracker.progress()):
            tracker.retire(self.name, now)
        elif self.kind == "force":
            tracker.force(self.time)
        elif self.kind == "resume":
            tracker.resume(now)


@dataclass(frozen=True)
class Epoch:
    """Actions one after the other, then the watermark."""

    actions: list[Action]
    passing: int
    caught_up: CaughtUp | None

    def run(self, tracker: SubstreamTracker | InputTracker, now: int) -> tuple[Advance, int]:
        for action in self.actions:
            now += action.passing
            action.do(tracker, now)
        now += self.passing
        return tracker.advance(now, caught_up=self.caught_up), now


def scripts(names: list[str]) -> st.SearchStrategy[list[Epoch]]:
    """Random epochs about these substreams; data are the most frequent."""
    name = st.sampled_from(names)
    passing = st.one_of(st.integers(-4, 3), PASSING, st.sampled_from([-60, -20, -7]))
    kinds = st.sampled_from(["report"] * 6 + ["add", "add", "retire", "force", "resume"])
    caught_up = st.one_of(st.none(), st.dictionaries(name, st.sampled_from([True, False, None])))
    actions = st.lists(st.builds(Action, passing, kinds, name, TIMES), max_size=4)
    return st.lists(st.builds(Epoch, actions, st.one_of(passing, st.just(50)), caught_up), max_size=15)


@dataclass
class TrackerModel:
    """One input: its substreams, what they reported, and which of them are live now."""

    settings: Settings
    heard: dict[str, int] = field(default_factory=dict)
    data_at: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    caught_up: CaughtUp = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    live: list[str] = field(default_factory=list)
    first: int | None = None
    discovering: bool = False
    emitted: int = MIN
    top: int = MIN

    def report(self, name: str, time: int, now: int) -> None:
        self.retired.discard(name)
        self.add(name, now)
        self.heard[name] = self.data_at[name] = now
        self.highest[name] = max(self.highest.get(name, MIN), time)

    def add(self, name: str, now: int) -> None:
        if name not in self.reached and name not in self.retired:
            self.heard[name], self.reached[name] = now, MIN

    def retire(self, name: str) -> None:
        for reported in (self.heard, self.data_at, self.highest, self.reached, self.caught_up):
            reported.pop(name, None)
        self.retired.add(name)

    def set_back(self, before: int, now: int) -> None:
        def noted(at: int) -> int:
            return at if at <= now else now - (before - at)

        self.heard = {name: noted(at) for name, at in self.heard.items()}
        self.data_at = {name: noted(at) for name, at in self.data_at.items()}
        self.first = None if self.first is None else noted(self.first)

    def settle(self, now: int, caught_up: CaughtUp) -> None:
        silent = {name: now - heard for name, heard in self.heard.items()}
        for name, silence in silent.items():
            if self.settings.substream_timeout is not None and silence >= self.settings.substream_timeout:
                self.retire(name)
        timeout = self.settings.idle_timeout
        self.caught_up = {name: caught_up.get(name) for name in self.heard}
        self.live = [
            name for name in self.heard if timeout is None or silent[name] < timeout or caught_up.get(name) is False
        ]
        for name in self.live:
            if name in self.highest:
                self.reached[name] = self.highest[name] - self.settings.lag
            self.top = max(self.top, self.reached[name])
        self.discovering = self.settings.discover is not None and now < (self.first or 0) + self.settings.discover
        if not self.discovering:
            ideal = min((self.reached[name] for name in self.live), default=self.top)
            self.emitted = max(self.emitted, ideal // self.settings.step * self.settings.step)


@dataclass
class UnionModel:
    """Several inputs by prefix."""

    inputs: dict[str, TrackerModel]
    now: int = MIN
    watermark: int = MIN
    reported_idle: bool = False

    def run(self, epoch: Epoch, now: int) -> Advance:
        for action in epoch.actions:
            now += action.passing
            self.do(action, now)
        self.tick(now + epoch.passing, *self.inputs.values())
        for prefix, each in self.inputs.items():
            known = {name.removeprefix(prefix): value for name, value in (epoch.caught_up or {}).items()}
            each.settle(
                self.now, {name: known[name] for name in each.heard if prefix + name in (epoch.caught_up or {})}
            )
        waited_for = [each.emitted for each in self.inputs.values() if each.live or each.discovering]
        highest = max(each.emitted for each in self.inputs.values())
        before, reported_before = self.watermark, self.reported_idle
        self.watermark = max(before, min(waited_for, default=highest))
        self.reported_idle = not waited_for
        return Advance(
            self.watermark if self.watermark > before else None, went_idle=self.reported_idle and not reported_before
        )

    def tick(self, now: int, *inputs: TrackerModel) -> None:
        if now < self.now - TOLERANCE:
            for each in self.inputs.values():
                each.set_back(self.now, now)
            self.now = now
        self.now = max(self.now, now)
        for each in inputs:
            each.first = self.now if each.first is None else each.first

    def do(self, action: Action, now: int) -> None:
        prefix = next(prefix for prefix in self.inputs if action.name.startswith(prefix))
        each, name = self.inputs[prefix], action.name.removeprefix(prefix)
        if action.kind == "report":
            self.tick(now, each)
            each.report(name, action.time, self.now)
            self.reported_idle = False
        elif action.kind == "add":
            self.tick(now, each)
            each.add(name, self.now)
        elif action.kind == "retire" and name in each.heard:
            self.tick(now, each)
            each.retire(name)
        elif action.kind == "resume":
            self.tick(now, *self.inputs.values())
            for other in self.inputs.values():
                other.heard = dict.fromkeys(other.heard, self.now)
        elif action.kind == "force":
            self.watermark = max(self.watermark, action.time)
            for other in self.inputs.values():
                other.emitted = max(other.emitted, action.time)

    def progress(self) -> list[SubstreamProgress]:
        waited_for = [each.reached[name] for each in self.inputs.values() for name in each.live]
        return [
            SubstreamProgress(
                prefix + name,
                reached,
                idle=name not in each.live,
                holds=name in each.live and reached == min(waited_for),
                last_data_at=each.data_at.get(name),
                caught_up=each.caught_up[name],
            )
            for prefix, each in self.inputs.items()
            for name, reached in each.reached.items()
        ]


def model(settings: dict[str, Settings]) -> UnionModel:
    return UnionModel({prefix: TrackerModel(each) for prefix, each in settings.items()})


def union(settings: dict[str, Settings], policies: dict[str, Any] | None = None) -> InputTracker:
    """The real thing with the same settings."""
    trackers = {prefix: each.tracker((policies or {}).get(prefix)) for prefix, each in settings.items()}
    return InputTracker(trackers, tolerance=TOLERANCE)
