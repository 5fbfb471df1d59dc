"""Sought rows: those whose columns have given values, by the types of the columns."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAKEN: Mapping[type[T.DataType], tuple[type, ...]] = {
    T.StringType: (str,),
    T.BooleanType: (bool,),
    T.IntegralType: (int,),
    T.DecimalType: (int, Decimal),
    T.FractionalType: (float, int),
    T.BinaryType: (bytes, bytearray),
    T.DateType: (dt.date,),
    T.TimestampType: (dt.datetime,),
    T.TimestampNTZType: (dt.datetime,),
    T.DayTimeIntervalType: (dt.timedelta,),
}
"""The Python types of the values of a Spark type; the first Spark type that matches counts."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_SECOND = dt.timedelta(seconds=1)
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_Column: TypeAlias = tuple[str, Column, T.DataType]
"""The name that users know, the column in the rows, and its type."""


@dataclass(frozen=True)
class Sought:
    """Values by the names of their columns, at least one; a row is sought if it has all of them.

    A name is that of a column, or of a field of one, as ``user.id``. Whether its case counts is up to the session.

    Attributes:
        values: The values; None is none.
        is_text: Whether they are texts, as on a command line, of values of any type.
    """

    values: Mapping[str, Any]
    is_text: bool = False

    @property
    def lacking(self) -> str:
        """The message about rows that lack a column."""
        return f"{'no column' if len(self.values) == 1 else 'not all of'} {', '.join(self.values)}"

    def named(self, session: SparkSession, names: Sequence[str]) -> list[str]:
        """The values whose column has one of these names."""
        columns = [(name, F.lit(None), T.NullType()) for name in names]
        return [name for name in self.values if _found(session, name, columns)]

    def within(self, session: SparkSession, fields: T.StructType, stored: Sequence[str], where: str) -> Column | None:
        """Whether a row is sought, as an expression that is never null; None where the rows lack one of the columns.

        Args:
            session: Where values are cast.
            fields: The columns as users know them.
            stored: Their names in the rows.
            where: What has the rows, for messages.

        Raises:
            AnalysisError: A value is none of its column, or its name is that of several.
        """
        columns = [(each.name, F.col(quoted(name)), each.dataType) for each, name in zip(fields, stored, strict=True)]
        conditions = []
        for name, value in self.values.items():
            found, what = _found(session, name, columns), f"{where}: {name}"
            if not found:
                return None
            if len(found) > 1:
                raise AnalysisError(f"erase: {what} may be one of {len(found)} columns. Write it in its own case.")
            _, column, kind = found[0]
            conditions.append(column.eqNullSafe(self._literal(session, value, kind, what)))
        return reduce(Column.__and__, conditions)

    def _literal(self, session: SparkSession, value: Any, kind: T.DataType, what: str) -> Column:
        taken = next((types for each, types in _TAKEN.items() if isinstance(kind, each)), ())
        # Python's bool is an int, and its datetime a date.
        is_one = isinstance(value, taken) and isinstance(value, bool) == (bool in taken)
        is_one = is_one and isinstance(value, dt.datetime) == (dt.datetime in taken)
        if taken and (self.is_text or is_one) and _is_utf8(value):
            literal = _as_column(value, kind)
            # As text: Python has no year before 1 or after 9999.
            found = session.range(1).select(literal.try_cast(kind).cast("string")).collect()[0][0]
            # A cast rounds, and would be of somebody else.
            if found is not None and (not isinstance(kind, T.FractionalType) or _is_exact(value, kind, found)):
                return literal.cast(kind)
        shown = f'"{value}"' if isinstance(value, str) and _is_utf8(value) else ascii(value)
        raise AnalysisError(f"erase: {what} is {kind.simpleString()}, and {shown} is not a value of that type.")


def _found(session: SparkSession, name: str, columns: Sequence[_Column]) -> list[_Column]:
    """The columns of a name, or their fields: a column may have a dot in its name."""
    found = [each for each in columns if each[0] == name]
    is_exact = session.conf.get("spark.sql.caseSensitive") == "true"
    found = found or [each for each in columns if not is_exact and each[0].lower() == name.lower()]
    for parent, column, kind in () if found else columns:
        size = len(parent)
        is_parent = name[:size] == parent if is_exact else name[:size].lower() == parent.lower()
        if is_parent and isinstance(kind, T.StructType) and name[size : size + 1] == ".":
            fields = [(each.name, column.getField(each.name), each.dataType) for each in kind]
            found += _found(session, name[size + 1 :], fields)
    return found


def _as_column(value: Any, kind: T.DataType) -> Column:
    """A value as Spark takes it; as text what PySpark's own conversion refuses, or takes for another."""
    if isinstance(value, dt.datetime) and not (value.tzinfo is None and isinstance(kind, T.TimestampNTZType)):
        # PySpark counts years before 1582 by another calendar. A time without a zone is this machine's, as in PySpark.
        seconds = int(time.mktime(value.timetuple())) if value.tzinfo is None else (value - _EPOCH) // _SECOND
        return F.timestamp_micros(F.lit(seconds * 1_000_000 + value.microsecond))
    if isinstance(value, bytearray):
        return F.lit(bytes(value))
    is_said = isinstance(value, int | Decimal | dt.date) and not isinstance(value, bool)
    return F.lit(str(value) if is_said else value)


def _is_exact(value: Any, kind: T.DataType, found: str) -> bool:
    """Whether a number is the one that was given, after a cast."""
    try:
        if isinstance(kind, T.DecimalType):
            return Decimal(value) == Decimal(found)
        number = None if isinstance(value, float) else int(value)
    except (InvalidOperation, ValueError):
        # What is given with a fraction is the nearest that there is.
        return not isinstance(kind, T.DecimalType)
    return number is None or (found not in _NO_NUMBERS and Fraction(found) == number)


def _is_utf8(value: Any) -> bool:
    try:
        return not isinstance(value, str) or value == value.encode().decode()
    except UnicodeEncodeError:
        return False
