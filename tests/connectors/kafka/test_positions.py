"""Positions: how they are stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkjet as sj
from sparkjet.connectors.kafka.positions import from_offset, numbers, to_offset

OFFSETS = st.integers(0, 10**12)
PARTITIONS = st.tuples(st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 20))
POSITIONS = st.dictionaries(PARTITIONS, OFFSETS, max_size=8)


@given(POSITIONS)
def test_what_is_written_down_is_read_back(positions: dict) -> None:
    offset = to_offset(positions)
    assert from_offset(json.loads(json.dumps(offset))) == positions
    # Spark compares text: equal positions must be equal as text.
    backwards = dict(reversed(list(positions.items())))
    assert json.dumps(to_offset(backwards)) == json.dumps(offset)


@pytest.mark.parametrize("text", ["5", "{", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": "5"}}', '{"t": {"0": true}}'])
def test_a_text_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(sj.AnalysisError, match=r"startingOffsets.*write e\.g\. EXAMPLE"):
        numbers("startingOffsets", text, "EXAMPLE")
