"""The setup of a substream tracker, in the notation of the groups MAP and E2E."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkjet.time import (
    EmitByFrame,
    EmitByMinStep,
    LimitingLag,
    NoThrottling,
    PolicySettings,
    SubstreamTracker,
    Throttle,
)
from tests.conformance.notation import integer, split
from tests.conformance.settings import policy, setting_call, throttle
from tests.conformance.verdicts import NotationError

_NUMBER = r"([+-]?\w+)"
_PHRASES: tuple[tuple[re.Pattern[str], str, Callable[..., object]], ...] = (
    (re.compile(rf"lag {_NUMBER}"), "policy", LimitingLag),
    (re.compile(rf"idle ?timeout {_NUMBER}"), "idle_timeout", int),
    (re.compile(r"(\d+) (?:partition|substream)(?:\(s\)|s)?"), "substreams", int),
    (re.compile(r"throttle (?:none|off)"), "throttle", NoThrottling),
    (re.compile(rf"throttle min ?step {_NUMBER}"), "throttle", EmitByMinStep),
    (re.compile(rf"throttle (?:frame )?{_NUMBER}(?:,? off(?:set)?[ =]{_NUMBER})?"), "throttle", EmitByFrame),
)


@dataclass
class TrackerSetup:
    """A tracker's part of a setup; ``rest`` has the other items."""

    policy: PolicySettings | None = None
    throttle: Throttle | None = None
    idle_timeout: int | None = None
    substreams: int | None = None
    rest: list[str] = field(default_factory=list)

    def tracker(self) -> SubstreamTracker:
        """A tracker with these settings and no substreams yet.

        Raises:
            NotationError: The setup names no policy or no throttle.
        """
        if self.policy is None or self.throttle is None:
            raise NotationError(f"the setup names no {'policy' if self.policy is None else 'throttle'}")
        # In Jet, a timeout of 0 means no timeout.
        return SubstreamTracker(self.policy, self.throttle, self.idle_timeout or None)


def tracker_setup(text: str) -> TrackerSetup:
    """Read items separated by commas: lag or policy, throttle, idle timeout (0: none), number of substreams.

    Raises:
        NotationError: An item is repeated, or a number is malformed.

    >>> setup = tracker_setup("lag 3, throttle frame 10, win(10,5) CNT, idle timeout 5, 2 partition(s)")
    >>> setup.throttle, setup.idle_timeout, setup.substreams, setup.rest
    (EmitByFrame(step=10, offset=0), 5, 2, ['win(10,5) CNT'])
    """
    setup = TrackerSetup()
    for item in split(text, ","):
        name, said = _read(item)
        if name == "rest":
            setup.rest.append(item)
        elif getattr(setup, name) is not None:
            raise NotationError(f"said twice: {item}")
        else:
            setattr(setup, name, said)
    return setup


def _read(item: str) -> tuple[str, object]:
    words = " ".join(item.split())
    setting = setting_call(words.removeprefix("throttle "))
    if setting is not None:
        chosen = policy(setting)
        return ("throttle", throttle(setting)) if chosen is None else ("policy", chosen)
    for phrase, name, make in _PHRASES:
        match = phrase.fullmatch(words)
        if match:
            return name, make(*(integer(number) for number in match.groups() if number is not None))
    return "rest", item
