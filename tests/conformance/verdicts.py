"""Verdicts on cases, and the ways in which a case ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(Enum):
    """The outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class NotationError(ValueError):
    """A row, or a part of it, is not in the notation: the case fails."""


class MismatchError(AssertionError):
    """The output is not the expected one: the case fails."""


class SkippedError(Exception):
    """The row is valid, but by its own words or its kind this runner cannot run it."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case.

    >>> str(Verdict("T01", Outcome.FAILED, "expected w(4), got w(5)"))
    'T01 failed expected w(4), got w(5)'
    """

    case: str
    outcome: Outcome
    why: str = ""

    def __str__(self) -> str:
        # One line per case, whatever an exception put into its message.
        why = " ".join(self.why.split())
        return f"{self.case} {self.outcome.value} {why}".rstrip()


def summary(verdicts: Iterable[Verdict]) -> str:
    """The last line of a run.

    >>> summary([Verdict("T01", Outcome.PASSED), Verdict("S21", Outcome.SKIPPED, "early")])
    '1 passed, 0 failed, 1 skipped'
    """
    counts = Counter(verdict.outcome for verdict in verdicts)
    return ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)


def require_equal(expected: object, actual: object, where: str) -> None:
    """End the case as failed unless the two are equal.

    Raises:
        MismatchError: They differ.
    """
    if expected != actual:
        raise MismatchError(f"{where}: expected {expected}, got {actual}")
