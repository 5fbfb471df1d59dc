"""Blocks: stretches of frames, each one window length, so that a window spans at most two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.time import WindowGrid


class Blocks:
    """Assigns frames to blocks; on the driver.

    Args:
        window: Length, step and offset in microseconds.

    >>> from sparkjet.time import WindowGrid
    >>> blocks = Blocks(WindowGrid(size=6, step=2))
    >>> blocks.start(13), blocks.start(12), blocks.before(12)
    (12, 12, 6)
    """

    def __init__(self, window: WindowGrid) -> None:
        self._window = window

    def start(self, end: int) -> int:
        """Start of the block of the first frame after ``end``."""
        return end - (end - self._window.offset) % self._window.size

    def before(self, end: int) -> int:
        """Start of the block of the frame that ends at ``end``."""
        return self.start(end - self._window.frame)

    def column(self) -> Column:
        """Start of the block of each row's frame."""
        start = F.col("frame") - self._window.frame
        return start - F.pmod(start - self._window.offset, F.lit(self._window.size))
