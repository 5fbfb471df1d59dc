"""Differences between the lines of Spark 4 (4.0, 4.1, …) in Python: the installed line, and its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def line_of(release: str) -> tuple[int, int]:
    """The line of a release.

    >>> line_of("4.1.3")
    (4, 1)
    """
    major, minor, *_ = release.split(".")
    return int(major), int(minor)


RELEASE: str = pyspark.__version__
LINE = line_of(RELEASE)
"""The line of the installed PySpark."""
LINE_NAME = ".".join(map(str, LINE))
"""Name of that line, such as ``4.0``."""

NEWEST, NEWEST_NAME = (4, 3), "4.3"
"""The newest line that sparkjet was tested with."""
TRIED = frozenset({"4.0.1", "4.0.5", "4.1.1", "4.1.4", "4.2.1", "4.3.0"})
"""The releases that sparkjet was tested with; those in ``scripts/sparks.py`` are tested regularly."""

SPATIAL: tuple[type[DataType], ...] = (types.SpatialType,) if LINE >= (4, 1) else ()
"""Types of geometries, which cannot be ordered."""
TIMES_OF_DAY: tuple[type[DataType], ...] = (types.TimeType,) if LINE >= (4, 1) else ()
"""The type of times without a date."""
DATETIMES: tuple[type[DataType], ...] = (
    (types.DatetimeType,) if LINE >= (4, 1) else (types.DateType, types.TimestampType, types.TimestampNTZType)
)
"""Types of dates and times."""


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type for one of Spark's, with instants in UTC."""
    # Imported here, because pyarrow is an extra.
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    zone: dict[str, Any] = {"timezone": "UTC"} if LINE >= (4, 2) else {"timestamp_utc": True}
    return to_arrow_type(data_type, **zone)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for rows of Spark, see :func:`arrow_type`."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.schema(list(arrow_type(schema)))
