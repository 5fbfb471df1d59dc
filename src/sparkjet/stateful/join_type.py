"""Types of joins, and the rows that each of them returns."""

from __future__ import annotations

from enum import Enum

from sparkjet.errors import AnalysisError, nearest


class JoinType(Enum):
    """The types of joins of two streams, by what they return."""

    INNER = "inner"
    LEFT = "left_outer"
    RIGHT = "right_outer"
    FULL = "full_outer"
    SEMI = "left_semi"
    ANTI = "left_anti"

    @staticmethod
    def of(how: str) -> JoinType:
        """The type that ``DataFrame.join`` calls ``how``."""
        spelled = how.lower().replace("_", "")
        found = next((each for each, names in _NAMES.items() if spelled in names), None)
        if found is None:
            known = [each.value for each in JoinType]
            raise AnalysisError(f"join: how={how!r} is not a join of two streams: {nearest(how, known)}")
        return found

    @property
    def gives_pairs(self) -> bool:
        """Whether each pair of matching rows is a result."""
        return self not in {JoinType.SEMI, JoinType.ANTI}

    @property
    def of_left(self) -> bool:
        """Whether results depend on a left row having no match at all, now or at the end."""
        return self in {JoinType.LEFT, JoinType.FULL, JoinType.SEMI, JoinType.ANTI}

    @property
    def of_right(self) -> bool:
        """The same for right rows."""
        return self in {JoinType.RIGHT, JoinType.FULL}


_NAMES = {
    JoinType.INNER: {"inner"},
    JoinType.LEFT: {"left", "leftouter"},
    JoinType.RIGHT: {"right", "rightouter"},
    JoinType.FULL: {"outer", "full", "fullouter"},
    JoinType.SEMI: {"semi", "leftsemi"},
    JoinType.ANTI: {"anti", "leftanti"},
}
