"""Group COA: coalescing the watermarks of several inputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkjet.time import Signal, WatermarkCoalescer, WatermarkOrderError
from tests.conformance.notation import call, integer, show
from tests.conformance.steps import NOTHING, read_steps
from tests.conformance.verdicts import NotationError, require_equal

if TYPE_CHECKING:
    from tests.conformance.cases import Case

_SETUP = re.compile(r"(\d+)\s+inputs?", re.IGNORECASE)
_ERROR = "ERR"
_IDLE = "IDLE"


def run_coalescing(case: Case) -> None:
    """Check a row ``op -> returned …`` on a :class:`sparkjet.time.WatermarkCoalescer`.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: A call returns something else.
    """
    setup = _SETUP.fullmatch(case.setup)
    if setup is None:
        raise NotationError(f"not understood: {case.setup}")
    coalescer = WatermarkCoalescer(int(setup[1]))
    for step in read_steps(case, clock=False):
        expected = " ".join(_returned(token) for token in step.output) or NOTHING
        try:
            returned = _run(coalescer, step.operation)
        except WatermarkOrderError:
            returned = _ERROR
        require_equal(expected, returned, str(step))


def _run(coalescer: WatermarkCoalescer, text: str) -> str:
    if text == "poll":
        return _show(coalescer.poll())
    if text in {"top", "coalesced"}:
        return show(coalescer.top if text == "top" else coalescer.coalesced)
    operation = call(text)
    if operation.name == "wm":
        source, watermark = operation.take(2)
        if watermark == _IDLE:
            return _show(coalescer.idle(integer(source)))
        return _show(coalescer.watermark(integer(source), integer(watermark)))
    if operation.name == "done":
        return _show(coalescer.done(integer(operation.take(1)[0])))
    if operation.name == "ev":
        coalescer.event(integer(operation.take(1)[0]))
        return NOTHING
    raise NotationError(f"not understood: {text}")


def _show(returned: int | Signal | None) -> str:
    if returned is None:
        return NOTHING
    return _IDLE if isinstance(returned, Signal) else show(returned)


def _returned(token: str) -> str:
    return token if token in {_IDLE, _ERROR} else show(integer(token))
