"""The law of the rows: every pair that can be had is in one, and none that cannot."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.environment.covering import Value, covering

SIZES = st.lists(st.integers(1, 4), min_size=2, max_size=5)


@given(SIZES, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.4]))
def test_every_pair_that_can_be_had_is_in_a_row(sizes: list[int], chance: object, excluded: float) -> None:
    axes = {f"axis{number}": [f"v{value}" for value in range(size)] for number, size in enumerate(sizes)}
    every = list(combinations([(axis, value) for axis, values in axes.items() for value in values], 2))
    never = {pair for pair in every if pair[0][0] != pair[1][0] and chance.random() < excluded}  # type: ignore[attr-defined]

    def together(one: Value, other: Value) -> bool:
        return (one, other) not in never

    def pairs(row: dict[str, str]) -> set[tuple[Value, Value]]:
        return set(combinations(row.items(), 2))

    possible: set[tuple[Value, Value]] = set()
    for values in product(*axes.values()):
        row = dict(zip(axes, values, strict=True))
        if never.isdisjoint(pairs(row)):
            possible |= pairs(row)
    rows = covering(axes, together)
    assert set().union(*map(pairs, rows)) == possible
    assert rows == covering(axes, together)
    # Each has brought something.
    assert len(rows) <= len(possible)


def test_rows_are_few() -> None:
    rows = covering({f"axis{number}": list("abcdef") for number in range(8)}, lambda one, other: True)
    assert 36 <= len(rows) <= 72
