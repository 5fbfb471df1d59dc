"""Sought rows: those whose columns have given values, by the types of the columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_TAKEN: Mapping[type[T.DataType], tuple[type, ...]] = {
    T.StringType: (str,),
    T.BooleanType: (bool,),
    T.IntegralType: (int,),
    T.DecimalType: (int, Decimal),
    T.FractionalType: (float, int),
    T.BinaryType: (bytes,),
    T.DateType: (dt.date,),
    T.TimestampType: (dt.datetime,),
    T.TimestampNTZType: (dt.datetime,),
}
"""What is a value of a type; the first that a type is of counts."""


@dataclass(frozen=True)
class Sought:
    """Values by the names of their columns, at least one; a row is sought if it has all of them.

    Attributes:
        values: The values; None is none.
        is_text: Whether they are texts, as on a command line, of values of any type.
    """

    values: Mapping[str, Any]
    is_text: bool = False

    @property
    def lacking(self) -> str:
        """What is said of rows that lack a column."""
        return f"{'no column' if len(self.values) == 1 else 'not all of'} {', '.join(self.values)}"

    def within(self, session: SparkSession, columns: Mapping[str, tuple[str, T.DataType]], where: str) -> Column | None:
        """Whether a row is sought, as an expression that is never null; None where the rows lack one of the columns.

        Args:
            session: Where values are cast.
            columns: By the names that users know, the names in the rows, and the types.
            where: What has the rows, for messages.

        Raises:
            AnalysisError: A value is none of its column.
        """
        if not self.values.keys() <= columns.keys():
            return None
        conditions = []
        for name, value in self.values.items():
            column, kind = columns[name]
            conditions.append(F.col(quoted(column)).eqNullSafe(self._literal(session, value, kind, f"{where}: {name}")))
        return reduce(lambda one, other: one & other, conditions)

    def _literal(self, session: SparkSession, value: Any, kind: T.DataType, what: str) -> Column:
        taken = next((types for each, types in _TAKEN.items() if isinstance(kind, each)), ())
        # Python's bool is an int, and its datetime a date.
        is_one = isinstance(value, taken) and isinstance(value, bool) == (bool in taken)
        is_one = is_one and isinstance(value, dt.datetime) == (dt.datetime in taken)
        if taken and (self.is_text or is_one):
            literal = F.lit(value).try_cast(kind)
            found = session.range(1).select(literal).collect()[0][0]
            # A cast rounds, and would be of somebody else.
            if found is not None and (not isinstance(kind, T.DecimalType) or _exact(value) == found):
                return F.lit(value).cast(kind)
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        message = f"erase: {what} is {kind.simpleString()}, and {shown} is no value of that type."
        raise AnalysisError(message)


def _exact(value: Any) -> Decimal | None:
    try:
        return Decimal(value)
    except InvalidOperation:
        return None
