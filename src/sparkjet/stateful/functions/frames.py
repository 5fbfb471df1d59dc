"""Rows as pandas DataFrames, as ``applyInPandasWithState`` and ``transformWithStateInPandas`` pass and take them.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.types import _create_converter_from_pandas, _create_converter_to_pandas
from pyspark.sql.types import StructType

from sparkjet.spark_line import arrow_type

_AS_SPARK = {"date_as_object": True, "coerce_temporal_nanoseconds": True}


class OutputError(Exception):
    """A return value of a user's function does not have the declared schema."""


class Frames:
    """Converts rows from Arrow to pandas, by the rules of Spark's own functions on DataFrames.

    Args:
        schema: Schema of the incoming rows.
        timezone: The session's time zone.
    """

    def __init__(self, schema: StructType, timezone: str) -> None:
        self.names = schema.names
        self.converters = [
            _create_converter_to_pandas(each.dataType, timezone=timezone, struct_in_pandas="dict")
            for each in schema.fields
        ]

    def of(self, columns: Sequence[pa.Array]) -> FrameSlices:
        """The rows of these columns, to be sliced."""
        # Such a column holds integers only where it has no nulls: in each slice, not in all rows.
        nullable = any(
            each.null_count and (pa.types.is_integer(each.type) or pa.types.is_boolean(each.type)) for each in columns
        )
        return FrameSlices(self, columns, None if nullable else self.frame(columns))

    def frame(self, columns: Sequence[pa.Array]) -> pd.DataFrame:
        """All rows as one DataFrame."""
        series = [
            convert(column.to_pandas(**_AS_SPARK)) for convert, column in zip(self.converters, columns, strict=True)
        ]
        frame = pd.concat(series, axis=1) if series else pd.DataFrame()
        frame.columns = self.names
        return frame

    def empty(self) -> pd.DataFrame:
        """The empty DataFrame that is passed when a group has timed out."""
        return pd.DataFrame(columns=self.names)


class FrameSlices:
    """Rows from which each key gets a slice."""

    def __init__(self, frames: Frames, columns: Sequence[pa.Array], frame: pd.DataFrame | None) -> None:
        self._frames = frames
        self._columns = columns
        self._frame = frame

    def slice(self, start: int, stop: int) -> list[pd.DataFrame]:
        """Some of the rows, numbered from 0: one DataFrame, which the user may modify."""
        if self._frame is not None:
            return [self._frame.iloc[start:stop].reset_index(drop=True)]
        return [self._frames.frame([each.slice(start, stop - start) for each in self._columns])]


class ReturnedFrames:
    """The DataFrames that a user's function returns.

    Args:
        schema: The declared schema of the output.
        timezone: The session's time zone.
        by_name: Whether columns are matched by name, if they have names.
    """

    def __init__(self, schema: StructType, timezone: str, *, by_name: bool) -> None:
        self._names = schema.names
        self._by_name = by_name
        self._convert = [
            _create_converter_from_pandas(each.dataType, timezone=timezone, error_on_duplicated_field_names=False)
            for each in schema.fields
        ]
        self.arrow = arrow_type(schema)

    def checked(self, returned: Any) -> list[pd.DataFrame]:
        """One element that a function has returned; empty ones are dropped."""
        if not isinstance(returned, pd.DataFrame):
            raise OutputError(f"it returned {type(returned).__name__}, not pandas.DataFrame, in its iterator")
        if not len(returned):
            return []
        found = list(returned.columns)
        if found == self._names:
            return [returned]
        if self._by_name and any(isinstance(each, str) for each in found):
            if missing := [name for name in self._names if name not in found]:
                raise OutputError(f"the DataFrame that it returned has no column {missing[0]!r}; it has {found}")
            return [returned[self._names]]
        if len(found) != len(self._names):
            raise OutputError(f"the DataFrame that it returned has {len(found)} columns, not {len(self._names)}")
        return [returned.set_axis(self._names, axis=1)]

    def count(self, returned: Sequence[pd.DataFrame]) -> int:
        """The number of rows."""
        return sum(map(len, returned))

    def array(self, returned: Sequence[pd.DataFrame]) -> pa.Array:
        """Checked DataFrames, concatenated, as a struct array."""
        frame = returned[0] if len(returned) == 1 else pd.concat(returned, ignore_index=True)
        fields = [self.arrow.field(i) for i in range(self.arrow.num_fields)]
        columns = [
            self._column(convert, frame.iloc[:, i], field)
            for i, (convert, field) in enumerate(zip(self._convert, fields, strict=True))
        ]
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _column(self, convert: Any, series: pd.Series[Any], field: pa.Field) -> pa.Array:
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = series.astype(series.dtype.categories.dtype)
        values = convert(series)
        # Values that convert themselves to Arrow know their nulls; for the rest, pandas' missing values count, NaN too.
        nulls = None if hasattr(values.array, "__arrow_array__") else values.isna()
        try:
            try:
                return pa.Array.from_pandas(values, mask=nulls, type=field.type)
            except pa.ArrowInvalid:
                return pa.Array.from_pandas(values, mask=nulls).cast(field.type)
        except (TypeError, ValueError) as error:
            raise OutputError(f"column {field.name!r} of what it returned is not {field.type}: {error}") from error


def pandas_keys(columns: Sequence[pa.Array], frames: Frames) -> list[tuple[Any, ...]]:
    """Keys as ``applyInPandasWithState`` passes them: as the first row of the key's columns in a DataFrame."""
    found = []
    for convert, column in zip(frames.converters, columns, strict=True):
        if column.null_count and pa.types.is_integer(column.type):
            kind = np.dtype(str(column.type)).type
            found.append([np.float64("nan") if each is None else kind(each) for each in column.to_pylist()])
        else:
            series = convert(column.to_pandas(**_AS_SPARK))
            found.append([series.iloc[i] for i in range(len(series))])
    return list(zip(*found, strict=True))
