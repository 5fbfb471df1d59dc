"""The laws of aggregates, checked on data, for testing your own AggregateOperation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sparkjet.aggregates.operation import Aggregate, Inputs, microseconds
from sparkjet.errors import AnalysisError
from sparkjet.testing.law_samples import GROUP, PARTS, ROWS, Subject, deal, grouped, hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from sparkjet.aggregates.operation import ColumnOrName

_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Law:
    """Two ways to the same result: the law's name when broken, and both ways as computed and as shown to a reader."""

    broken: str
    left: str
    right: str
    left_text: str
    right_text: str
    exact: bool = False


_LAWS = (
    _Law("create is not neutral", "ea", "a", "combine(create, a)", "a"),
    _Law("create is not neutral", "ae", "a", "combine(a, create)", "a"),
    _Law("create is not neutral", "ee", "e", "combine(create, create)", "create"),
    _Law("combine is not commutative", "ab", "ba", "combine(a, b)", "combine(b, a)"),
    _Law("combine is not associative", "abc", "a_bc", "combine(combine(a, b), c)", "combine(a, combine(b, c))"),
    _Law("combine does not continue accumulate", "abc", "whole", "combine of a, b, c", "all rows accumulated at once"),
    _Law(
        "combine_group differs from combine", "group", "abc", "combine_group of a, b, c, create", "combine of a, b, c"
    ),
    _Law("combine_group differs from combine", "single", "a", "combine_group of a alone", "a"),
    _Law("deduct does not undo combine", "undone", "fields", "deduct(combine(a, b), b)", "a", exact=True),
    _Law("deduct does not undo combine", "nothing", "empty", "deduct(a, a)", "create", exact=True),
    _Law("deduct does not negate", "removed", "ab", "combine_group of all, deduct(create, c)", "combine(a, b)"),
    _Law("combine_group differs over a window", "running3", "abc", "its third row of a, b, c", "combine of a, b, c"),
    _Law("deduct does not negate", "running4", "bc", "combine_group over a, b, c, deduct(create, a)", "combine(b, c)"),
    _Law("scan differs from combine", "scan1", "a", "the first element of a scan of a, b, c", "a"),
    _Law("scan differs from combine", "scan2", "ab", "the second element of a scan of a, b, c", "combine(a, b)"),
    _Law("scan differs from combine", "scan3", "abc", "the third element of a scan of a, b, c", "combine of a, b, c"),
    _Law("deduct does not negate", "scan4", "bc", "a scan of a, b, c, deduct(create, a)", "combine(b, c)"),
)


def check_aggregate(
    aggregate: Aggregate | Sequence[Aggregate],
    samples: DataFrame,
    event_time: ColumnOrName | None = None,
    *,
    by: Sequence[str] = (),
    tolerance: float | None = None,
) -> None:
    """Check that an aggregate computed in parts gives the same result as in one piece.

    The samples are dealt into three parts a, b and c. Then ``create`` must be neutral, ``combine`` commutative and
    associative, and combining must equal accumulating all rows at once; ``combine_group`` and ``scan`` must equal
    ``combine``; ``deduct`` must undo ``combine`` field by field, and what it negates must cancel in ``combine_group``,
    also over a running window. Runs three Spark jobs, however many aggregates and groups there are.

    Args:
        aggregate: One aggregate or several to check.
        samples: A batch DataFrame of three rows or more; it should have nulls, ties and extreme values.
        event_time: A timestamp column, or a long one of microseconds; without it all rows are simultaneous.
        by: Columns by which the samples form groups that are checked separately.
        tolerance: Relative or absolute difference allowed between numeric results, for sketches. Without it only
            floating-point numbers may differ, by rounding (1e-9).

    Raises:
        AssertionError: A law is broken; the message names it, both results and the accumulators.
        AnalysisError: A part got no samples, or an aggregate does not fit them.

    >>> from sparkjet import functions as J
    >>> check_aggregate([J.top_n("id", 3), J.percentile_cont("id", 0.5)], spark.range(10))
    """
    inputs = Inputs(samples, microseconds(samples, event_time))
    subjects = [
        Subject.of(one, inputs, position)
        for position, one in enumerate([aggregate] if isinstance(aggregate, Aggregate) else aggregate)
    ]
    dealt = deal(samples, subjects, by)
    by_group = {row[GROUP]: row.asDict() for row in grouped(dealt, subjects).collect()}
    sides = [side.alias(f"{s.prefix}{name}") for s in subjects for name, side in s.sides().items()]
    outcomes = dealt.select("*", *sides).collect()
    if not all(any(row[hidden(part)][ROWS] for row in outcomes) for part in PARTS):
        raise AnalysisError("check_aggregate: the samples are too few for three parts; give at least three rows.")
    findings: dict[tuple[str, str], str] = {}
    for row in outcomes:
        where = "".join(f" in the group {name}={row[name]!r}" for name in by)
        for subject in subjects:
            for law, text in _broken(subject, row, by_group[row[GROUP]], tolerance):
                findings.setdefault((subject.name, law), f"{subject.name}: {law}{where}: {text}")
    if findings:
        raise AssertionError("\n".join(findings.values()))


def _broken(
    subject: Subject, row: Row, grouped: Mapping[str, Any], tolerance: float | None
) -> Iterator[tuple[str, str]]:
    """The laws that one group of samples shows to be broken, and how."""
    results = {**grouped, **row.asDict()}
    for law in _LAWS:
        if subject.prefix + law.left not in results:
            continue
        left, right = results[subject.prefix + law.left], results[subject.prefix + law.right]
        if not _same(left, right, 0.0 if law.exact else tolerance):
            parts = ", ".join(f"{part} = {subject.shown(row[hidden(part)])}" for part in PARTS)
            yield law.broken, f"{law.left_text} gives {left!r}, {law.right_text} gives {right!r} ({parts})"


def _same(left: Any, right: Any, tolerance: float | None) -> bool:
    """Whether two results are equal, or close enough if they are numbers; NaN equals NaN."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_same(x, y, tolerance) for x, y in zip(left, right, strict=True))
    if left == right or left is None or right is None:
        return left is right or bool(left == right)
    if not (isinstance(left, (int, float, Decimal)) and isinstance(right, (int, float, Decimal))):
        return False
    if tolerance is None and not isinstance(left, float):
        return False
    allowed = _ROUNDING if tolerance is None else tolerance
    left, right = float(left), float(right)
    return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=allowed, abs_tol=allowed)
