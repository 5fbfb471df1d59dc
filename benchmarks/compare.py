"""Comparison of two engines' results, which must agree before their ratio is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.report import Results

EXACT = 1e-9
"""Relative tolerance of means: their sums are exact, the division may round differently."""
SKETCH = 0.02
"""Relative tolerance of approximate percentiles, as the mean over the result rows of a window end."""


def tolerance(aggregates: Sequence[str]) -> float:
    """Relative tolerance for the sums of floating-point results of one window end."""
    return SKETCH if "percentile" in aggregates else EXACT


def difference(ours: Results, theirs: Results, allowed: float) -> str | None:
    """The first difference on the common prefix of two runs, None if there is none.

    Compares all windows that end where both runs had all their rows: the number of result rows, the checksum over keys,
    window ends and whole numbers (exactly), and the sums of floating-point results.
    """
    last = min(ours.complete, theirs.complete)
    ends = sorted({end for results in (ours, theirs) for end in results.ends if end <= last})
    if not ends:
        return f"no window is complete in both runs (the last ends: {ours.complete} s and {theirs.complete} s)"
    for end in ends:
        if end not in ours.ends or end not in theirs.ends:
            return f"the window that ends at {end} s is only in {'theirs' if end in theirs.ends else 'ours'}"
        one, other = ours.ends[end], theirs.ends[end]
        if one.rows != other.rows:
            return f"the window that ends at {end} s has {one.rows} rows in ours, {other.rows} in theirs"
        if one.checksum != other.checksum:
            return f"the window that ends at {end} s has checksum {one.checksum} in ours, {other.checksum} in theirs"
        if not math.isclose(one.real, other.real, rel_tol=allowed):
            return f"the window that ends at {end} s adds up to {one.real} in ours, {other.real} in theirs"
    return None
