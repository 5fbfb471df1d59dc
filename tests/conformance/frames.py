"""Group FR: frame arithmetic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkjet.time import FrameGrid
from tests.conformance.notation import integer, show
from tests.conformance.verdicts import NotationError, SkippedError, require_equal

if TYPE_CHECKING:
    from tests.conformance.cases import Case

_SETUP = re.compile(r"frame[\s=]+(\w+)(?:[,\s]+off(?:set)?[\s=]+(\w+))?", re.IGNORECASE)
_TOKEN = re.compile(r"([\w+-]+)\s*->\s*\(\s*([\w+-]+)\s*,\s*([\w+-]+)\s*\)(?:[,;\s]+|$)")
_PART = re.compile(rf"\s*({_SETUP.pattern})\s*:(.*)", re.IGNORECASE | re.DOTALL)
_STATEMENT = re.compile(r"\s*(floor|higher)\(\s*([\w+-]+)\s*\)\s*=\s*([\w+-]+)\s*", re.IGNORECASE)


def run_frames(case: Case) -> None:
    """Check a row ``ts->(floor,higher) …``: the two frame ends around each time.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: A frame end is not the expected one.
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


def run_frame_statements(case: Case) -> None:
    """Check prose of the form ``frame 4 off 3: floor(MIN+2)=MIN, …; frame …``, with the frames' numbers in front.

    Raises:
        SkippedError: It contains anything else.
        MismatchError: A frame end is not the expected one.
    """
    for grid, function, time, expected in _statements(case.cell(3, "the expected frame ends")):
        answer = grid.floor_frame if function == "floor" else grid.higher_frame
        where = f"{function}({show(time)}) of frame {grid.step}, offset {grid.offset}"
        require_equal(show(expected), show(answer(time)), where)


def _statements(text: str) -> list[tuple[FrameGrid, str, int, int]]:
    statements = []
    for section in text.replace("<br>", " ").split(";"):
        part = _PART.fullmatch(section)
        found = [_STATEMENT.fullmatch(each) for each in part[4].split(",")] if part else []
        if part is None or None in found:
            raise SkippedError("prose, tested elsewhere")
        try:
            grid = FrameGrid(integer(part[2]), integer(part[3] or "0"))
            read = [(each[1].lower(), integer(each[2]), integer(each[3])) for each in found if each is not None]
        except NotationError as error:
            raise SkippedError("prose, tested elsewhere") from error
        statements += [(grid, *statement) for statement in read]
    return statements
