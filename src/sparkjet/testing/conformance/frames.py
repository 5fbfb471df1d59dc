"""Group FR: frame arithmetic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkjet.testing.conformance.notation import integer, show
from sparkjet.testing.conformance.verdicts import NotationError, require_equal
from sparkjet.time import FrameGrid

if TYPE_CHECKING:
    from sparkjet.testing.conformance.cases import Case

_SETUP = re.compile(r"frame[\s=]+(\w+)(?:[,\s]+off(?:set)?[\s=]+(\w+))?", re.IGNORECASE)
_TOKEN = re.compile(r"([\w+-]+)\s*->\s*\(\s*([\w+-]+)\s*,\s*([\w+-]+)\s*\)(?:[,;\s]+|$)")


def run_frames(case: Case) -> None:
    """Judge a row ``ts->(floor,higher) …``: the two frame ends around each time.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: A frame end is not the one expected.
    """
    setup = _SETUP.fullmatch(case.setup)
    if setup is None:
        raise NotationError(f"not understood: {case.setup}")
    grid = FrameGrid(integer(setup[1]), integer(setup[2] or "0"))
    text = case.cell(3, "the expected frame ends").replace("<br>", " ")
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise NotationError(f"not understood: {text[position:]}")
        time = integer(token[1])
        expected = f"({token[2]},{token[3]})"
        actual = (grid.floor_frame(time), grid.higher_frame(time))
        if (integer(token[2]), integer(token[3])) != actual:
            require_equal(expected, f"({show(actual[0])},{show(actual[1])})", f"frames around {token[1]}")
        position = token.end()
