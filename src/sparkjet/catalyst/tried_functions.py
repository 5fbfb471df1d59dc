"""A user's Python function of rows after ``divert``, as Spark's workers call it: if it raises, only its row fails.

Runs in Spark's Python workers, where sparkjet need not be installed: it must import nothing else from sparkjet.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    UserDefinedType,
)

if TYPE_CHECKING:
    import pyarrow as pa

VALUE, FAILED = "v", "e"
"""Fields returned by a tried function: the value, and the text of :func:`failure`, null if it did not raise."""
SEPARATOR = "\x00"
"""Separates the parts of a failure."""
_LONGEST = 2000
_PICKLED = {type(None), bool, int, float, str, bytes, bytearray, date, datetime, time, timedelta}
"""Classes whose values the JVM can read."""
_WHOLE: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


class Converted(StructType):
    """The type of rows whose fields the function has already converted to Spark's own form."""

    @classmethod
    def typeName(cls) -> str:
        """See :meth:`DataType.typeName`; the name that the JVM sees."""
        return StructType.typeName()

    def needConversion(self) -> bool:
        """See :meth:`DataType.needConversion`."""
        return False


def failure(error: BaseException) -> str:
    """Description of a failure: class, message and the end of the trace."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as other:  # noqa: BLE001 - a class of the user's
        message = f"its message raised {type(other).__name__}"
    # Without the frame of this module.
    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        trace = "".join(traceback.format_exception(kind, error, inner))[-_LONGEST:]
    except Exception:  # noqa: BLE001 - as above
        trace = ""
    said = (name, message[:_LONGEST], trace)
    parts = (each.replace(SEPARATOR, " ").encode("utf-8", "replace").decode() for each in said)
    return SEPARATOR.join(parts)


class TriedFunction:
    """A function that is tried.

    Args:
        command: The function and its type as pickled by PySpark.
    """

    def __init__(self, command: bytes) -> None:
        self._command = command

    def __reduce__(self) -> Any:
        # Not part of what is tried: a package that a worker lacks is no fault of a row.
        return _loaded, (type(self), {**self.__dict__})

    def load(self) -> None:
        """Unpickle the function, in the worker."""
        from pyspark.core.broadcast import Broadcast  # noqa: PLC0415 - of the worker
        from pyspark.serializers import CPickleSerializer  # noqa: PLC0415

        found = CPickleSerializer().loads(self._command)
        if isinstance(found, Broadcast):
            found = CPickleSerializer().loads(found.value)
        self.function, self.type = found
        self.ready()

    def ready(self) -> None:
        """Prepare what this kind of function needs of the type, once."""


def _loaded(kind: type[TriedFunction], state: dict[str, Any]) -> TriedFunction:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    made.load()
    return made


class TriedRows(TriedFunction):
    """A function of rows whose values are pickled."""

    def ready(self) -> None:
        """See :meth:`TriedFunction.ready`."""
        self._convert = self.type.toInternal if self.type.needConversion() else None
        self._simple = not isinstance(self.type, StructType)

    def __call__(self, kept: bool, /, *args: Any, **kwargs: Any) -> tuple[Any, str | None]:
        """The value and the failure; neither for rows that are not kept."""
        if not kept:
            return None, None
        try:
            found = self.function(*args, **kwargs)
            if self._convert is not None:
                found = self._convert(found)
            if not (self._simple and found.__class__ in _PICKLED):
                _check_pickled(found, self.type)
        except Exception as error:  # noqa: BLE001 - that of the user's function
            return None, failure(error)
        return found, None


def _check_pickled(value: Any, kind: DataType | None) -> None:
    """Refuse values that the JVM cannot read or does not accept for a type: the task would fail."""
    if isinstance(kind, UserDefinedType):
        kind = kind.sqlType()
    found = value.__class__
    # The JVM reads anything that is not a number as null, and has no infinite decimals.
    if found in _PICKLED or (found is Decimal and (value.is_finite() or str(value) == "NaN")):
        return
    parts: list[tuple[Any, DataType | None]]
    if isinstance(value, tuple | list) and isinstance(kind, StructType):
        if len(value) != len(kind.fields):
            raise ValueError(f"the function returned {len(value)} values for a struct of {len(kind.fields)} fields")
        parts = [(each, field.dataType) for each, field in zip(value, kind.fields, strict=True)]
    elif isinstance(value, tuple | list | set | frozenset):
        parts = [(each, kind.elementType if isinstance(kind, ArrayType) else None) for each in value]
    elif found is dict:
        of_keys, of_values = (kind.keyType, kind.valueType) if isinstance(kind, MapType) else (None, None)
        parts = [(key, of_keys) for key in value] + [(each, of_values) for each in value.values()]
    elif found.__module__.startswith("pyspark.") or (found.__module__, found.__name__) == ("array", "array"):
        parts = []
    else:
        message = f"the function returned {found.__module__}.{found.__qualname__}, which Spark does not take as a value"
        raise TypeError(message)
    for each, of in parts:
        _check_pickled(each, of)


@dataclass(frozen=True)
class Conversion:
    """How a worker converts the return value of a function to Arrow.

    Attributes:
        types: The Arrow types: of the value, or of the fields of a struct that is returned as a DataFrame.
        kinds: The Spark types.
        names: Names of the fields of such a struct; None for a single value.
        timezone: The session's time zone.
        safe: Whether Arrow refuses values that it would truncate.
        casts: Whether values of another type are cast.
        by_name: Whether the columns of a DataFrame are matched by name.
        by_pandas: Whether rows pass through pandas.
    """

    types: tuple[pa.DataType, ...]
    kinds: tuple[DataType, ...]
    names: tuple[str, ...] | None
    timezone: str
    safe: bool
    casts: bool
    by_name: bool
    by_pandas: bool


class TriedArrowRows(TriedFunction):
    """A function of rows whose values go through Arrow, which converts those of a batch together."""

    def __init__(self, command: bytes, conversion: Conversion) -> None:
        super().__init__(command)
        self._conversion = conversion

    def ready(self) -> None:
        """See :meth:`TriedFunction.ready`."""
        bits = _WHOLE.get(type(self.type))
        self._range = range(-(1 << bits - 1), 1 << bits - 1) if bits else None
        self._text = type(self.type) is StringType
        self._double = type(self.type) is DoubleType
        self._convert: Any = None

    def __call__(self, kept: bool, /, *args: Any, **kwargs: Any) -> tuple[Any, str | None]:
        """The value and the failure; neither for rows that are not kept."""
        if not kept:
            return None, None
        try:
            found = self.function(*args, **kwargs)
            kind = found.__class__
            # What most functions return needs no look at Arrow.
            if not (
                found is None
                or (kind is int and self._range is not None and found in self._range)
                or (kind is str and self._text and found.isascii())
                or (kind is float and self._double)
            ):
                found = self._converted(found)
        except Exception as error:  # noqa: BLE001 - that of the user's function
            return None, failure(error)
        return found, None

    def _converted(self, value: Any) -> Any:
        """A value that Arrow is known to convert, whatever else is in the batch."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        conversion, kind = self._conversion, self.type
        (arrow_type,) = conversion.types
        if conversion.by_pandas:
            if type(kind) is StringType:
                value = str(value)
            elif type(kind) is BinaryType:
                value = bytes(value)
            import pandas as pd  # noqa: PLC0415 - an extra

            array, is_cast = of_series(pd.Series([value]), conversion, 0)
        else:
            if self._convert is None:
                from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - since Spark 4.1

                found = LocalDataToArrowConversion._create_converter(kind, none_on_identity=True)  # noqa: SLF001
                self._convert = found or (lambda each: each)
            converted, is_cast = self._convert(value), False
            try:
                array = pa.array([converted], type=arrow_type)
            except pa.ArrowInvalid:
                array, is_cast = pa.array([converted]).cast(arrow_type, safe=conversion.safe), True
        return array.to_pylist()[0] if is_cast and not pa.types.is_nested(arrow_type) else value


def of_series(series: Any, conversion: Conversion, number: int) -> tuple[pa.Array, bool]:
    """A Series as Arrow, as Spark's workers convert it, and whether it had to be cast."""
    import pandas as pd  # noqa: PLC0415 - extras
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.types import _create_converter_from_pandas  # noqa: PLC0415

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.dtype.categories.dtype)
    kind, arrow_type = conversion.kinds[number], conversion.types[number]
    converter = _create_converter_from_pandas(kind, timezone=conversion.timezone, error_on_duplicated_field_names=False)
    values = converter(series)
    nulls = None if hasattr(values.array, "__arrow_array__") else values.isna()
    try:
        return pa.Array.from_pandas(values, mask=nulls, type=arrow_type, safe=conversion.safe), False
    except pa.ArrowInvalid:
        if not conversion.casts:
            raise
        return pa.Array.from_pandas(values, mask=nulls).cast(arrow_type, safe=conversion.safe), True
