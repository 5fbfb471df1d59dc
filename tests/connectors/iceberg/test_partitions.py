"""Partitions of Iceberg tables: what Spark computes for its directories is what Iceberg's library computes."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.java import java_class, static_method
from tests.connectors.iceberg.others import by_pyiceberg
from tests.connectors.iceberg.reading import IcebergReader, each
from tests.connectors.iceberg.test_iceberg import numbers, sink_of, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    "identity": (["'a/b=c %25 d'", "'ü\"'''", "NULL", "''"], {"c": ["a/b=c %25 d", 'ü"\'', "None", ""]}),
    "dec": (["CAST('-1.50' AS DECIMAL(6,2))", "CAST('12' AS DECIMAL(6,2))", "NULL"], {"c": ["-1.50", "12.00", "None"]}),
    "date": (["DATE'1969-12-31'", "DATE'0001-01-01'", "NULL"], {"c": ["-1", "-719162", "None"]}),
    "times": (["TIMESTAMP'1969-12-31 23:59:59.999999Z'", "TIMESTAMP'2026-10-25 01:30:00Z'"], {
        "c": ["-1", "1792891800000000"],
        "hours(c)": ["-1", "498025"],
        "days(c)": ["-1", "20751"],
        "months(c)": ["-1", "681"],
        "years(c)": ["-1", "56"],
    }),
    "local times": (["TIMESTAMP_NTZ'1969-12-31 23:59:59.5'", "NULL"], {
        "c": ["-500000", "None"],
        "hours(c)": ["-1", "None"],
    }),
    "cut": (["'äbcdef'", "''"], {"truncate(2, c)": ["äb", ""]}),
    "cut numbers": (["-1L", "10L", "NULL"], {"truncate(10, c)": ["-10", "10", "None"]}),
    "cut decimals": (["CAST('-0.05' AS DECIMAL(9,2))", "CAST('10.65' AS DECIMAL(9,2))"], {
        "truncate(50, c)": ["-0.50", "10.50"],
    }),
    "bytes": (["X'00FF'", "X''"], {"c": ["00ff", ""]}),
    "flags": (["true", "false", "NULL"], {"c": ["True", "False", "None"]}),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [name if name in {"identity", "times"} else pytest.param(name, marks=pytest.mark.long) for name in PARTITIONS],
)
def test_partition_values_are_those_of_iceberg(iceberg: SparkSession, tmp_path: Path, name: str) -> None:
    values, transforms = PARTITIONS[name]
    text = " UNION ALL ".join(f"SELECT {value} AS c, {n}L AS n" for n, value in enumerate(values))
    zone = iceberg.conf.get("spark.sql.session.timeZone")
    iceberg.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for number, (transform, expected) in enumerate(transforms.items()):
            rows = iceberg.sql(text).coalesce(1)
            path = tmp_path / str(number)
            written(sink_of(iceberg, path, rows, transform), rows)
            check_by_iceberg(iceberg, path)
            found = partitions_of(iceberg, path)
            assert [found[n] for n in range(len(values))] == expected, transform
            assert numbers(iceberg, path) == [*range(len(values))]
    finally:
        iceberg.conf.set("spark.sql.session.timeZone", zone)


BUCKETS: dict[str, list[object]] = {
    "i int": [0, -1, 1, 2**31 - 1, -(2**31), None],
    "l long": [0, -1, 34, 2**63 - 1, -(2**63), None],
    "d date": [date(1969, 12, 31), date(1, 1, 1), date(2026, 11, 27), None],
    "t timestamp": [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 11, 27, 1, 2, 3, 4), None],
    "o timestamp_ntz": [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 11, 27, 1, 2, 3, 4), None],
    # Spark's own hash takes other numbers of bytes than four for something else.
    "s string": ["", "a", "ab", "abc", "abcd", "iceberg", "ü€😀", "ÿ" * 33, None],
    "b binary": [b"", b"\x00", b"\xff\x80", b"abc", bytes(range(256)), None],
    "p decimal(9,2)": [Decimal(text) for text in ("0", "0.01", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "14.20")],
    "q decimal(38,10)": [Decimal(f"{sign}{9:0<28}.{7:0>10}") for sign in ("", "-")] + [Decimal(0), None],
}
"""Values by column; the bytes of decimals have a sign, and as few of them as there can be."""


def test_buckets_are_those_of_iceberg(iceberg: SparkSession, tmp_path: Path) -> None:
    columns = [[*values, *values][: max(map(len, BUCKETS.values()))] for values in BUCKETS.values()]
    filled = [[values[n % len(values)] for n in range(9)] for values in columns]
    rows = iceberg.createDataFrame(
        [(n, *row) for n, row in enumerate(zip(*filled, strict=True))], f"n long, {', '.join(BUCKETS)}"
    )
    sink = sink_of(iceberg, tmp_path, rows.coalesce(1), *(f"bucket(97, {name.split()[0]})" for name in BUCKETS))
    written(sink, rows.coalesce(1))
    check_by_iceberg(iceberg, tmp_path)
    reader = IcebergReader(iceberg, tmp_path)
    assert sorted(row["n"] for row in reader.rows()) == [*range(9)]
    # Readers look into the buckets that they compute.
    assert len(reader.files("s", "equal", "iceberg")) == 1
    for name, value in {"s": "iceberg", "l": 34, "q": "0", "d": "1969-12-31"}.items():
        shown = f"{name} = {value!r}" if isinstance(value, str) and name != "q" else f"{name} = {value}"
        assert len(by_pyiceberg(reader.version, shown)) == len(reader.files(name, "equal", value)) > 0, name


def check_by_iceberg(spark: SparkSession, path: Path) -> None:
    """Have Iceberg's library compute the partition of each row from the row."""
    reader = IcebergReader(spark, path)
    table = reader.version.java
    records = [*each(static_method(spark, "org.apache.iceberg.data.IcebergGenerics.read")(table).build())]
    wrapper = java_class(spark, "org.apache.iceberg.data.InternalRecordWrapper")(table.schema().asStruct())
    key = java_class(spark, "org.apache.iceberg.PartitionKey")(table.spec(), table.schema())
    files = {}
    for task in each(table.newScan().includeColumnStats().planFiles()):
        number = table.schema().findField("n").fieldId()
        low = next(bound for at, bound in task.file().lowerBounds().items() if at == number)
        files[int.from_bytes(bytes(low.array()), "little")] = task.file().partition()
    to_text = static_method(spark, "java.util.Objects.toString")
    object_class = java_class(spark, "java.lang.Class").forName("java.lang.Object")
    for record in records:
        key.partition(wrapper.wrap(record))
        found = files[record.getField("n")]
        for position in range(key.size()):
            one, other = (each_of.get(position, object_class) for each_of in (key, found))
            assert to_text(one) == to_text(other), (record.toString(), position)


def partitions_of(spark: SparkSession, path: Path) -> dict[int, str]:
    """The value of the only partition field of each file, by the number in it."""
    found = {}
    object_class = spark._jvm.java.lang.Class.forName("java.lang.Object")  # type: ignore[union-attr]
    for task in each(IcebergReader(spark, path).version.java.newScan().includeColumnStats().planFiles()):
        file = task.file()
        value: Any = file.partition().get(0, object_class)
        low = next(bytes(file.lowerBounds().get(key).array()) for key in (2,))
        text = bytes(value.array()).hex() if hasattr(value, "array") else str(value)
        found[int.from_bytes(low, "little")] = text
    return found
