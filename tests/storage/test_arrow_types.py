"""Rows of every type of Spark's come back from a home as they were, on a path and in a grid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from sparkjet.errors import StorageError
from sparkjet.spark_line import SPATIAL
from sparkjet.storage.directory import Directory
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.storage.grid_location import GridLocation
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.written import write
from tests.grid.grids import grid_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINT = "X'0101000000000000000000F03F0000000000000040'"
VALUES = {
    "boolean": "id = 1",
    "tinyint": "CAST(-id AS TINYINT)",
    "smallint": "CAST(id AS SMALLINT)",
    "int": "CAST(id AS INT)",
    "bigint": "id",
    "float": "CAST('NaN' AS FLOAT)",
    "double": "-0.0D",
    "small decimal": "CAST(-1.5 AS DECIMAL(5, 2))",
    "large decimal": "CAST('1234567890123456789012345.0000000001' AS DECIMAL(38, 10))",
    "string": "'ä'",
    "string with a collation": "'Ä' COLLATE UTF8_LCASE",
    "char": "CAST('a' AS CHAR(3))",
    "varchar": "CAST('a' AS VARCHAR(3))",
    "binary": "X'00FF'",
    "date": "date_add(DATE '0001-01-01', int(id) * 577737)",
    "timestamp": "timestamp_micros(-12219292800000000 - id * 86400000001)",
    "timestamp far away": "timestamp_micros(253402300800000001)",
    "timestamp_ntz": "TIMESTAMP_NTZ '1582-10-07 01:02:03.000004'",
    "interval day to second": "make_dt_interval(int(id), 1, 2, 3.000004)",
    "interval hour": "INTERVAL '3' HOUR",
    "interval year to month": "make_ym_interval(int(id), -2)",
    "interval year": "INTERVAL '-3' YEAR",
    "interval month": "INTERVAL '14' MONTH",
    "variant": """parse_json('{"a": [1, "x"]}')""",
    "struct that is never null": "named_struct('b', id, 'a b', named_struct('c', 'x'))",
    "nothing": "NULL",
    **({"geometry": f"ST_GeomFromWKB({POINT})", "geography": f"ST_GeogFromWKB({POINT})"} if SPATIAL else {}),
}
WITHOUT = {
    "a key": ("variant", "nothing"),
    # Spark tells Arrow of fewer nulls than there are in its arrays.
    "an element that may be null": ("nothing",),
}
"""Types that a shape cannot have."""
SHAPES = {
    "a column": "IF(id = 0, NULL, {})",
    "a column that is never null": "{}",
    "a field": "IF(id = 0, NULL, named_struct('a', {}))",
    "a field that may be null": "named_struct('a', IF(id = 0, NULL, {}))",
    "an element": "IF(id = 0, NULL, array({}))",
    "an element that may be null": "IF(id = 0, array(), array({}, NULL))",
    "a value": "IF(id = 0, NULL, map('k', {}))",
    "a value that may be null": "map('k', IF(id = 0, NULL, {}))",
    "a key": "map({}, 1)",
}
ELSEWHERE: dict[str, str] = {
    "ArrayType": "a shape",
    "MapType": "a shape",
    "StructType": "a shape",
    "CalendarIntervalType": "Spark writes it to no file: a query that would store one is refused",
    "TimeType": "Spark has it switched off",
    "UserDefinedType": "of no expression in SQL",
}
"""Types of Spark's without a value above, and why."""


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridLocation]:
    with grid_of(tmp_path_factory.mktemp("grid")) as grid:
        yield GridLocation(grid.addresses, grid.access)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("home", ["path", "grid"])
def test_rows_of_every_type_come_back(
    spark: SparkSession, tmp_path: Path, location: GridLocation, home: str, shape: str
) -> None:
    place: Directory = PosixDirectory(tmp_path / "rows") if home == "path" else GridDirectory(location, shape)
    names = [name for name in VALUES if name not in WITHOUT.get(shape, ())]
    columns = [f"{SHAPES[shape].format(VALUES[name])} AS `{name}`" for name in names]
    rows = spark.range(3).selectExpr("id", *columns)
    written = write(rows, FileWriter(place, read_back=True), StorageError)
    back = read(spark, place, list(written.files))
    assert written.rows == 3
    assert [kind(field) for field in back.schema] == [kind(field) for field in rows.schema]
    assert shown(back) == shown(rows)


def test_every_type_of_sparks_is_tried(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr(*(f"{value} AS `{name}`" for name, value in VALUES.items()))
    tried = {type(field.dataType).__name__ for field in rows.schema} | set(ELSEWHERE)
    assert {name for name in map(str, T.__all__) if leaf(getattr(T, name))} - tried == set()


OTHERS = (T.DataType, T.StructField, T.CharType, T.VarcharType)
"""Not types of columns; the last two are plain strings in a plan."""


def leaf(kind: Any) -> bool:
    """Whether it is a type of columns."""
    return isinstance(kind, type) and issubclass(kind, T.DataType) and kind not in OTHERS


def kind(field: T.StructField) -> tuple[str, str]:
    """Name and type of a column; in files everything may be null."""
    return field.name, field.dataType.simpleString()


def shown(rows: DataFrame) -> list[tuple[Any, ...]]:
    """The values as texts: Python has not all of them."""
    spatial = [field.name for field in rows.schema if SPATIAL and isinstance(field.dataType, SPATIAL)]
    texts = [f"hex(ST_AsBinary(`{name}`))" if name in spatial else f"CAST(`{name}` AS STRING)" for name in rows.columns]
    return sorted(map(tuple, rows.selectExpr(*texts).collect()))
