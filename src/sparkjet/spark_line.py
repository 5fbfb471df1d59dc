"""What differs between the lines of Spark 4 (4.0, 4.1, …) in Python: which one is installed, and its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

LINE: tuple[int, int] = tuple(map(int, pyspark.__version__.split(".")[:2]))  # type: ignore[assignment] # two of them
"""The line of the installed PySpark."""
LINE_NAME = ".".join(map(str, LINE))
"""Its name, such as ``4.0``."""

NEWEST, NEWEST_NAME = (4, 3), "4.3"
"""The newest line that sparkjet was tried with."""

SPATIAL: tuple[type[DataType], ...] = (types.SpatialType,) if LINE >= (4, 1) else ()
"""Types of geometries, which nothing orders."""
TIMES_OF_DAY: tuple[type[DataType], ...] = (types.TimeType,) if LINE >= (4, 1) else ()
"""The type of times without a date."""
DATETIMES: tuple[type[DataType], ...] = (
    (types.DatetimeType,) if LINE >= (4, 1) else (types.DateType, types.TimestampType, types.TimestampNTZType)
)
"""Types of dates and times."""


def arrow_type(data_type: DataType) -> pa.DataType:
    """The type that Arrow has for one of Spark's, with instants in UTC."""
    # Imported here, because pyarrow is an extra.
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    zone: dict[str, Any] = {"timezone": "UTC"} if LINE >= (4, 2) else {"timestamp_utc": True}
    return to_arrow_type(data_type, **zone)
