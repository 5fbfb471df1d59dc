"""A naive join of two streams: keeps every row, and compares each with each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sparkjet.stateful.join_type import JoinType
from sparkjet.time import MAX, MIN


@dataclass(frozen=True)
class Arrived:
    """A row: its time, key and value."""

    time: int
    key: str | None
    value: int


@dataclass(frozen=True)
class JoinBatch:
    """The rows of an epoch on both sides and the watermarks of both at its end; None makes everything final."""

    left: Sequence[Arrived]
    right: Sequence[Arrived]
    watermarks: tuple[int, int] | None


Pair: TypeAlias = tuple[Arrived | None, Arrived | None]
Rest: TypeAlias = Callable[[Arrived, Arrived], bool]


@dataclass(frozen=True)
class JoinCase:
    """A join: its type, its condition, and the rows of each batch."""

    join_type: JoinType
    lower: int
    upper: int
    batches: Sequence[JoinBatch]
    ordered: bool = False
    """Whether the left value must not be above the right one."""
    null_safe: bool = False
    """Whether a null key equals a null key."""

    def matches(self, left: Arrived, right: Arrived) -> bool:
        """Whether two rows are a pair."""
        equal = left.key == right.key and (self.null_safe or left.key is not None)
        close = self.lower <= right.time - left.time <= self.upper
        return equal and close and (not self.ordered or left.value <= right.value)


@dataclass
class _Known:
    left: list[Arrived] = field(default_factory=list)
    right: list[Arrived] = field(default_factory=list)


def naive(case: JoinCase) -> tuple[list[list[Pair]], tuple[int, int]]:
    """The results of each batch, and the number of late rows of both sides."""
    old, late = _Known(), [0, 0]
    watermarks = MIN, MIN
    output = []
    for batch in case.batches:
        new = _Known(
            [row for row in batch.left if row.time >= watermarks[0]],
            [row for row in batch.right if row.time >= watermarks[1]],
        )
        late[0] += len(batch.left) - len(new.left)
        late[1] += len(batch.right) - len(new.right)
        after = (MAX, MAX) if batch.watermarks is None else batch.watermarks
        output.append(_results(case, old, new, watermarks, after))
        old.left += new.left
        old.right += new.right
        watermarks = after
    return output, (late[0], late[1])


def _results(case: JoinCase, old: _Known, new: _Known, before: tuple[int, int], after: tuple[int, int]) -> list[Pair]:
    lefts = [(row, False) for row in old.left] + [(row, True) for row in new.left]
    rights = [(row, False) for row in old.right] + [(row, True) for row in new.right]
    pairs = [
        (left, right, is_new_left, is_new_right)
        for left, is_new_left in lefts
        for right, is_new_right in rights
        if case.matches(left, right)
    ]
    found: list[Pair] = []
    if case.join_type.gives_pairs:
        found += [(left, right) for left, right, *is_new in pairs if any(is_new)]
    for left, is_new in lefts:
        # By identity: equal rows are different rows.
        partners = [(one, is_new_right) for other, one, _, is_new_right in pairs if other is left]
        until = left.time + case.upper
        if case.join_type is JoinType.SEMI:
            if partners and (is_new or all(is_new_right for _, is_new_right in partners)):
                found.append((left, None))
        elif case.join_type.of_left and not partners and after[1] > until and (is_new or before[1] <= until):
            found.append((left, None))
    for right, is_new in rights:
        until = right.time - case.lower
        becomes_final = after[0] > until and (is_new or before[0] <= until)
        if case.join_type.of_right and becomes_final and not any(one is right for _, one, *_ in pairs):
            found.append((None, right))
    return found
