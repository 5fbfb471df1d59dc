"""Settings in setups: policies, throttles and histories."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from sparkjet.time import (
    EmitByFrame,
    EmitByMinStep,
    LimitingLag,
    LimitingLagAndDelay,
    LimitingLagAndLull,
    LimitingRealTimeLag,
    LimitingTimestampAndWallClockLag,
    NoThrottling,
    PolicySettings,
    Throttle,
    TimestampHistory,
)
from tests.conformance.notation import Call, call, integer
from tests.conformance.verdicts import NotationError

_POLICY_NAMES: dict[str, Callable[..., PolicySettings]] = {
    "limitinglag": LimitingLag,
    "withfixedlag": LimitingLag,
    "limitinglaganddelay": LimitingLagAndDelay,
    "limitinglagandlull": LimitingLagAndLull,
    "limitingtimestampandwallclocklag": LimitingTimestampAndWallClockLag,
    "limitingrealtimelag": LimitingRealTimeLag,
}
_THROTTLES: dict[str, Callable[..., Throttle]] = {
    "nothrottling": NoThrottling,
    "emitbyframe": EmitByFrame,
    "emitbyminstep": EmitByMinStep,
}
HISTORY = "timestamphistory"
"""The plain name of the timestamp history."""
_PARAMETERS = {
    "frame": "step",
    "minstep": "step",
    "off": "offset",
    "sample": "samples",
    "timestamp": "timestamp_lag",
    "timestamplag": "timestamp_lag",
    "wallclock": "wall_clock_lag",
    "wallclocklag": "wall_clock_lag",
}
_UNITS = {"ms", "ns", "us"}
_REMARK = re.compile(r"\bclock\s+in\s+\w+$", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_-]+")

_T = TypeVar("_T")


def plain(name: str) -> str:
    """A name normalized across camelCase, snake_case and words.

    >>> plain("limitingLag") == plain("limiting_lag"), plain("timestamp history")
    (True, 'timestamphistory')
    """
    return re.sub(r"[_\s-]", "", name).lower()


def setting_call(text: str) -> Call | None:
    """A policy, throttle or history written as one call, None if the text starts with something else.

    The name may be two words, empty parentheses may be missing, and a remark about the clock's unit may follow.

    >>> setting_call("limitingLagAndLull(lag 2, lull 3) clock in ms").arguments
    ('lag 2', 'lull 3')
    """
    name, bracket, rest = _REMARK.sub("", text).strip().partition("(")
    if plain(name) not in _POLICY_NAMES.keys() | _THROTTLES.keys() | {HISTORY}:
        return None
    return call(f"{plain(name)}({rest}" if bracket else f"{plain(name)}()")


def numbers(setting: Call) -> tuple[list[int], dict[str, int]]:
    """The numbers of a call by position and by name: ``8``, ``8 samples``, ``lag 2``, ``offset=1``."""
    positional: list[int] = []
    named: dict[str, int] = {}
    for argument in setting.arguments:
        parts = argument.replace("=", " ").split()
        words = [part for part in parts if _WORD.fullmatch(part) and part not in {"MIN", "MAX"}]
        rest = [part for part in parts if part not in words]
        if len(rest) != 1:
            raise NotationError(f"{setting}: no single number in {argument}")
        # The cases' numbers have no unit: a policy's times and its clock are in the same one.
        word = plain("".join(word for word in words if word not in _UNITS))
        if word:
            named[_PARAMETERS.get(word, word)] = integer(rest[0])
        else:
            positional.append(integer(rest[0]))
    return positional, named


def policy(setting: Call) -> PolicySettings | None:
    """The policy that a call names, None if it is not a policy.

    >>> policy(setting_call("limiting_lag_and_delay(8, 8, 8 samples)"))
    LimitingLagAndDelay(lag=8, delay=8, samples=8)
    """
    return _made(_POLICY_NAMES, setting)


def throttle(setting: Call) -> Throttle | None:
    """The throttle that a call names, None if it is not a throttle.

    >>> throttle(setting_call("emitByFrame(3, offset 1)"))
    EmitByFrame(step=3, offset=1)
    """
    return _made(_THROTTLES, setting)


def history(setting: Call) -> TimestampHistory | None:
    """The timestamp history that a call names, None if it is not one.

    >>> history(setting_call("timestamp history(delay 6, 3 samples)")) is None
    False
    """
    return _made({HISTORY: TimestampHistory}, setting)


def _made(known: dict[str, Callable[..., _T]], setting: Call) -> _T | None:
    make = known.get(setting.name)
    if make is None:
        return None
    positional, named = numbers(setting)
    try:
        return make(*positional, **named)
    except TypeError as error:
        raise NotationError(f"{setting}: {error}") from error
