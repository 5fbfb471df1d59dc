"""Steps of the groups MAP and COA: an operation, an arrow, and its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.conformance.notation import ARROW, integer, tokens
from tests.conformance.verdicts import NotationError

if TYPE_CHECKING:
    from tests.conformance.cases import Case

NOTHING = "-"
"""Output of a step without output."""


@dataclass(frozen=True)
class Step:
    """``@now operation -> output…``; ``now`` is None if the group has no clock."""

    now: int | None
    operation: str
    output: tuple[str, ...]

    def __str__(self) -> str:
        clock = "" if self.now is None else f"@{self.now} "
        return f"{clock}{self.operation}"


def read_steps(case: Case, *, clock: bool) -> list[Step]:
    """The steps of a row's third cell, in order.

    A step starts at its clock reading if the group has one, otherwise at the token before an arrow.

    Raises:
        NotationError: A step is incomplete, or there is none.
    """
    parts = tokens(case.cell(2, "the script"))
    before = 2 if clock else 1
    arrows = [position for position, part in enumerate(parts) if part == ARROW]
    starts = [position - before for position in arrows]
    if not starts or starts[0] != 0:
        raise NotationError(f"the script does not start with a step: {' '.join(parts[:3])}")
    steps = []
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        head, output = parts[start : start + before], parts[start + before + 1 : end]
        if not output:
            raise NotationError(f"{' '.join(head)}: no output; write {NOTHING} for nothing")
        steps.append(Step(_clock(head[0]) if clock else None, head[-1], () if output == [NOTHING] else tuple(output)))
    return steps


def _clock(token: str) -> int:
    if not token.startswith("@"):
        raise NotationError(f"not a clock reading: {token}")
    return integer(token[1:])
