"""How a batch is limited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkjet.sources.backlog import limited

OFFSETS = st.integers(0, 10**12)
POSITIONS = st.dictionaries(st.tuples(st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 20)), OFFSETS, max_size=8)


@given(POSITIONS, st.data(), st.integers(1, 10**6))
def test_a_limited_batch_gets_every_partition_on(starts: dict, data: st.DataObject, rows: int) -> None:
    ends = {each: start + data.draw(st.integers(0, 10**7)) for each, start in starts.items()}
    found = limited(starts, ends, rows)
    left = sum(ends.values()) - sum(starts.values())
    taken = sum(found.values()) - sum(starts.values())
    assert min(left, rows) <= taken < rows + max(1, len(starts)) or taken == left <= rows
    for each, position in found.items():
        assert starts[each] <= position <= ends[each]
        assert position > starts[each] or starts[each] == ends[each]
