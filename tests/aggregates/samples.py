"""Groups of rows with nulls, ties, NaN, infinities and extreme values, and their results in plain Python."""

from __future__ import annotations

import math
import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """g string, t bigint, d double, f float, i int, l bigint, sh smallint, by tinyint, dec decimal(12,2),
    d27 decimal(27,9), d28 decimal(28,9), wide decimal(38,18), s string, b boolean, bin binary, dt date, ts timestamp,
    a array<int>, st struct<x:int,y:double>"""
NAMES = [
    column.split()[0]
    for column in SCHEMA.replace("struct<x:int,y:double>", "struct")
    .replace("(12,2)", "")
    .replace("(27,9)", "")
    .replace("(28,9)", "")
    .replace("(38,18)", "")
    .split(",")
]
NAN, INF = math.nan, math.inf
NUMBERS = ["d", "f", "i", "l", "sh", "by", "dec", "d27", "d28", "wide"]
_SPECIAL = {
    "nan": [1.0, NAN, None, -2.0, NAN, 7.0, 3.0],
    "only nan": [NAN, NAN, NAN],
    "inf": [INF, 5.0, None, 1.0, -1.0, 2.0],
    "both inf": [INF, -INF, 3.0, 4.0],
    "nan and inf": [INF, NAN, -INF, 0.0, NAN, INF],
    "zeros": [0.0, -0.0, 0.0, -0.0],
    "far": [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16],
    "huge": [1e200, 1e200, -1e200, 3e200],
    "constant": [2.5, 2.5, 2.5, 2.5],
}


def rows() -> list[tuple[Any, ...]]:
    """The samples; the rows of every group are in random order of time."""
    chance = random.Random(7)
    samples = [_row(chance, group, null=0.2) for group in ("mixed", "more") for _ in range(25)]
    samples += [_row(chance, "nulls", null=1.0) for _ in range(4)]
    samples += [_row(chance, "one", null=0.0), _row(chance, "two", null=0.0), _row(chance, "two", null=0.0)]
    for group, values in _SPECIAL.items():
        for value in values:
            row = list(_row(chance, group, null=0.0))
            row[2] = value
            row[3] = None if group in {"far", "huge"} else value
            row[-1] = (1, value)
            samples.append(tuple(row))
    return samples


def frame_of(spark: SparkSession) -> DataFrame:
    """The samples in two partitions."""
    return spark.createDataFrame(rows(), SCHEMA).repartition(2, "d").localCheckpoint()


def column(group: str, name: str) -> list[Any]:
    """The values of a column in a group."""
    position = NAMES.index(name)
    return [row[position] for row in rows() if row[0] == group]


def order(value: Any) -> Any:
    """A sort key for Spark's order: null first, NaN after all other numbers."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, (list, tuple)):
        return (1, [order(item) for item in value])
    return (1, value)


def percentile(values: Iterable[Any], percentage: float) -> Any:
    """The smallest value that the given fraction of the values does not exceed."""
    ranked = sorted((value for value in values if value is not None), key=order)
    return ranked[max(1, math.ceil(percentage * len(ranked))) - 1] if ranked else None


def same(left: Any, right: Any) -> bool:
    """Equality where NaN equals NaN, and floating-point numbers are equal up to rounding."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same(x, y) for x, y in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-300)
    return type(left) is type(right) and left == right


def _row(chance: random.Random, group: str, *, null: float) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < null else value

    def cents(digits: int, scale: int) -> Decimal:
        return Decimal(chance.randint(-(10**digits), 10**digits)).scaleb(-scale)

    text = chance.choice(["", "a", "ab", "b", "ä", "zz"])
    return (
        group,
        chance.randint(-3, 3),
        maybe(chance.choice([-1.5, 0.0, 0.25, 3.0, chance.gauss(0, 100)])),
        maybe(float(chance.randint(-9, 9)) / 4),
        maybe(chance.choice([-(2**31), 2**31 - 1, -5, 0, 7])),
        maybe(chance.choice([-(2**57), 2**58, 2**53 + 1, -1, 12])),
        maybe(chance.choice([-(2**15), 2**15 - 1, 3])),
        maybe(chance.choice([-128, 127, 4])),
        maybe(cents(11, 2)),
        maybe(cents(26, 9)),
        maybe(cents(27, 9)),
        maybe(cents(31, 18)),
        maybe(text),
        maybe(chance.random() < 0.5),
        maybe(bytearray(text.encode())),
        maybe(date(1970, 1, 1) + timedelta(days=chance.randint(-20000, 20000))),
        maybe(datetime(2001, 2, 3) + timedelta(microseconds=chance.randint(-(10**16), 10**15))),
        maybe([chance.randint(0, 2) for _ in range(chance.randint(0, 2))]),
        maybe((chance.randint(0, 2), 0.5)),
    )
