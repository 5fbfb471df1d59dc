"""The footer of a Parquet file: the number of rows, nulls, and bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory


@dataclass(frozen=True)
class FooterColumn:
    """Statistics of a column over the row groups of a file; no bounds if one of them has none."""

    nulls: int
    low: Any = None
    high: Any = None


class ParquetFooter:
    """The footer of a file.

    Args:
        directory: The table.
        name: Name of the file, relative to it.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory, self._name = directory, name
        with directory.open(name) as content, parquet.ParquetFile(content) as file:
            self._footer = file.metadata
        self._positions: dict[str, list[int]] = {}
        for position in range(self._footer.num_columns):
            self._positions.setdefault(self._footer.schema.column(position).path, []).append(position)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._footer.num_rows)

    def has_nulls(self, column: str) -> bool:
        """Whether a column has nulls; reads it if the footer does not tell, as for structs and long strings."""
        found = self.column([column], None)
        if found is not None:
            return found.nulls > 0
        with self._directory.open(self._name) as content, parquet.ParquetFile(content) as file:
            return any(batch.column(column).null_count for batch in file.iter_batches(columns=[column]))

    def column(self, names: Sequence[str], bounds: Callable[[Any, Any], Any] | None) -> FooterColumn | None:
        """Statistics of a column, given by the names that lead to it, over all row groups; None if one has none."""
        positions = self._positions.get(".".join(names), [])
        if len(positions) != 1:
            # A dot may be part of a name.
            return None
        nulls, lows, highs = 0, [], []
        for group in range(self._footer.num_row_groups):
            chunk = self._footer.row_group(group).column(positions[0])
            found = chunk.statistics
            if found is None or not found.has_null_count:
                return None
            nulls += found.null_count
            if bounds is None or found.null_count == chunk.num_values:
                continue
            both = bounds(found, chunk) if found.has_min_max else None
            if both is None:
                bounds = None
                continue
            lows.append(both[0])
            highs.append(both[1])
        if bounds is None or not lows:
            return FooterColumn(nulls)
        return FooterColumn(nulls, min(lows), max(highs))
