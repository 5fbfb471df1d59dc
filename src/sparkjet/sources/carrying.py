"""The offset of a source that carries the watermark of the query that wrote its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sparkjet.known_types import known
from sparkjet.query_log import logger

Tree = dict[str, Any]
"""Values by partition name; names may be nested: ``{"clicks": {"0": 17}}``."""


class CarryingOffset(msgspec.Struct, frozen=True):
    """The end of a batch, and how far event time has come there; a source may add fields.

    The watermark is stored in the offset, not asked for: a batch that is run again gets the watermark it had, and a
    watermark that has moved makes a batch, even without rows.

    Attributes:
        source: Kind of the source; distinguishes these offsets from those that only have partitions.
        offsets: The next offset of each partition.
        watermarks: The watermark of each partition, in microseconds; null if its writer has none. A missing one has not
            begun.
    """

    source: str
    offsets: Tree
    watermarks: Tree

    @staticmethod
    def found_in(offset: object) -> CarryingOffset | None:
        """The offset that Spark has, decoded from its JSON; None if it is of another kind.

        >>> offset = {"source": "grid-journal", "offsets": {"0": 17}, "watermarks": {"0": 3}}
        >>> CarryingOffset.found_in(offset).watermarks
        {'0': 3}
        >>> CarryingOffset.found_in({"offsets": {"0": 17}, "watermarks": {"0": 3}})
        """
        # By the text in it: for a topic, there would be another object.
        if isinstance(offset, dict) and isinstance(offset.get("source"), str) and "watermarks" in offset:
            return msgspec.convert(offset, known(CarryingOffset))
        return None


def warn_of_others(where: str, others: Iterable[str]) -> None:
    """Say that a table has rows of writers that report no watermark, which a stream of it has just read."""
    for other in others:
        logger.warning(
            "%s has rows of other writers (%s), which report no watermark: carried() takes that of otherwise=… from "
            "now on, or waits without. If such rows do not count, carried(without=[%r])",
            where,
            other,
            other,
        )


def leaves(offset: object, path: str = "") -> dict[str, Any]:
    """The values of a tree by path.

    >>> leaves({"clicks": {"0": 17}}), leaves(5)
    ({'clicks/0': 17}, {'': 5})
    """
    if not isinstance(offset, Mapping):
        return {path: offset}
    found: dict[str, Any] = {}
    for key, value in offset.items():
        found |= leaves(value, f"{path}/{key}" if path else str(key))
    return found
