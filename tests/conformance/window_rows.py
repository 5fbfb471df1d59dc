"""The output of windows, as expected by rows and as returned by operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, zip_longest

from tests.conformance.notation import call, integer, show, tokens, value
from tests.conformance.verdicts import MismatchError, NotationError

_ROUNDED = 3
"""Number of decimals from which an expected result may be rounded."""


@dataclass(frozen=True)
class WindowRow:
    """A row of a window: ``kind`` is ``r`` (final) or ``early``; ``decimals`` is the number of expected decimals."""

    start: int
    end: int
    key: str
    result: Fraction
    kind: str = "r"
    decimals: int = 0

    def __str__(self) -> str:
        result = show(int(self.result)) if self.result.denominator == 1 else str(float(self.result))
        return f"{self.kind}({show(self.start)},{show(self.end)},{self.key},{result})"

    def matches(self, actual: WindowRow) -> bool:
        """Whether a row equals this one; a floating-point result need only match the decimals that are written."""
        tolerance = max(abs(self.result), Fraction(1)) / 10**9
        if self.decimals >= _ROUNDED:
            tolerance = max(tolerance, Fraction(1, 2 * 10**self.decimals))
        exact = self.result.denominator == 1 and actual.result.denominator == 1
        return (self.kind, self.start, self.end, self.key) == (actual.kind, actual.start, actual.end, actual.key) and (
            self.result == actual.result if exact else abs(self.result - actual.result) <= tolerance
        )


Output = WindowRow | str
"""An output is a row, a watermark ``w(t)``, or ``IDLE``."""


@dataclass(frozen=True)
class Outputs:
    """The whole output of a row's input, in order, and the number of late items."""

    items: tuple[Output, ...]
    late: int

    def require(self, items: Sequence[Output], late: int, *, any_order: bool = False) -> None:
        """Compare with the actual output; the rows of one window may be in any order.

        Args:
            items: The actual output.
            late: How many items were late.
            any_order: Whether all rows between two watermarks may be in any order.

        Raises:
            MismatchError: The output differs.
        """
        pairs = zip_longest(_ordered(self.items, any_order), _ordered(items, any_order))
        for position, (expected, actual) in enumerate(pairs, start=1):
            if not _same(expected, actual):
                raise MismatchError(f"output {position}: expected {expected or 'no more'}, got {actual or 'no more'}")
        if self.late != late:
            raise MismatchError(f"expected late={self.late}, got late={late}")


def read_outputs(text: str) -> Outputs:
    """Read the expected outputs of a row.

    Raises:
        NotationError: They contain something else.

    >>> outputs = read_outputs("r(0,4,a,1) w(12) r(12,16,a,1) w(16) ; late=1")
    >>> [str(item) for item in outputs.items], outputs.late
    (['r(0,4,a,1)', 'w(12)', 'r(12,16,a,1)', 'w(16)'], 1)
    """
    items: list[Output] = []
    late: int | None = None
    for item in tokens(text):
        name, equals, number = item.partition("=")
        if name == "late" and equals and late is None:
            late = integer(number)
        else:
            items.append(item if item == "IDLE" else _output(item))
    return Outputs(tuple(items), late or 0)


def watermark(time: int) -> str:
    """The output for a watermark that is passed on."""
    return f"w({show(time)})"


def _output(token: str) -> Output:
    output = call(token)
    if output.name == "w":
        return watermark(integer(output.take(1)[0]))
    if output.name not in {"r", "early"}:
        raise NotationError(f"not understood: {token}")
    start, end, key, result = output.take(4)
    decimals = len(result.partition(".")[2])
    return WindowRow(integer(start), integer(end), key, value(result), output.name, decimals)


def _ordered(items: Iterable[Output], any_order: bool) -> list[Output]:
    ordered: list[Output] = []
    for _, run in groupby(items, lambda item: _place(item, any_order)):
        ordered += sorted(run, key=_within)
    return ordered


def _within(item: Output) -> tuple[str, int, int, str]:
    return (item.key, item.start, item.end, item.kind) if isinstance(item, WindowRow) else ("", 0, 0, "")


def _place(item: Output, any_order: bool) -> int | None:
    if not isinstance(item, WindowRow):
        return None
    return 0 if any_order else item.end


def _same(expected: Output | None, actual: Output | None) -> bool:
    if isinstance(expected, WindowRow) and isinstance(actual, WindowRow):
        return expected.matches(actual)
    return expected == actual
