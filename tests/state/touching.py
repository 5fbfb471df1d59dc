"""What an epoch makes of what it touches of a keyed store, before that is persisted: for a look at its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkjet.state.keyed_rows import Touched
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.state import KeyedStore, Segment


def made_of(
    arrived: Segment,
    store: KeyedStore,
    build: Callable[[Touched], DataFrame],
    watermark: int | None = None,
    due: tuple[int, int] = (MIN, MAX),
) -> DataFrame:
    """What ``build`` makes of rows and of what they touch, as far as it is due from a time to another.

    With a watermark also of what is due before it.
    """
    stored = store.lookup(store.wanted([arrived.partials], watermark), due)
    return build(Touched(arrived.partials, stored, watermark or 0, version=2))
