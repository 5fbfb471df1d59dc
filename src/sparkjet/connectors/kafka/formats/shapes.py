"""Shapes: the Spark type of decoded values, and how a list of them becomes an Arrow array, column by column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

_EXACT = Context(prec=200)
"""Python's default context rounds to 28 digits."""
_UTC = pa.timestamp("us", tz="UTC")


class Field(NamedTuple):
    """A part of a struct."""

    name: str
    shape: Shape


class Shape(ABC):
    """A type of decoded values.

    Attributes:
        spark: The type of the column.
        arrow: The same in Arrow, exactly as Spark expects it.
    """

    spark: T.DataType
    arrow: pa.DataType

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """The values, of which any may be None.

        Raises:
            pyarrow.ArrowException, ValueError, TypeError, ArithmeticError, KeyError: One does not fit.
        """

    def parts(self) -> Sequence[Field]:
        """Those of a struct; none of others."""
        return ()


class Scalar(Shape):
    """Values without parts.

    Args:
        spark: The type of the column.
        arrow: The same in Arrow.
        convert: Converts a decoded value to one that Arrow takes.
    """

    def __init__(self, spark: T.DataType, arrow: pa.DataType, convert: Callable[[Any], Any] | None = None) -> None:
        self.spark, self.arrow, self._convert = spark, arrow, convert

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See :meth:`Shape.array`."""
        convert = self._convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.arrow)

    def by(self, convert: Callable[[Any], Any]) -> Scalar:
        """The same type for values that are converted first."""
        return Scalar(self.spark, self.arrow, convert)


class Struct(Shape):
    """Records.

    Args:
        fields: Its parts.
        get: The value of the part with a name (by default of a dict that has it).
    """

    def __init__(self, fields: Sequence[Field], get: Callable[[Any, str], Any] = dict.__getitem__) -> None:
        self.fields, self._get = fields, get
        self.spark = T.StructType([T.StructField(name, shape.spark) for name, shape in fields])
        self._arrow_fields = [pa.field(name, shape.arrow) for name, shape in fields]
        self.arrow = pa.struct(self._arrow_fields)

    def parts(self) -> Sequence[Field]:
        """See :meth:`Shape.parts`."""
        return self.fields

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See :meth:`Shape.array`."""
        get = self._get
        columns = [
            shape.array([None if value is None else get(value, name) for value in values])
            for name, shape in self.fields
        ]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=self._arrow_fields, mask=missing)


class Array(Shape):
    """Lists of values of one shape."""

    def __init__(self, element: Shape) -> None:
        self._element = element
        self.spark = T.ArrayType(element.spark)
        self.arrow = pa.list_(pa.field("element", element.arrow))

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See :meth:`Shape.array`."""
        flat = self._element.array([each for value in values if value is not None for each in value])
        return pa.ListArray.from_arrays(_offsets(values), flat, type=self.arrow)


class Map(Shape):
    """Maps from keys of one shape to values of another; given as dicts."""

    def __init__(self, key: Shape, value: Shape) -> None:
        self._key, self._value = key, value
        self.spark = T.MapType(key.spark, value.spark)
        self.arrow = pa.map_(key.arrow, value.arrow)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See :meth:`Shape.array`."""
        known = [value for value in values if value is not None]
        keys = self._key.array([key for value in known for key in value])
        items = self._value.array([item for value in known for item in value.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=self.arrow)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each list begins; null where there is none."""
    ends = [0, *accumulate(0 if value is None else len(value) for value in values)]
    begins = [None if value is None else end for value, end in zip(values, ends, strict=False)]
    return pa.array([*begins, ends[-1]], pa.int32())


def exact(unscaled: int, scale: int) -> Decimal:
    """A decimal from its digits.

    >>> exact(-1234, 2)
    Decimal('-12.34')
    """
    return _EXACT.scaleb(Decimal(unscaled), -scale)


def decimal(precision: int, scale: int) -> Scalar:
    """Decimals, given as such; Arrow refuses those with more digits."""
    return Scalar(T.DecimalType(precision, scale), pa.decimal128(precision, scale))


BOOLEAN = Scalar(T.BooleanType(), pa.bool_())
INT = Scalar(T.IntegerType(), pa.int32())
LONG = Scalar(T.LongType(), pa.int64())
FLOAT = Scalar(T.FloatType(), pa.float32())
DOUBLE = Scalar(T.DoubleType(), pa.float64())
STRING = Scalar(T.StringType(), pa.string())
BINARY = Scalar(T.BinaryType(), pa.binary())
NULL = Scalar(T.NullType(), pa.null())
DATE = Scalar(T.DateType(), pa.date32())
"""Given as days since 1970."""
TIMESTAMP = Scalar(T.TimestampType(), _UTC)
"""Given as microseconds since 1970."""
TIMESTAMP_NTZ = Scalar(T.TimestampNTZType(), pa.timestamp("us"))
"""Given as microseconds since 1970 on the local clock."""
