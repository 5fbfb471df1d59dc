"""Differences between the lines of Spark in Python."""

from __future__ import annotations

import pyarrow as pa
import pyspark
from pyspark.sql.types import DateType, StructType, TimestampType

from scripts.sparks import LINES
from sparkjet.spark_line import DATETIMES, LINE, LINE_NAME, NEWEST, SPATIAL, TRIED, arrow_schema, arrow_type, line_of


def test_the_line_is_that_of_the_installed_spark() -> None:
    assert pyspark.__version__.startswith(f"{LINE_NAME}.")
    assert (4, 0) <= LINE <= NEWEST
    assert line_of("4.1.3") == (4, 1)


def test_the_releases_that_are_tried_again_are_named() -> None:
    assert set(LINES.values()) <= TRIED


def test_types_are_those_of_the_line() -> None:
    assert isinstance(DateType(), DATETIMES)
    assert not isinstance(DateType(), SPATIAL)
    assert len(SPATIAL) == (LINE >= (4, 1))


def test_instants_are_in_utc_in_arrow_as_well() -> None:
    assert arrow_type(TimestampType()) == pa.timestamp("us", tz="UTC")
    assert arrow_type(StructType().add("t", TimestampType())) == pa.struct(
        [pa.field("t", pa.timestamp("us", tz="UTC"))]
    )


def test_the_schema_of_rows_is_that_of_their_columns_on_every_line() -> None:
    schema = StructType().add("t", TimestampType()).add("a.b", DateType(), False)
    fields = [pa.field("t", pa.timestamp("us", tz="UTC")), pa.field("a.b", pa.date32(), nullable=False)]
    assert arrow_schema(schema) == pa.schema(fields)
