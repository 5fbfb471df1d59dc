from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T

from sparkjet.stateful.functions.values import StateValues, UnfitStateError
from tests.stateful.functions.worker_run import schema

EVERYTHING = schema(
    n=T.LongType(),
    i=T.IntegerType(),
    x=T.DoubleType(),
    flag=T.BooleanType(),
    name=T.StringType(),
    raw=T.BinaryType(),
    price=T.DecimalType(10, 2),
    day=T.DateType(),
    at=T.TimestampType(),
    local=T.TimestampNTZType(),
    took=T.DayTimeIntervalType(),
    many=T.ArrayType(T.TimestampType()),
    by_name=T.MapType(T.StringType(), T.ArrayType(T.LongType())),
    inside=schema(a=T.LongType(), b=schema(c=T.DateType())),
)
instants = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1))
optional = st.none()
longs = st.integers(-(2**63), 2**63 - 1)
values = st.tuples(
    optional | longs,
    optional | st.integers(-(2**31), 2**31 - 1),
    optional | st.floats(allow_nan=False),
    optional | st.booleans(),
    optional | st.text(),
    optional | st.binary(),
    optional | st.decimals(-1000, 1000, places=2),
    optional | st.dates(dt.date(1900, 1, 1)),
    optional | instants,
    optional | instants,
    optional | st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
    optional | st.lists(optional | instants),
    optional | st.dictionaries(st.text(), optional | st.lists(longs)),
    optional | st.builds(lambda a, b: Row(a=a, b=Row(c=b)), optional | longs, optional | st.dates(dt.date(1900, 1, 1))),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(optional | values, max_size=5), st.integers(0, 5))
def test_values_come_back_as_they_were(tuples: list[Any], cut: int) -> None:
    known = StateValues(EVERYTHING)
    array = known.write(tuples)
    assert known.read(array) == tuples
    assert known.read(array.slice(cut)) == tuples[cut:]


def test_types_of_numpy_and_pandas_become_plain() -> None:
    known = StateValues(schema(n=T.LongType(), x=T.DoubleType(), at=T.TimestampType(), many=T.ArrayType(T.LongType())))
    given_value = (np.int32(7), np.float32(0.5), pd.Timestamp("2026-01-01"), np.array([1, 2]))
    plain = known.normalized(given_value)
    assert plain == (7, 0.5, dt.datetime(2026, 1, 1), [1, 2])
    assert known.read(known.write([plain])) == [plain]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((1.5,), "cannot be interpreted as an integer"),
        (("a",), "cannot be interpreted as an integer"),
        ((2**63,), "too big|too large|out of range|overflow"),
        ((1, 2), "2 values for 1 fields"),
        ((), "0 values for 1 fields"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, reason: str) -> None:
    with pytest.raises(UnfitStateError, match=rf"does not fit struct<n:bigint>: .*({reason})"):
        StateValues(schema(n=T.LongType())).write([(1,), value, (2,)])


def test_whole_numbers_that_pandas_made_floats_fit() -> None:
    known = StateValues(schema(n=T.LongType()))
    assert known.read(known.write([(3.0,), (None,)])) == [(3,), (None,)]


def test_pandas_null_among_whole_numbers_is_null_as_in_spark() -> None:
    several = T.ArrayType(T.IntegerType())
    known = StateValues(
        schema(n=T.LongType(), x=T.DoubleType(), many=several, by_name=T.MapType(T.StringType(), T.LongType()))
    )
    given_value = (float("nan"), float("nan"), [1, np.nan], {"a": np.nan, "b": 2.0})
    normalized = known.normalized(given_value)
    assert normalized[0] is None
    (found,) = known.read(known.write([normalized]))
    assert found is not None
    assert (found[0], found[2:]) == (None, ([1, None], {"a": None, "b": 2}))
    assert np.isnan(found[1])


@pytest.mark.parametrize("declared", [T.BooleanType(), T.DecimalType(10, 2), T.BinaryType()], ids=str)
def test_pandas_null_is_null_where_the_type_has_no_such_number(declared: T.DataType) -> None:
    known = StateValues(schema(value=declared, several=T.ArrayType(declared)))
    normalized = known.normalized((float("nan"), [float("nan"), None]))
    assert normalized[0] is None
    assert known.read(known.write([normalized])) == [(None, [None, None])]


def test_decimals_keep_their_scale() -> None:
    known = StateValues(schema(price=T.DecimalType(10, 2)))
    assert known.read(known.write([(Decimal("1.5"),)])) == [(Decimal("1.50"),)]
