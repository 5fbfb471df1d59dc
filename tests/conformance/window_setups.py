"""The setup of a window: its kind, its grid, and the aggregate."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sparkjet.time import WindowGrid
from tests.conformance.notation import Call, call, integer, split, tokens
from tests.conformance.verdicts import NotationError

_AGGREGATE = re.compile(r"(SUM|CNT|AVG|MAX|MIN)(-ND)?")
_OFFSET = re.compile(r"off(?:set)?=(.+)")


@dataclass(frozen=True)
class Aggregate:
    """The aggregate over the values of a window.

    ``deduct`` is whether frames that leave are subtracted if that is possible, ``fractional`` whether values have
    decimals.
    """

    function: str
    deduct: bool = True
    fractional: bool = False


@dataclass(frozen=True)
class WindowSetup:
    """A sliding or tumbling window, or a session if ``session`` (its timeout) is set."""

    window: WindowGrid | None
    session: int | None
    aggregate: Aggregate


def window_setup(text: str) -> WindowSetup:
    """Read ``win(size,step)`` or ``session(timeout)``, an offset, and the aggregate, in any order.

    Raises:
        NotationError: Something is missing or unknown.

    >>> window_setup("win(4,2) off=1 SUM-nd").window
    WindowGrid(size=4, step=2, offset=1)
    """
    window, session, aggregate = None, None, None
    rest = []
    for token in tokens(" ".join(split(text, ","))):
        match = _AGGREGATE.fullmatch(token.upper())
        if match and aggregate is None:
            aggregate = Aggregate(match[1], deduct=match[2] is None)
        elif token.startswith("session(") and session is None:
            session = integer(call(token).take(1)[0])
        elif token.startswith("win(") and window is None:
            window = call(token)
        else:
            rest.append(token)
    offset = _offset(rest)
    if aggregate is None or (window is None) == (session is None):
        raise NotationError(f"one window and one aggregate are needed: {text}")
    if session is not None and (session < 1 or offset is not None):
        raise NotationError(f"a session has a timeout of at least 1 and nothing else: {text}")
    return WindowSetup(None if window is None else _grid(window, offset), session, aggregate)


def window_grid(text: str) -> WindowGrid:
    """Read ``win(size,step)`` with an optional offset and nothing else, as in ``restore``.

    Raises:
        NotationError: It is something else.

    >>> window_grid("win(3,1)")
    WindowGrid(size=3, step=1, offset=0)
    """
    first, *rest = tokens(text)
    return _grid(call(first), _offset(rest))


def _grid(window: Call, offset: int | None) -> WindowGrid:
    if window.name != "win":
        raise NotationError(f"not a window: {window}")
    size, step, *third = (integer(number) for number in window.take(2, 3))
    if step < 1 or size % step:
        raise NotationError(f"windows of Jet are whole numbers of steps long: {window}")
    grid = WindowGrid(size, step, *third)
    return grid if offset is None else replace(grid, offset=offset)


def _offset(words: list[str]) -> int | None:
    """The offset, which may be written ``off=1``, ``off 1`` or ``off(1)``."""
    text = "=".join(words).replace("(", "=").replace(")", "")
    if not text:
        return None
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise NotationError(f"not understood: {' '.join(words)}")
    return integer(match[1])
