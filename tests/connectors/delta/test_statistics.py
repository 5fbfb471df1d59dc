"""Statistics of files: bounds hold whatever the values are, and what cannot be told is left out."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from sparkjet.connectors.delta.statistics import LONGEST, Bounds, as_json
from sparkjet.sinks.parquet_footer import ParquetFooter
from sparkjet.storage.posix_directory import PosixDirectory

LAST = "\U0010ffff"
UTC = timezone.utc
MICROS, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
CASES = [
    (LongType(), pa.int64(), [3, None, -1], (-1, 3)),
    (DoubleType(), pa.float64(), [1.5, -0.0], (0.0, 1.5)),
    (DoubleType(), pa.float64(), [float("inf"), 1.0], None),
    (DecimalType(38, 2), pa.decimal128(38, 2), [Decimal("-1.50"), Decimal("1234567890123.45")], ...),
    (DecimalType(18, 2), pa.decimal128(18, 2), [Decimal("1.50"), Decimal("9999999999999999.99")], None),
    (StringType(), pa.string(), ["b", "a"], ("a", "b")),
    (StringType(), pa.string(), ["x" * 99], ("x" * LONGEST, "x" * LONGEST + LAST)),
    (StringType(), pa.string(), ["x" * LONGEST + LAST + "y"], None),
    (DateType(), pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], ("0001-01-01", "9999-12-31")),
    (
        "timestamp",
        MICROS,
        [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
        ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
    ),
    (
        "timestamp_ntz",
        LOCAL,
        [datetime(2026, 1, 1, 0, 0, 0, 500)],
        ("2026-01-01T00:00:00.000", "2026-01-01T00:00:00.001"),
    ),
    (TimestampType(), MICROS, [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)], None),
    (BooleanType(), pa.bool_(), [True, None], None),
    (BinaryType(), pa.binary(), [b"a"], None),
    (LongType(), pa.int64(), [None, None], None),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "bounds"), CASES)
def test_bounds_and_nulls(tmp_path: Path, kind: DataType, arrow: pa.DataType, values: list[Any], bounds: Any) -> None:
    parquet.write_table(pa.table({"c": pa.array(values, arrow)}), tmp_path / "f", row_group_size=1)
    text = as_json(ParquetFooter(PosixDirectory(tmp_path), "f"), StructType().add("c", kind), [["c"]])
    found = json.loads(text, parse_float=Decimal if isinstance(kind, DecimalType) else float)
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"c": values.count(None)}
    told = (found["minValues"]["c"], found["maxValues"]["c"]) if found["minValues"] else None
    assert told == ((min(values), max(values)) if bounds is ... else bounds)


def test_texts_that_are_not_unicode_have_no_bounds(tmp_path: Path) -> None:
    values = pa.array([b"\xff\xfe", b"a", None]).view(pa.string())
    parquet.write_table(pa.table({"c": values}), tmp_path / "f")
    text = as_json(ParquetFooter(PosixDirectory(tmp_path), "f"), StructType().add("c", StringType()), [["c"]])
    assert json.loads(text) == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {"c": 1}}


def test_fields_of_structs_and_names_with_dots(tmp_path: Path) -> None:
    table = pa.table({"s": [{"x": 1}, None], "a.b": [1, 2], "a": [{"b": 5}, {"b": 6}]})
    parquet.write_table(table, tmp_path / "f")
    number = LongType()
    schema = (
        StructType().add("s", StructType().add("x", number)).add("a.b", number).add("a", StructType().add("b", number))
    )
    found = json.loads(as_json(ParquetFooter(PosixDirectory(tmp_path), "f"), schema, [["s", "x"], ["a.b"], ["a", "b"]]))
    assert found["nullCount"] == {"s": {"x": 1}}
    assert found["minValues"] == found["maxValues"] == {"s": {"x": 1}}


def test_nulls_are_counted_where_the_footer_does_not_say(tmp_path: Path) -> None:
    table = pa.table(
        {
            "s": [{"x": None}, {"x": 1}],
            "null": [None, {"x": 1}],
            "list": [[], [None]],
            "a.b": [1, None],
            "a": [{"b": 5}, {"b": 6}],
        }
    )
    for footer in (True, False):
        parquet.write_table(table, tmp_path / "f", write_statistics=footer)
        found = ParquetFooter(PosixDirectory(tmp_path), "f")
        assert [name for name in table.column_names if found.has_nulls(name)] == ["null", "a.b"]


BETWEEN = (
    StructType()
    .add("k", "string")
    .add("n", "long")
    .add("ts", "timestamp")
    .add("dec", "decimal(20, 2)")
    .add("d", "double")
)


def bounds(column: str, low: Any, high: Any, nulls: int | None = 0) -> Bounds:
    found = {"numRecords": 5, "minValues": {column: low}, "maxValues": {column: high}}
    counted = found if nulls is None else {**found, "nullCount": {column: nulls}}
    return Bounds.logged(json.dumps(counted), BETWEEN, [column])


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (bounds("n", 1, 3), bounds("n", 3, 5), True),
        (bounds("n", 1, 3), bounds("n", 4, 5), False),
        (bounds("n", 4, 5), bounds("n", 1, 3), False),
        # A null is a value like others, and of what is not counted there may be one.
        (bounds("n", 1, 3, 1), bounds("n", 4, 5, 2), True),
        (bounds("n", 1, 3, 1), bounds("n", 4, 5, None), True),
        (bounds("n", 1, 3, 1), bounds("n", 4, 5), False),
        (bounds("n", None, None, 5), bounds("n", 4, 5), False),
        (bounds("n", None, None, 5), bounds("n", None, None, 5), True),
        # What is not known may be anything.
        (bounds("n", None, None, 2), bounds("n", 4, 5), True),
        (bounds("n", 1, 3), Bounds.logged(None, BETWEEN, ["n"]), True),
        (bounds("n", 1, 3), bounds("k", "a", "b"), True),
        (bounds("d", 1.0, 3.0), bounds("d", 4.0, 5.0), True),
        (bounds("dec", 1.25, 3.5), bounds("dec", 4, 5.5), False),
        (bounds("dec", 1.25, 3.5), bounds("dec", 1234567890123456.8, 1234567890123456.8), True),
        (bounds("k", "a", "b"), bounds("k", "ba", "c"), False),
        (bounds("ts", "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"),) * 2 + (True,),
        (
            bounds("ts", "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"),
            bounds("ts", "2026-01-02T00:00:00.001000Z", "2026-01-03T00:00:00Z"),
            False,
        ),
        (
            bounds("ts", "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"),
            bounds("ts", "2026-01-02T00:00:00.001+05:00", "2026-01-03T00:00:00+05:00"),
            True,
        ),
    ],
)
def test_bounds_exclude_each_other_only_where_no_value_can_be_in_both(one: Bounds, other: Bounds, meet: bool) -> None:
    assert one.may_meet(other) == other.may_meet(one) == meet
