"""Rows as Spark's Row objects, as ``transformWithState`` passes and takes them.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import Row, StructType

from sparkjet.spark_line import arrow_type
from sparkjet.stateful.functions.frames import OutputError


class Rows:
    """Makes rows from Arrow as Spark's ``transformWithState`` does: structs are dicts, instants have a zone."""

    def __init__(self, schema: StructType) -> None:
        self._row = Row(*schema.names)

    def of(self, columns: Sequence[pa.Array]) -> RowSlices:
        """The rows of these columns, to be sliced."""
        return RowSlices([self._row(*values) for values in zip(*(each.to_pylist() for each in columns), strict=True)])


class RowSlices:
    """Rows from which each key gets a slice."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def slice(self, start: int, stop: int) -> Sequence[Row]:
        """Some of the rows."""
        return self._rows[start:stop]


class ReturnedRows:
    """The Rows that a user's function returns.

    Args:
        schema: The declared schema of the output.
    """

    def __init__(self, schema: StructType) -> None:
        self._names = schema.names
        self.arrow = arrow_type(schema)

    def checked(self, returned: Any) -> list[Row]:
        """One element that a function has returned."""
        if not isinstance(returned, Row) or not hasattr(returned, "__fields__"):
            raise OutputError(f"it returned {returned!r}; return Rows with names, as in Row(name=value)")
        return [returned]

    def count(self, returned: Sequence[Row]) -> int:
        """The number of rows."""
        return len(returned)

    def array(self, returned: Sequence[Row]) -> pa.Array:
        """Checked Rows as a struct array; a field that a Row does not have is null."""
        dicts = [each.asDict(recursive=True) for each in returned]
        fields = [self.arrow.field(i) for i in range(self.arrow.num_fields)]
        columns = []
        for field in fields:
            values = [each.get(field.name) for each in dicts]
            try:
                columns.append(pa.array(values, field.type))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise OutputError(f"field {field.name!r} of what it returned is not {field.type}: {error}") from error
        return pa.StructArray.from_arrays(columns, fields=fields)
