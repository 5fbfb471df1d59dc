"""Blocks: every frame is in one, and a window in at most two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkjet.time import WindowGrid
from sparkjet.windows.blocks import Blocks

windows = st.integers(1, 9).flatmap(
    lambda step: st.builds(WindowGrid, st.integers(step, 40), st.just(step), st.integers(0, step - 1))
)


@given(window=windows, number=st.integers(-99, 99))
def test_a_window_is_a_suffix_of_one_block_and_a_prefix_of_the_next(window: WindowGrid, number: int) -> None:
    blocks = Blocks(window)
    end = window.ends.higher_frame(number)
    later, earlier = blocks.before(end), blocks.start(end - window.size)
    assert earlier <= end - window.size < end <= later + window.size
    assert later - earlier in (0, window.size)


@given(window=windows, number=st.integers(-99, 99))
def test_a_frame_that_ends_with_a_block_is_in_it_and_what_follows_in_the_next(window: WindowGrid, number: int) -> None:
    blocks = Blocks(window)
    boundary = blocks.start(window.grid.higher_frame(number))
    assert blocks.start(boundary) == boundary
    assert blocks.before(boundary) == boundary - window.size
    assert blocks.before(boundary + window.frame) == boundary
