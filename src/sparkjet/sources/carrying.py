"""The offset of a source that carries the watermark of whoever wrote its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkjet.known_types import known

Tree = dict[str, Any]
"""Values by the names of partitions, which may be nested: ``{"clicks": {"0": 17}}``."""


class CarryingOffset(msgspec.Struct, frozen=True):
    """Where a batch ends, and how far event time has come there; a source may add fields.

    What is carried is in the offset, and not asked for: a batch that is run again gets the watermark it had, and one
    that has moved makes a batch, though there may be no rows.

    Attributes:
        source: Kind of the source; tells these offsets from those that only have partitions.
        offsets: The next offset of each partition.
        watermarks: The watermark of each partition, in microseconds; null where its writer has none. One that is
            missing has not begun.
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
        # By the text in it: of a topic there would be another object.
        if isinstance(offset, dict) and isinstance(offset.get("source"), str) and "watermarks" in offset:
            return msgspec.convert(offset, known(CarryingOffset))
        return None


def leaves(offset: object, path: str = "") -> dict[str, Any]:
    """The values of a tree by their paths.

    >>> leaves({"clicks": {"0": 17}}), leaves(5)
    ({'clicks/0': 17}, {'': 5})
    """
    if not isinstance(offset, Mapping):
        return {path: offset}
    found: dict[str, Any] = {}
    for key, value in offset.items():
        found |= leaves(value, f"{path}/{key}" if path else str(key))
    return found
