"""Group POL: watermark policies, the timestamp history, and throttles, each with a controlled clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.time import MIN
from tests.conformance.notation import ARROW, call, integer, show, tokens
from tests.conformance.settings import history, policy, setting_call, throttle
from tests.conformance.verdicts import NotationError, require_equal

if TYPE_CHECKING:
    from sparkjet.time import PolicySettings, Throttle, TimestampHistory
    from tests.conformance.cases import Case


def run_policies(case: Case) -> None:
    """Check a row of one of the three kinds, which its setup determines.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: A result is not the expected one.
    """
    setting = setting_call(case.setup)
    if setting is None:
        raise NotationError(f"no policy, throttle or history: {case.setup}")
    watermarks, samples, emissions = policy(setting), history(setting), throttle(setting)
    if watermarks is not None:
        _run_policy(watermarks, tokens(case.cell(2, "the script")))
    elif samples is not None:
        _run_history(samples, _arrows(case))
    elif emissions is not None:
        _run_throttle(emissions, _arrows(case))


def _run_policy(settings: PolicySettings, script: list[str]) -> None:
    state = settings.create()
    now = 0
    checked = False
    for token in script:
        action, equals, expected = token.partition("=")
        if not equals:
            now = integer(_argument(token, "at"))
            continue
        if action != "cur":
            state.report(integer(_argument(action, "rep")), now)
        require_equal(show(integer(expected)), show(state.current(now)), f"{action} at {show(now)}")
        checked = True
    if not checked:
        raise NotationError("the script asks for nothing")


def _run_history(samples: TimestampHistory, steps: list[tuple[str, str]]) -> None:
    for put, expected in steps:
        now, colon, value = put.partition(":")
        if not colon:
            raise NotationError(f"not understood: {put}{ARROW}{expected}")
        answer = samples.sample(integer(now), integer(value))
        require_equal(show(integer(expected)), show(answer), put)


def _run_throttle(emissions: Throttle, steps: list[tuple[str, str]]) -> None:
    last = MIN
    for ideal, expected in steps:
        answer = emissions.throttle(integer(ideal), last)
        emitted = show(answer) if answer > last else "-"
        require_equal(expected if expected == "-" else show(integer(expected)), emitted, f"ideal watermark {ideal}")
        last = max(last, answer)


def _argument(token: str, name: str) -> str:
    action = call(token)
    if action.name != name:
        raise NotationError(f"not understood: {token}")
    return action.take(1)[0]


def _arrows(case: Case) -> list[tuple[str, str]]:
    """The steps ``left->right``, from the script or the expected cell; the other one is prose."""
    steps: list[tuple[str, str]] = []
    for cell in case.cells[2:4]:
        parts = tokens(cell)
        if ARROW not in parts:
            continue
        if len(parts) % 3 or parts[1::3] != [ARROW] * (len(parts) // 3):
            raise NotationError(f"not understood: {cell}")
        steps += zip(parts[::3], parts[2::3], strict=True)
    if not steps:
        raise NotationError("the script asks for nothing")
    return steps
