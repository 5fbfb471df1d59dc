"""Sizes in memory, as users write them."""

from __future__ import annotations

import re

from sparkjet_grid.errors import AnalysisError

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size_of(text: str, option: str) -> int:
    """Bytes, from a number with or without one of Spark's units.

    >>> size_of("2g", "--max-memory")
    2147483648
    """
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise AnalysisError(f'{option}: "{text}" is not a size such as 512m, 8g or 1073741824.')
    return int(found[1]) << _UNITS[found[2]]
