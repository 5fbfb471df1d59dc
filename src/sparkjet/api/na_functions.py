"""The functions for missing values under ``na``, with the names of Spark's ``DataFrameNaFunctions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sparkjet.api.frame_methods import FrameMethods

T = TypeVar("T", bound="FrameMethods")

NOT_GIVEN = object()
"""Of an argument for which None is a value."""


class NaFunctions(Generic[T]):
    """What ``rows.na`` has: other names of ``rows.dropna``, ``rows.fillna`` and ``rows.replace``."""

    def __init__(self, rows: T) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._rows!r}]"

    def drop(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> T:
        """See :meth:`FrameMethods.dropna`."""
        return self._rows.dropna(how, thresh, subset)

    def fill(self, value: Any, subset: str | Sequence[str] | None = None) -> T:
        """See :meth:`FrameMethods.fillna`."""
        return self._rows.fillna(value, subset)

    def replace(self, to_replace: Any, value: Any = NOT_GIVEN, subset: str | Sequence[str] | None = None) -> T:
        """See :meth:`FrameMethods.replace`."""
        return self._rows.replace(to_replace, value, subset)
